"""The example that fits engines to sweeps: on made sweeps, and without any."""

import csv
import runpy
import sys
from pathlib import Path

import pytest

from capplan.calibration.closed_loop import SweepPoint, closed_loop
from capplan.deployment import EngineSettings
from capplan.latency.capacity import LEVELS
from capplan.latency.catalog import find_profile
from capplan.latency.engine_time import EngineTime, engine_time
from capplan.latency.profile_file import load_profile
from capplan.latency.terms import tables

EXAMPLES = Path(__file__).parents[2] / "examples"
TRUE = EngineTime(iteration_s=1.5e-3, per_request_s=6e-5, source="")
USERS = (4, 16, 64)


def run(monkeypatch, *arguments, name="served_accuracy.py"):
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    monkeypatch.syspath_prepend(str(EXAMPLES))
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


@pytest.fixture
def data(tmp_path):
    """Return a folder with sweeps of H200 engines that follow the law exactly."""
    (tmp_path / "served").mkdir()
    columns = "model,hw,precision,tp,conc,isl,osl,median_tpot_ms,engine_assumed"
    with open(tmp_path / "served" / "sweeps.csv", "w", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns.split(","))
        for tp in (2, 4, 8):
            base = find_profile("Llama-3.1-70B-FP8", "H200-SXM", tp)
            kernels = tables(base.decode, base.fused, max(USERS), 8192)
            for users in USERS:
                point = SweepPoint(1024, 512, users, least_share=0.8, median=True)
                loop = closed_loop(TRUE.applied(kernels), EngineSettings(), point)
                row = ("Llama 3.3 70B Instruct", "h200", "fp8", tp, users, 1024, 512)
                writer.writerow([*row, loop.tpot_s * 1e3, "vllm"])
    return tmp_path


def test_the_engines_time_is_found_and_scored_on_other_sweeps(
    data, tmp_path, monkeypatch, capsys
):
    document = tmp_path / "accuracy.md"
    document.write_text("before\n<!-- tables -->\nold\n<!-- end of tables -->\nafter\n")

    run(monkeypatch, "--data", data, "--docs", document, "--out", tmp_path / "profiles")

    printed = capsys.readouterr().out
    found = engine_time(
        "kernel-sum", "H200-SXM", False, tmp_path / "profiles" / "engine_times.yaml"
    )
    assert found.iteration_s == pytest.approx(TRUE.iteration_s, rel=0.05)
    assert found.per_request_s == pytest.approx(TRUE.per_request_s, rel=0.1)
    assert found.served.sweeps == 3
    assert found.served.tpot == pytest.approx([1, 1, 1], abs=0.02)
    [row] = [
        line
        for line in printed.splitlines()
        if line.startswith("| kernel sums, dense, Hopper | 3 |")
    ]
    shares = [float(cell) for cell in row.split("|")[5 : 5 + len(LEVELS)]]
    assert shares == pytest.approx([1, 1, 1], abs=0.1)
    text = document.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert row in text


def test_without_sweeps_it_says_so(tmp_path, monkeypatch, capsys):
    run(monkeypatch, "--data", tmp_path)

    printed = capsys.readouterr().out
    assert "sweeps.csv is absent" in printed
    assert "silicon_end_to_end.csv is absent" in printed
    assert "No sweeps" in printed


def test_the_sweeps_are_listed(data, monkeypatch, capsys):
    run(monkeypatch, data, name="served_sweeps.py")

    lines = capsys.readouterr().out.splitlines()
    assert sum("Llama-3.3-70B-FP8 on H200-SXM" in line for line in lines) == 3


def test_the_shipped_calibrations_are_of_the_sweeps_they_name():
    profile = load_profile(
        EXAMPLES.parent / "profiles" / "H100-SXM" / "gpt-oss-120b" / "tp2.yaml"
    )

    assert profile.how == "calibrated"
    assert profile.kernels_from == "kernel-sum"
    assert "6 sweeps of gpt-oss-120b on H100-SXM" in profile.engine_time.source
    assert profile.engine_time.served.sweeps == 6
