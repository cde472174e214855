"""The load test of a plan: exported, simulated as an engine, and held against it."""

import json
import re
import shlex
from itertools import pairwise

import numpy as np
import pytest

from capplan.bounds.certificate import seal
from capplan.cli.main import exit_code
from capplan.deployment.pools import Deployment
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import PlanSettings
from capplan.report.exports import load_test
from capplan.report.received.tested_plan import SHARES, load_test_of
from capplan.report.to_files import answer
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace

pytestmark = pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")

ONTO = "H100-SXM/Llama-3.1-8B/tp1"
ASKED = {
    "workload": "synthetic:prompt=lognormal(median=300,sigma=0.6),"
    "output=lognormal(median=100,sigma=0.4),n=20000",
    "rate": 260.0,
    "llm": "Llama-3.1-8B",
    "gpu": ["H100-SXM"],
    "tp": [1],
    "slo": ["ttft=1s,tpot=30ms"],
}


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """A plan of several replicas, as it was written."""
    out = tmp_path_factory.mktemp("plan")
    answer("plan", PlanSettings(**ASKED, out=str(out)))
    return out / "plan.json"


def measured(path, folder, slower=1.0, loads=SHARES, seed=5):
    """Write what vllm bench serve would of such an engine; return the folder."""
    folder.mkdir(exist_ok=True)
    test = load_test_of(path, None).test
    for load in test.loads:
        if load.share in loads:
            result = served(test.replica.slowed(slower), load, seed)
            name = f"vllm_{100 * load.share:.0f}.json"
            (folder / name).write_text(json.dumps(result))
    return folder


def served(replica, load, seed):
    """Return the JSON of a load that was sent to a replica."""
    draw, n, rate = np.random.default_rng(seed), len(load.requests), load.point[-2]
    gaps = draw.exponential(size=n)
    arrival_s = np.cumsum(gaps) * n / gaps.sum() / rate
    sent = load.requests.rows_of(draw.permutation(n)).changed(arrival_s=arrival_s)
    times = simulate(sent, Deployment.of(replica, 1)).table
    answers = sent.output_tokens
    stays_s = times.finish_s - times.first_token_s
    tpot_s = (stays_s / np.maximum(answers - 1, 1))[answers > 1]
    return {
        "backend": "vllm",
        "model_id": "meta-llama/Llama-3.1-8B-Instruct",
        "request_rate": rate,
        "burstiness": 1.0,
        "max_concurrency": None,
        "completed": n,
        "total_input_tokens": int(sent.prompt_tokens.sum()),
        "total_output_tokens": int(answers.sum()),
        "request_throughput": n / times.finish_s.max(),
        "output_throughput": answers.sum() / times.finish_s.max(),
        "mean_ttft_ms": 1e3 * float((times.first_token_s - arrival_s).mean()),
        "mean_tpot_ms": 1e3 * float(tpot_s.mean()),
    }


def as_guidellm(result):
    """Return GuideLLM's JSON of what vllm bench serve would say."""
    n = result["completed"]
    means = {
        "prompt_token_count": result["total_input_tokens"] / n,
        "output_token_count": result["total_output_tokens"] / n,
        "inter_token_latency_ms": result["mean_tpot_ms"],
        "time_to_first_token_ms": result["mean_ttft_ms"],
        "output_tokens_per_second": result["output_throughput"],
        "requests_per_second": result["request_throughput"],
    }
    strategy = {"type_": "poisson", "rate": result["request_rate"]}
    metrics = {name: {"successful": {"mean": value}} for name, value in means.items()}
    return {"benchmarks": [{"config": {"strategy": strategy}, "metrics": metrics}]}


def fit(results, path, out, *more, onto=ONTO):
    words = ["fit", "--from", results, "--onto", onto, "--plan", path, "-o", out]
    return exit_code([str(word) for word in (*words, *more)])


def verdict(capsys):
    said = " ".join(capsys.readouterr().out.split())
    return said[said.index("ed: iterations") - 4 :].partition(" requests/s ")[0]


