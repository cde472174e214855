"""plan, simulate and search, end to end on a small trace."""

import csv
import gzip
import hashlib
import json

import numpy as np
import pytest

import capplan
from capplan.cli.main import exit_code
from capplan.errors import InputError

COST = "--latency-ms 10,0.05,0,0.1,0.0001 --kv-blocks 2000 --max-num-seqs 64"
SERVED = "--llm Llama-3.1-8B --gpu H100-SXM --tp 1 --price H100-SXM=2.5"
SLO = "--slo ttft=1s,tpot=30ms"
SHIPPED = "--workload sharegpt --rate 1 --slo ttft=1s"


def run(command):
    return exit_code(command.split())


@pytest.fixture
def trace(tmp_path):
    """1,500 requests at 20 a second, 100 to 300 prompt and 10 to 60 output tokens."""
    rng = np.random.default_rng(1)
    path = tmp_path / "own.csv"
    arrival_s = np.cumsum(rng.exponential(0.05, 1500))
    rows = zip(
        arrival_s.round(6),
        rng.integers(100, 300, 1500),
        rng.integers(10, 60, 1500),
        strict=True,
    )
    with path.open("w") as stream:
        stream.write("arrival_s,prompt_tokens,output_tokens\n")
        stream.writelines(f"{a},{p},{o}\n" for a, p, o in rows)
    return path


def test_plan_writes_its_files_and_prints_the_answer(trace, tmp_path, capsys):
    out = tmp_path / "out"

    code = run(f"plan --trace {trace} {SERVED} {COST} {SLO} --out {out}")

    shown = capsys.readouterr().out
    document = json.loads((out / "plan.json").read_text())
    best = document["best"]
    assert code == 0
    assert shown.startswith(f"Rent {best['gpu_count']} H100-SXM GPU")
    assert sorted(p.name for p in out.iterdir()) == [
        "bills.csv",
        "counts.csv",
        "explained.json",
        "lengths.csv",
        "plan.csv",
        "plan.focus.csv",
        "plan.json",
        "plan.md",
        "report.html",
        "report.md",
        "throughput.csv",
        "traffic.csv",
        "ways.csv",
    ]
    assert document["trace_sha256"] == hashlib.sha256(trace.read_bytes()).hexdigest()
    assert best["usd_per_h"] == 2.5 * best["gpu_count"]
    assert best["lower_bound_gpu_count"] <= best["gpu_count"]
    with (out / "plan.csv").open() as stream:
        first = next(csv.DictReader(stream))
    assert int(first["gpu_count"]) == best["gpu_count"]


def test_an_slo_below_the_unbatched_latency_is_an_answer_and_exit_3(
    trace, tmp_path, capsys
):
    out = tmp_path / "out"

    code = run(f"plan --trace {trace} {SERVED} {COST} --slo tpot=5ms --out {out}")

    document = json.loads((out / "plan.json").read_text())
    assert code == 3
    assert capsys.readouterr().out.startswith("No GPU named here holds tpot ≤ 5 ms.")
    assert document["status"] == "infeasible"
    assert "TPOT" in document["infeasible_reason"]


def test_the_same_plan_in_python_and_in_a_scenario(trace, tmp_path, capsys):
    settings = {
        "trace": trace.name,
        "llm": "Llama-3.1-8B",
        "gpu": "H100-SXM",
        "tp": 1,
        "latency_ms": [10, 0.05, 0, 0.1, 0.0001],
        "kv_blocks": 2000,
        "max_num_seqs": 64,
        "slo": "ttft=1s,tpot=30ms",
    }
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text("\n".join(f"{key}: {value}" for key, value in settings.items()))

    code = run(f"plan {scenario} --out {tmp_path / 'a'}")
    capplan.plan(**{**settings, "trace": str(trace), "out": str(tmp_path / "b")})

    capsys.readouterr()
    assert code == 0
    for name in ("plan.json", "plan.csv", "report.html"):
        assert (tmp_path / "a" / name).read_bytes() == (
            tmp_path / "b" / name
        ).read_bytes()


