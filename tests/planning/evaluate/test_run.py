"""capplan simulate: streamed and not, interrupted, and judged as a plan judges."""

import csv
import gzip
import json
import signal

import numpy as np
import pytest

from capplan.cli.main import INTERRUPTED, exit_code
from capplan.errors import InputError
from capplan.planning.load import traffic as planning_traffic
from capplan.planning.load.traffic import is_streamed
from capplan.planning.settings.plan import SimulateSettings
from capplan.simulator.fleet.fleet import Fleet
from capplan.simulator.fleet.serving_pool import ServingPool
from capplan.simulator.results.histogram import RELATIVE_ERROR

COST = "--latency-ms 10,0.05,0,0.1,0.0001 --kv-blocks 2000 --max-num-seqs 64 --tp 1"
SLO = "--slo ttft=100ms,tpot=16ms"


def run(command):
    return exit_code(command.split())


@pytest.fixture
def trace(tmp_path):
    """3,000 requests at 20 a second."""
    rng = np.random.default_rng(1)
    path = tmp_path / "own.csv"
    arrival_s = np.cumsum(rng.exponential(0.05, 3000)).round(6)
    prompts = rng.integers(100, 300, 3000)
    outputs = rng.integers(10, 60, 3000)
    classes = rng.choice(["chat", "batch"], 3000)
    with path.open("w") as stream:
        stream.write("arrival_s,prompt_tokens,output_tokens,class\n")
        for row in zip(arrival_s, prompts, outputs, classes, strict=True):
            stream.write(",".join(map(str, row)) + "\n")
    return path


@pytest.fixture
def pressed_after(monkeypatch):
    """Return what makes Ctrl-C come when so many parts of a trace are served."""

    def press_after(parts):
        serve = Fleet.serve
        left = [parts]

        def served(self, *given):
            yield from serve(self, *given)
            left[0] -= 1
            if left[0] == 0:
                signal.raise_signal(signal.SIGINT)

        monkeypatch.setattr(Fleet, "serve", served)
        monkeypatch.setattr("capplan.simulator.fleet.fleet._FIRST_CHUNK", 500)

    return press_after


def test_a_streamed_run_reports_what_the_whole_run_reports(trace, tmp_path, capsys):
    asked = f"simulate --trace {trace} {COST} {SLO} --replicas 2"

    codes = [
        run(f"{asked} --stream --out {tmp_path / 'a'}"),
        run(f"{asked} --out {tmp_path / 'b'}"),
    ]

    capsys.readouterr()
    streamed, whole = (
        json.loads((tmp_path / name / "simulation.json").read_text())
        for name in ("a", "b")
    )
    assert codes == [0, 0]
    assert set(whole) == set(streamed) - {"percentile_error"}
    for name in ("request_count", "iteration_count", "preemptions", "slo_attainment"):
        assert streamed[name] == whole[name]
    for name in ("rate_per_s", "mean_prompt_tokens", "busy_share", "duration_s"):
        assert streamed[name] == pytest.approx(whole[name], rel=1e-9)
    for metric, values in whole["latency"].items():
        for name, value in values.items():
            found = streamed["latency"][metric][name]
            assert found == pytest.approx(value, rel=1.001 * RELATIVE_ERROR, abs=1e-6)
    for name in ("simulation.csv", "report.html"):
        assert (tmp_path / "a" / name).stat().st_size > 200


def test_requests_are_written_as_they_finish_when_asked(trace, tmp_path, capsys):
    path = tmp_path / "requests.csv.gz"
    whole = tmp_path / "whole.csv"
    asked = f"simulate --trace {trace} {COST} --replicas 2"

    run(f"{asked} --stream --per-request {path}")
    run(f"{asked} --per-request {whole}")

    capsys.readouterr()
    with gzip.open(path, "rt") as stream:
        rows = sorted(csv.DictReader(stream), key=lambda row: int(row["row"]))
    with whole.open() as stream:
        expected = list(csv.DictReader(stream))
    assert [int(row.pop("row")) for row in rows] == list(range(3000))
    assert rows == expected


def test_requests_that_fit_no_replica_are_dropped_when_asked(trace, capsys):
    small = COST.replace("--kv-blocks 2000", "--kv-blocks 20")
    asked = f"simulate --trace {trace} {small} --stream"

    refused = run(asked)
    refusal = capsys.readouterr().err
    code = run(f"{asked} --drop-oversized")

    shown = " ".join(capsys.readouterr().out.split())
    assert refused == 2
    assert "requests fit no replica; the first is row" in refusal
    assert code == 0
    assert "requests fit no replica; dropped" in shown


