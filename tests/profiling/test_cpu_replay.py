"""The example that serves and simulates: its clocks by hand, and one whole run."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from capplan.latency.contract import linear_tables
from capplan.profiling.iteration_clock import Iteration
from capplan.workload.trace import Trace

EXAMPLE = Path(__file__).parents[2] / "examples" / "studies" / "cpu_replay.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("cpu_replay", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_arrivals_move_with_the_clock_of_the_medians(example):
    # As served: a step of 2 s, 3 s idle, a step of 2 s. Twice later each took 1 s.
    trace = Trace(np.array([5, 5]), np.array([1, 1]), np.array([0.0, 5.0]))
    served = {
        "seconds": [[2.0, 2.0], [1.0, 1.0], [1.0, 1.0]],
        "idle_s": [[1, 3.0]],
        "first": [0, 1],
        "last": [0, 1],
    }

    arrival_s, times, quiet_s = example.quiet_times(trace, served)

    assert quiet_s.tolist() == [1.0, 1.0]
    assert arrival_s.tolist() == [0.0, 4.0]
    assert times["ttft_s"].tolist() == [1.0, 1.0]


def test_an_arrival_within_a_step_stays_at_its_share_of_it(example):
    trace = Trace(np.array([5, 5]), np.array([3, 1]), np.array([0.0, 2.5]))
    served = {
        "seconds": [[2.0, 2.0, 2.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]],
        "idle_s": [],
        "first": [0, 2],
        "last": [2, 2],
    }

    arrival_s, times, _ = example.quiet_times(trace, served)

    assert arrival_s.tolist() == [0.0, 1.25]
    assert times["ttft_s"].tolist() == [1.0, 1.75]
    assert times["tpot_s"].tolist() == [1.0, 0.0]


def test_a_quiet_machine_changes_nothing(example):
    trace = Trace(np.array([5, 5]), np.array([1, 1]), np.array([0.5, 0.7]))
    served = {
        "seconds": [[0.4, 0.3], [0.4, 0.3]],
        "idle_s": [[0, 0.5]],
        "first": [0, 1],
        "last": [0, 1],
    }

    arrival_s, times, _ = example.quiet_times(trace, served)

    assert arrival_s == pytest.approx(trace.arrival_s)
    assert times["e2e_s"] == pytest.approx([0.4, 0.5])


def test_a_step_is_predicted_as_the_simulator_does(example):
    tables = linear_tables(7e-3, 1e-5, 1e-9, 1e-4, 1e-7, max_batch=4, max_tokens=512)
    beside = Iteration(0.0, (100, 300), ((64, 32),))

    # Q' counts a token's own pair in full, hence the + 1 / 2.
    attention = 64 * (32 + 65 / 2)
    expected = 7e-3 + 64e-5 + attention * 1e-9 + 2e-4 + 400e-7
    assert example.predicted_s(tables, beside) == pytest.approx(expected)


@pytest.mark.slow
@pytest.mark.vllm
def test_it_runs_from_serving_to_comparing(tmp_path):
    pytest.importorskip("vllm", reason="vLLM is not installed here")
    recording = tmp_path / "run.json"
    few = ["--rounds", "1", "--traces", "2", "--requests", "5", "--density", "coarse"]

    subprocess.run([sys.executable, EXAMPLE, "serve", recording, *few], check=True)

    recorded = json.loads(recording.read_text())
    assert len(recorded["served"]) == 2
    assert all(-1 not in each["last"] for each in recorded["served"])