def test_simulate_writes_what_is_asked_of_it(trace, tmp_path, capsys):
    iterations, requests = tmp_path / "it.csv", tmp_path / "requests.csv.gz"
    events, out = tmp_path / "events.json", tmp_path / "out"

    code = run(
        f"simulate --trace {trace} --tp 1 {COST} {SLO} --replicas 2 --out {out} "
        f"--record-iterations {iterations} --per-request {requests} "
        f"--trace-events {events}"
    )

    shown = capsys.readouterr().out
    document = json.loads((out / "simulation.json").read_text())
    with gzip.open(requests, "rt") as stream:
        rows = list(csv.DictReader(stream))
    assert code == 0
    assert shown.startswith("2 GPUs = 2 replicas × 1 (TP 1)")
    assert len(rows) == document["request_count"] == 1500
    assert iterations.read_text().startswith("it,sched_s,start_s,end_s,ctx_reqs")
    assert json.loads(events.read_text())["traceEvents"]
    assert (
        "<h1>2 GPUs = 2 replicas × 1 (TP 1)</h1>" in (out / "report.html").read_text()
    )


def test_what_was_read_of_a_trace_is_told_on_standard_error(trace, capsys):
    given = f"simulate --trace {trace} --tp 1 {COST} {SLO} --replicas 2"

    run(given)
    told = capsys.readouterr()
    run(f"{given} --quiet")

    assert f"capplan: {trace}: 1,500 requests over" in told.err
    assert "1 class, no sessions" in told.err
    assert "requests over 75 s (20/s)" not in capsys.readouterr().err


def test_a_recorded_iteration_computes_every_token_once(trace, tmp_path, capsys):
    path = tmp_path / "it.csv"

    run(f"simulate --trace {trace} {COST} --record-iterations {path}")

    capsys.readouterr()
    with path.open() as stream:
        rows = list(csv.DictReader(stream))
    with trace.open() as stream:
        asked = list(csv.DictReader(stream))
    assert sum(int(row["preempted"] or 0) for row in rows) == 0
    assert sum(int(row["ctx_tokens"]) for row in rows) == sum(
        int(row["prompt_tokens"]) for row in asked
    )
    assert sum(int(row["gen_reqs"]) for row in rows) == sum(
        int(row["output_tokens"]) - 1 for row in asked
    )


def test_search_names_the_degree_with_its_reason(trace, tmp_path, capsys):
    out = tmp_path / "out"

    code = run(
        f"search --trace {trace} --llm Llama-3.1-8B --gpu H100-SXM --tp 1,2 "
        f"--slo tpot=30ms --out {out}"
    )

    lines = capsys.readouterr().out.splitlines()
    document = json.loads((out / "search.json").read_text())
    best = document["found"]["best"]
    assert code == 0
    assert lines[0].startswith(f"{best['gpu']} × TP {best['tp']}")
    assert "output tokens/s per GPU, limited by" in lines[1]
    assert len(document["found"]["rows"]) == 2


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (f"plan {SERVED} {SLO}", "give --trace FILE, --workload NAME, or --input-len"),
        (f"plan --trace no.csv {SERVED} {SLO}", "no.csv"),
        (f"plan --workload sharegt {SERVED} {SLO}", "sharegpt"),
        (f"plan --workload sharegpt {SERVED}", "give --slo"),
        (f"plan --workload sharegpt {SERVED} {SLO}", "give --rate"),
        (f"plan {SHIPPED}", "give --llm"),
        (f"plan {SHIPPED} --llm Llama-3.1-9B", "Llama-3.1-8B"),
        (f"plan {SHIPPED} --llm Llama-3.1-8B --gpu H100-SMX", "H100-SXM"),
        (f"plan {SHIPPED} --llm Llama-3.1-8B --router jsp", "jsq"),
        (f"simulate {SHIPPED} --per-request no/x.csv", "no is not a folder"),
    ],
)
def test_what_is_missing_or_unknown_is_one_line_with_what_would_do(
    capsys, command, expected
):
    code = run(command)

    shown = capsys.readouterr()
    assert code == 2
    assert shown.err.startswith("capplan: error: ")
    assert shown.err.count("\n") == 1
    assert expected in shown.err


def test_python_refuses_an_unknown_setting_with_the_nearest():
    with pytest.raises(InputError, match="did you mean rate"):
        capplan.plan(rat=3)