def test_a_large_file_is_streamed_and_that_is_said(trace, monkeypatch, capsys):
    monkeypatch.setattr(planning_traffic, "STREAMED_BYTES", 1000)

    run(f"simulate --trace {trace} {COST}")
    streamed = " ".join(capsys.readouterr().out.split())
    run(f"simulate --trace {trace} {COST} --no-stream")
    whole = capsys.readouterr().out

    assert "read in chunks: percentiles within 0.4 %" in streamed
    assert "read in chunks" not in whole


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"rate": 3.0}, "rate and stream are both given"),
        ({"arrivals": "poisson"}, "arrivals and stream are both given"),
        ({"trace_events": "x"}, "trace_events and stream are both given"),
        ({"trace": None, "workload": "sharegpt"}, "workload and stream are both given"),
        ({"trace": None}, "--stream needs --trace FILE"),
    ],
)
def test_what_needs_the_whole_trace_cannot_be_streamed(trace, settings, expected):
    given = {"trace": str(trace), "stream": True, **settings}

    with pytest.raises(InputError, match=expected):
        is_streamed(SimulateSettings(**given))


@pytest.mark.parametrize("settings", [{}, {"rate": 3.0}, {"stream": False}])
def test_a_small_file_or_one_that_is_needed_whole_is_read_whole(
    trace, settings, monkeypatch
):
    if settings:
        monkeypatch.setattr(planning_traffic, "STREAMED_BYTES", 10)

    assert not is_streamed(SimulateSettings(trace=str(trace), **settings))


def test_another_format_is_never_streamed_unasked(tmp_path, monkeypatch):
    monkeypatch.setattr(planning_traffic, "STREAMED_BYTES", 10)
    path = tmp_path / "azure.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,374,44\n"
    )

    assert not is_streamed(SimulateSettings(trace=str(path)))


@pytest.mark.parametrize("wrong", ["/no/such.csv", "a_folder"])
def test_a_file_that_cannot_be_read_is_refused(wrong, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_folder").mkdir()

    code = run(f"simulate --trace {wrong} {COST} --stream")

    error = capsys.readouterr().err
    assert code == 2
    assert error.count("\n") == 1
    assert wrong in error


@pytest.mark.parametrize("way", ["--stream", "--no-stream"])
def test_ctrl_c_leaves_the_answer_for_the_first_requests(
    way, trace, tmp_path, capsys, pressed_after
):
    handler = signal.getsignal(signal.SIGINT)
    pressed_after(2)

    code = run(
        f"simulate --trace {trace} {COST} {SLO} {way} --replicas 2 --out {tmp_path}"
    )

    shown = capsys.readouterr()
    document = json.loads((tmp_path / "simulation.json").read_text())
    count = document["request_count"]
    assert code == INTERRUPTED
    assert "press Ctrl-C again to quit" in shown.err
    assert 0 < count < 3000
    assert f"after {count:,} of" in shown.out
    assert "the figures are of those" in shown.out
    assert document["interrupted"]
    assert document["slo_attainment"] > 0
    assert signal.getsignal(signal.SIGINT) is handler


def test_the_partial_answer_is_that_of_a_shorter_trace(
    trace, tmp_path, capsys, pressed_after, monkeypatch
):
    whole = tmp_path / "whole.csv"
    part = tmp_path / "part.csv"
    asked = f"simulate --trace {trace} {COST} --replicas 2"
    run(f"{asked} --per-request {whole}")
    pressed_after(2)

    run(f"{asked} --per-request {part}")

    capsys.readouterr()
    rows = part.read_text().splitlines()
    assert 1 < len(rows) < 3001
    assert rows == whole.read_text().splitlines()[: len(rows)]


def test_ctrl_c_before_there_is_an_answer_quits(trace, capsys, monkeypatch):
    def served(self, *given):
        signal.raise_signal(signal.SIGINT)
        return iter(())

    monkeypatch.setattr(Fleet, "serve_in_chunks", served)

    code = run(f"simulate --trace {trace} {COST}")

    assert code == INTERRUPTED
    assert "interrupted" in capsys.readouterr().err


def test_a_second_ctrl_c_quits_at_once(trace, tmp_path, capsys, monkeypatch):
    def press(self):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(ServingPool, "check_stuck", press)
    path = tmp_path / "requests.csv"

    code = run(f"simulate --trace {trace} {COST} --stream --per-request {path}")

    assert code == INTERRUPTED
    assert [one.name for one in tmp_path.iterdir()] == [trace.name]
    capsys.readouterr()
