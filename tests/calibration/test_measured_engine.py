"""The shipped engine time of dense LLMs against what an engine on an H100 served."""

import importlib
import sys
from pathlib import Path

import pytest

from capplan.engines.catalog import EngineName
from capplan.latency.engine_rows import engine_time

STUDIES = Path(__file__).parents[2] / "examples" / "studies"
KERNELS = ("kernel-sum", "roofline")
RUNS = ("sharegpt-8", "sharegpt-20", "sharegpt-32", "azure-8")


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(STUDIES))
    monkeypatch.delitem(sys.modules, "measured_engine", raising=False)
    return importlib.import_module("measured_engine")


def shipped(of, version=None):
    wanted = EngineName("vllm", version) if version else None
    row = engine_time(of, "H100-SXM", "Llama-3.1-8B", False, wanted=wanted)
    assert row is not None
    return row


def test_the_newest_engine_is_planned_with_and_older_ones_on_request():
    for of in KERNELS:
        assert shipped(of).engine_version == "0.26.0"
        assert shipped(of, "0.14").engine_version == "0.26.0"
        assert shipped(of, "0.12").engine_version == "0.10.2–0.12.0"


@pytest.mark.parametrize("of", KERNELS)
@pytest.mark.parametrize("run", RUNS)
def test_what_an_engine_served_is_simulated(study, run, of):
    requests = study.served(run)

    new = study.error(requests, of, shipped(of).time)
    old = study.error(requests, of, shipped(of, "0.12").time)

    assert abs(new["TPOT"]) < 0.06
    assert abs(new["E2E"]) < 0.07
    assert old["TPOT"] > 0.2  # an engine that waits for its processor


@pytest.mark.parametrize("of", KERNELS)
def test_the_shipped_row_is_the_fitted_one(study, of):
    found = study.fitted(of, shipped(of, "0.12"), study.runs())

    for name in ("decode_factor", "prefill_factor"):
        assert getattr(found, name) == pytest.approx(getattr(shipped(of), name), 0.01)
    # An iteration's time and a request's are told apart by few runs.
    assert found.iteration_s + 50 * found.per_request_s == pytest.approx(
        shipped(of).iteration_s + 50 * shipped(of).per_request_s, rel=0.05
    )
