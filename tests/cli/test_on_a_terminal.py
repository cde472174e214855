"""plan, simulate, search, demand, place and verify as a person sees them.

profile, fit and profiles are run on a terminal in the files of their names.
"""

import json
import re
import time

import pytest

from capplan.cli.main import exit_code
from capplan.simulator.fleet.fleet import Fleet

SERVED = "--llm Llama-3.1-8B --gpu H100-SXM --tp 1 --price H100-SXM=2.5"
COST = "--latency-ms 10,0.05,0,0.1,0.0001 --kv-blocks 2000 --max-num-seqs 64"
SLO = "--slo ttft=1s,tpot=30ms"
SMALL = "--workload synthetic:prompt=200,output=20,n=2000"

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


@pytest.fixture
def run(terminal):
    """Run a command line; return the exit code, the screen, and it without escapes."""

    def command(line):
        screen = terminal(*line.split())
        return screen.exit_code, screen.text, ESCAPES.sub("", screen.text)

    return command


def test_plan_shows_its_steps_then_the_result_in_bold_green(run, tmp_path):
    code, screen, shown = run(
        f"plan {SMALL} --rate 20 {SERVED} {COST} {SLO} --out {tmp_path}"
    )

    assert code == 0, shown
    assert "⠋" in shown  # a spinner, with the step beside it
    assert "\x1b[1;32mRent 1 H100-SXM GPU for $1,825 a month." in screen
    assert "100 % in time, asked 99 %" in shown
    assert "at $2.50 a GPU-hour" in shown
    assert "written to " in shown
    assert (tmp_path / "report.html").exists()


def test_an_infeasible_plan_is_bold_red_and_exit_3(run):
    code, screen, shown = run(f"plan {SMALL} --rate 20 {SERVED} {COST} --slo tpot=5ms")

    assert code == 3, shown
    assert "\x1b[1;31mNo GPU named here holds tpot ≤ 5 ms." in screen


def test_simulate_shows_requests_and_their_rate_while_it_runs(run, monkeypatch):
    serve = Fleet.serve

    def serve_slowly(*arguments):
        time.sleep(0.1)  # the display is drawn anew ten times a second
        return serve(*arguments)

    monkeypatch.setattr(Fleet, "serve", serve_slowly)

    code, screen, shown = run(
        "simulate --workload synthetic:prompt=100,output=4,n=60000 --rate 20 "
        "--no-extend "
        f"{COST} {SLO} --replicas 2"
    )

    counts = [int(n.replace(",", "")) for n in re.findall(r"([\d,]+) requests,", shown)]
    assert code == 0, shown
    assert "\x1b[?25l" in screen  # the cursor is hidden: a live display
    assert len(set(counts)) > 1, shown  # the first update has no rate yet
    assert counts == sorted(counts)
    assert re.search(r"[\d,]+ requests, [\d,]+/s", shown)
    assert "2 GPUs = 2 replicas × 1 (TP 1)" in shown
    assert "throughput" in shown


def test_simulate_of_a_file_in_chunks_shows_progress_too(run, tmp_path):
    path = tmp_path / "own.csv"
    rows = "".join(f"{i / 20},100,20\n" for i in range(20_000))
    path.write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")

    code, _, shown = run(f"simulate --trace {path} {COST} --stream --replicas 2")

    assert code == 0, shown
    assert " requests" in shown
    assert "simulated    20,000 requests over" in shown


def test_search_shows_the_choice_in_bold_green_before_the_table(run):
    code, screen, shown = run(
        f"search {SMALL} --llm Llama-3.1-8B --gpu H100-SXM --tp 1,2 --slo tpot=30ms"
    )

    assert code == 0, shown
    assert screen.startswith("\x1b[1;32mH100-SXM × TP 1")
    assert "with a full batch at all times" in shown


def test_demand_shows_a_row_per_rate_and_the_extrapolation(run):
    code, _, shown = run(
        f"demand {SMALL} --rates 20,40,60,80 --at 120 {SERVED} {COST} "
        "--slo ttft=1s,tpot=30ms"
    )

    rows = [line.split() for line in shown.splitlines()]
    assert code == 0, shown
    for rate in ("20", "40", "60", "80"):
        assert any(row[:1] == [rate] and "$" in row[-1] for row in rows), shown
    assert "replicas = ⌈" in shown
    assert "120 requests/s, extrapolated " in shown


def test_place_shows_the_replicas(run, tmp_path):
    snapshot = tmp_path / "now.csv"
    rows = "".join(f"r{i},40,8\n" for i in range(4))
    snapshot.write_text(f"name,prompt_tokens,predicted_output_tokens\n{rows}")

    # A replica has seven blocks of 16 tokens; a request of 48 tokens takes three.
    code, _, shown = run(
        f"place {snapshot} --latency-ms 10,0.1,0,1,0.01 --kv-blocks 8 "
        "--max-num-seqs 16 --slo ttft=1s,tpot=30ms"
    )

    assert code == 0, shown
    assert "2 replicas" in shown


def test_verify_accepts_a_plan_and_refuses_it_after_one_change(run, tmp_path):
    run(f"plan {SMALL} --rate 20 {SERVED} {COST} {SLO} --out {tmp_path}")
    path = tmp_path / "plan.json"

    accepted, _, shown = run(f"verify {path}")
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"seed": document["seed"] + 1}))
    refused, _, reasons = run(f"verify {path}")

    assert accepted == 0, shown
    assert "plan.json: verified: replicas 1, at least 1, 100 % in time" in shown
    assert refused == 1
    assert "plan.json: refused: " in reasons


@pytest.mark.parametrize(
    "line",
    [
        f"plan {SMALL} {SERVED} {SLO}",
        f"simulate --trace no.csv {COST}",
        f"search {SMALL} --llm nobody",
        f"demand {SMALL} {SERVED} {SLO} --rates 1",
        "place no.csv",
        "verify no.json",
    ],
)
def test_a_mistake_is_one_line_and_exit_2_on_a_terminal_too(run, line):
    code, _, shown = run(line)

    # Progress may have been drawn and erased before the error.
    assert code == 2, shown
    assert shown.count("capplan: error: ") == 1
    assert "Traceback" not in shown
    assert shown.rstrip("\n").rpartition("\n")[2].startswith("capplan: error: ")


NARROW = (
    ("plan", f"plan {SMALL} --rate 20 {SERVED} {COST} {SLO}", ("p99 TTFT", "p99 TPOT")),
    (
        "compare",
        f"compare {SMALL} --rate 20 {SERVED} {COST} {SLO} --systems vllm-v1,sarathi",
        ("TTFT, p50 and p99", "TPOT, p50 and p99"),
    ),
    (
        "autoscale",
        "autoscale --workload azure-conv-like --llm Llama-3.1-8B --gpu H100-SXM --tp 1 "
        f"{SLO} --policies hpa",
        ("worst hour",),
    ),
)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("line", "kept"), [row[1:] for row in NARROW], ids=[row[0] for row in NARROW]
)
def test_a_terminal_of_80_columns_keeps_attainment_and_p99(
    line, kept, monkeypatch, capsys
):
    monkeypatch.setattr("capplan.report.console.PIPED_WIDTH", 80)

    code = exit_code([*line.split(), "--explain"])

    shown = capsys.readouterr().out
    rows = shown.splitlines()
    assert code == 0
    # A command is one line to copy, however long.
    assert all(len(row) <= 80 or row.startswith("vllm serve ") for row in rows)
    assert any(" in time " in row for row in rows)
    assert any(all(each in row for each in kept) for row in rows)
    assert "too narrow for " in shown
