"""``capplan place``: what it prints, writes and refuses."""

import csv
import json
import warnings

import pytest

from capplan.cli.main import exit_code
from capplan.planning.plan.placing import placement_problem
from capplan.planning.settings.place import PlaceSettings

HEAD = "name,prompt_tokens,predicted_output_tokens\n"
FLAGS = ["--latency-ms", "10,0.1,0,1,0.01", "--kv-blocks", "8", "--max-num-seqs", "16"]
SLO = ["--slo", "ttft=1s,tpot=30ms"]


@pytest.fixture
def snapshot(tmp_path):
    """Four requests, two to a replica of 112 tokens in seven blocks."""
    file = tmp_path / "now.csv"
    file.write_text(HEAD + "".join(f"r{i},40,8\n" for i in range(4)))
    return file


def place(snapshot, *more):
    return exit_code(["place", str(snapshot), *FLAGS, *SLO, *more])


def test_the_answer_the_bound_and_the_loads_are_printed(snapshot, capsys):
    assert place(snapshot) == 0

    shown = capsys.readouterr().out
    assert "2 replicas, and no fewer are possible." in shown
    assert "85.71 % (96 of 112)" in shown


@pytest.mark.parametrize("solver", ["cp-sat", "scip", "highs", "best-fit", "jsq"])
def test_every_solver_gives_the_same_count(solver, snapshot, capsys):
    assert place(snapshot, "--solver", solver) == 0
    assert "2 replicas, and no fewer" in capsys.readouterr().out


@pytest.mark.parametrize("flag", ["--out", "-o"])
def test_the_files_say_who_goes_where(flag, snapshot, tmp_path):
    assert place(snapshot, flag, str(tmp_path / "out")) == 0

    document = json.loads((tmp_path / "out" / "placement.json").read_text())
    with (tmp_path / "out" / "placement.csv").open() as file:
        rows = list(csv.DictReader(file))
    page = (tmp_path / "out" / "report.html").read_text()
    assert document["status"] == "optimal"
    assert document["lower_bound"] == document["replica_count"] == 2
    assert [row["name"] for row in rows] == ["r0", "r1", "r2", "r3"]
    assert sorted(row["replica"] for row in rows) == ["0", "0", "1", "1"]
    assert "iterations ahead" in page


def test_the_model_and_the_snapshot_can_be_exported(snapshot, tmp_path):
    for name in ("model.lp", "model.mps", "again.json"):
        assert place(snapshot, "--export", str(tmp_path / name)) == 0
        assert (tmp_path / name).stat().st_size > 0

    assert exit_code(["place", str(tmp_path / "again.json")]) == 0


def test_too_few_replicas_exit_with_3_and_name_the_conflict(snapshot, capsys):
    assert place(snapshot, "--max-replicas", "1") == 3

    shown = capsys.readouterr().out
    assert "at most 1 replicas and (e) KV capacity exclude it" in shown


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--gamma", "2"], "gamma is 2.0; expected 0 to 1"),
        (["--solver", "cplex"], "no solver 'cplex'; expected one of cp-sat"),
        (["--rate", "3"], "--rate: rate has no effect with a snapshot"),
        (["--attainment", "0.9"], "No such option: --attainment"),
        (["--time-limit", "1"], "--time-limit: '1' is not a duration"),
        (["--export", "model.txt"], "--export: model.txt: suffix is '.txt'"),
        (["--workload", "sharegpt"], "workload has no effect with a snapshot"),
        (["--time-limit", "0s"], "time limit is 0.0 s; expected more than 0"),
    ],
)
def test_wrong_input_exits_with_2_and_one_line(more, message, snapshot, capsys):
    assert place(snapshot, *more) == 2

    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize("at", ["peak", "4s"])
def test_a_moment_is_cut_from_a_trace(at, tmp_path, capsys):
    trace = tmp_path / "trace.csv"
    lines = ["arrival_s,prompt_tokens,output_tokens"]
    lines += [f"{i / 10},30,40" for i in range(100)]
    trace.write_text("\n".join(lines) + "\n")

    code = exit_code(["place", "--trace", str(trace), "--at", at, *FLAGS, *SLO])

    assert code == 0
    assert "that keep their replica" in capsys.readouterr().out


@pytest.mark.parametrize(("at", "filling"), [("4s", True), ("9s", False)])
def test_a_moment_while_the_fleet_still_fills_is_warned_of(at, filling, tmp_path):
    trace = tmp_path / "trace.csv"
    lines = ["arrival_s,prompt_tokens,output_tokens"]
    lines += [f"{i / 10},30,40" for i in range(100)]
    trace.write_text("\n".join(lines) + "\n")
    request = PlaceSettings(
        at=at,
        trace=trace,
        latency_ms="10,0.1,0,1,0.01",
        kv_blocks=8,
        max_num_seqs=16,
        slo="ttft=1s,tpot=30ms",
    )

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        placement_problem(request)

    texts = [str(warning.message) for warning in caught]
    assert any("still filling" in text for text in texts) is filling