@pytest.mark.thorough
def test_results_of_a_simulated_replica_pass(planned, tmp_path, capsys):
    count = json.loads(planned.read_text())["best"]["gpu_count"]

    code = fit(measured(planned, tmp_path / "r"), planned, tmp_path / "new.yaml")

    said = verdict(capsys)
    assert code == 0
    assert said.startswith("passed: iterations take 1.00 × what the plan assumes")
    assert f": {count} H100-SXM GPUs, $" in said
    assert said.endswith(" a month, as planned")


@pytest.mark.thorough
def test_times_a_fifth_longer_fail_and_tell_the_count_of_such_a_plan(
    planned, tmp_path, capsys
):
    slower = plan(PlanSettings(**ASKED, backtest=f"1.2[1.2,1.2]@Llama-3.1-8B/{_of()}"))
    before = json.loads(planned.read_text())["best"]["gpu_count"]

    code = fit(measured(planned, tmp_path / "r", 1.2), planned, tmp_path / "new.yaml")

    said, best = verdict(capsys), slower.best
    assert code == 1
    assert best.gpu_count > before
    assert said.startswith("failed: iterations take 1.20 × what the plan assumes")
    bill = f"${best.cost.usd_per_month:,.0f} a month"
    assert f": {best.gpu_count} H100-SXM GPUs, {bill}, in place of {before} H" in said


def _of():
    return "H100-SXM/tp1"


@pytest.mark.thorough
def test_a_late_first_token_fails_whatever_the_iterations(planned, tmp_path, capsys):
    results = measured(planned, tmp_path / "r")
    for file in results.iterdir():
        told = json.loads(file.read_text())
        file.write_text(json.dumps(told | {"mean_ttft_ms": told["mean_ttft_ms"] + 950}))

    code = fit(results, planned, tmp_path / "new.yaml")

    said = verdict(capsys)
    assert code == 1
    assert said.startswith("failed: iterations take 1.00 × what the plan assumes")
    assert "so no count holds: " in said


@pytest.mark.thorough
def test_results_of_guidellm_say_the_same(planned, tmp_path, capsys):
    results = measured(planned, tmp_path / "r")
    for file in results.iterdir():
        file.write_text(json.dumps(as_guidellm(json.loads(file.read_text()))))

    code = fit(results, planned, tmp_path / "new.yaml")

    assert code == 0
    assert verdict(capsys).startswith("passed: iterations take 1.00 × what")


@pytest.mark.thorough
def test_one_load_is_enough_and_it_may_be_one_that_is_not_kept_up_with(
    planned, tmp_path, capsys
):
    results = measured(planned, tmp_path / "r", 1.6, loads=(1.0,))

    code = fit(results, planned, tmp_path / "new.yaml")

    assert code == 1
    assert "iterations take 1.6" in verdict(capsys)


@pytest.mark.thorough
def test_the_export_has_commands_requests_and_what_to_expect(planned, tmp_path, capsys):
    out, test = tmp_path / "out", load_test_of(planned, None).test

    code = exit_code(["export", str(planned), "--to", "loadtest", "--out", str(out)])

    said = capsys.readouterr().out
    assert code == 0
    assert "(1 H100-SXM), $" in said
    assert " an hour" in said
    script = (out / "loadtest.sh").read_text().splitlines()
    lines = [line for line in script if line.startswith("vllm bench serve")]
    for load, line in zip(test.loads, map(shlex.split, lines), strict=True):
        given = dict(pairwise(line))
        sent = list(
            map(json.loads, (out / given["--dataset-path"]).read_text().splitlines())
        )
        assert len(sent) == int(given["--num-prompts"])
        assert float(given["--request-rate"]) == load.point.rate_per_s
        assert [len(x["prompt"].split()) for x in sent] == list(
            load.requests.prompt_tokens
        )
        assert [x["output_tokens"] for x in sent] == list(load.requests.output_tokens)
    shown = re.findall(r"TPOT ([\d.]+) \(([\d.]+) to ([\d.]+)\) ms", said)
    assert len(shown) == 3
    assert all(float(x[1]) < float(x[0]) < float(x[2]) for x in shown)
    assert f"--onto {ONTO} --plan {planned} --out mine.yaml" in said


@pytest.mark.thorough
def test_prompts_of_a_group_begin_with_as_many_tokens_and_no_others_do():
    shared = {"prefix_group": [0, -1, 0], "prefix_tokens": [20, 0, 20]}
    trace = Trace([50, 50, 60], [3, 4, 5], **shared)

    first, other, second = (
        json.loads(line)["prompt"].split() for line in load_test._lines(trace, 0)
    )

    assert first[:20] == second[:20]
    assert first[20:36] != second[20:36]
    assert other[:16] != first[:16]


def test_a_test_at_no_load_of_the_plan_is_refused(planned, tmp_path, capsys):
    results = measured(planned, tmp_path / "r", loads=(0.5,))
    (file,) = results.iterdir()
    told = json.loads(file.read_text())
    file.write_text(json.dumps(told | {"request_rate": 1.5 * told["request_rate"]}))

    code = fit(results, planned, tmp_path / "new.yaml")

    assert code == 2
    assert f"requests/s; expected those of {planned}: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "onto", "why"),
    [
        ({"model_id": "Qwen/Qwen3-8B"}, ONTO, "model_id is Qwen/Qwen3-8B (expected"),
        ({"total_input_tokens": 9_000_000_000}, ONTO, "tokens; expected the requests "),
        ({}, "H100-SXM/Llama-3.1-8B/tp2", f"is of {ONTO}"),
        ({}, "A100-80GB-SXM/Llama-3.1-8B/tp1", f"is of {ONTO}"),
    ],
)
def test_results_of_others_are_one_line(planned, tmp_path, capsys, change, onto, why):
    results = measured(planned, tmp_path / "r", loads=(0.5,))
    (file,) = results.iterdir()
    file.write_text(json.dumps(json.loads(file.read_text()) | change))

    code = fit(results, planned, tmp_path / "new.yaml", onto=onto)

    said = capsys.readouterr().err
    assert code == 2
    assert said.startswith("capplan: error: ")
    assert said.count("\n") == 1
    assert why in said


def test_files_of_a_plan_without_one_are_one_line(tmp_path, capsys):
    words = ["fit", "--from", "r", "--onto", ONTO, "--trace", "t.csv", "-o", "n.yaml"]

    code = exit_code(words)

    assert code == 2
    said = "capplan: error: --trace is of a plan; give --plan too, or leave it out\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"best": None, "status": "infeasible"}, "no replica to test: infeasible: "),
        ({"mix": {"offered": True}}, "its replicas are of several kinds; a load test "),
    ],
)
def test_plans_without_one_kind_of_replica_are_one_line(
    planned, tmp_path, capsys, change, why
):
    results, path = measured(planned, tmp_path / "r", loads=(0.5,)), tmp_path / "p.json"
    document = json.loads(planned.read_text()) | change
    path.write_text(json.dumps(seal(document) if document["best"] else document))

    code = fit(results, path, tmp_path / "new.yaml")

    said = capsys.readouterr().err
    assert code == 2
    assert said.count("\n") == 1
    assert why in said


@pytest.mark.vllm
def test_each_flag_of_the_commands_is_one_of_vllm_bench_serve(planned):
    serve = pytest.importorskip("vllm.benchmarks.serve", reason="needs vLLM")
    from argparse import ArgumentParser

    parser = ArgumentParser()
    serve.add_cli_args(parser)
    loads = load_test_of(planned, None).test.loads
    lines = load_test.commands(load_test._VLLM, loads, "org/llm").splitlines()
    for load, line in zip(loads, lines, strict=True):
        given = parser.parse_args(shlex.split(line)[3:])
        assert given.request_rate == load.point.rate_per_s
        assert given.custom_output_len == -1
