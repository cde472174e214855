"""Requests typed as lengths, and the KV that holds them as vLLM logs it."""

import json

import pytest

from capplan.cli.main import exit_code
from capplan.deployment.engine import EngineSettings
from capplan.errors import InputError
from capplan.planning.load.traffic import read_requests
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import PlanSettings, SimulateSettings

COST = {"latency_ms": "9,0.04,0,0.08,0.00005", "kv_blocks": 30_735, "tp": 1}
KV = f"--latency-ms {COST['latency_ms']} --kv-blocks 30735 --tp 1"


def asked(**given):
    return read_requests(SimulateSettings(**given, **COST))


def test_one_number_is_the_length_of_all_requests():
    trace = asked(input_len="8000", output_len="2000")

    assert set(trace.prompt_tokens) == {8000}
    assert set(trace.output_tokens) == {2000}


def test_a_deviation_makes_lengths_normal_and_cut_at_one():
    trace = asked(input_len="8000:800", output_len="5:20")

    prompts, outputs = trace.prompt_tokens, trace.output_tokens
    assert prompts.mean() == pytest.approx(8000, abs=4 * 800 / len(trace) ** 0.5)
    assert prompts.std() == pytest.approx(800, rel=0.05)
    assert outputs.min() == 1
    assert (outputs == 1).mean() == pytest.approx(0.43, abs=0.02)  # P(x < 1.5)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"input_len": "8000"}, "input_len without output_len"),
        ({"output_len": "8000"}, "output_len without input_len"),
        (
            {"input_len": "8", "output_len": "2", "workload": "sharegpt"},
            "workload and input_len are both given",
        ),
        (
            {"input_len": "8", "output_len": "2", "trace": "x.csv"},
            "trace and input_len are both given",
        ),
        *(
            ({"input_len": text, "output_len": "2"}, "8000:800")
            for text in ("0", "8k", "8:", "-3", "8:-1", "uniform(low=1,high=2)", "")
        ),
    ],
)
def test_lengths_that_are_none_are_refused(given, said):
    with pytest.raises(InputError, match=said):
        asked(**given)


def test_prompts_answers_and_users_are_asked_without_a_file(capsys):
    command = f"simulate --input-len 800 --output-len 200 --users 48 {KV}"

    assert exit_code([*command.split(), "--format", "json"]) == 0
    run = json.loads(capsys.readouterr().out)

    assert (run["mean_prompt_tokens"], run["mean_output_tokens"]) == (800, 200)
    assert "asked by 48 users" in " ".join(run["trace_notes"])
    assert run["rate_per_s"] * run["latency"]["e2e_s"]["mean"] == pytest.approx(
        48, rel=0.03
    )


def test_kv_tokens_are_told_as_vllm_logs_them(capsys):
    command = f"simulate --input-len 800 --output-len 200 --users 2 {KV}"

    assert exit_code(command.split()) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert exit_code([*command.split(), "--format", "json"]) == 0
    run = json.loads(capsys.readouterr().out)

    assert "491,760 tokens a replica: 1 request of 491,760 tokens" in said
    assert "488 requests of 1,000 tokens" in said
    assert (run["kv_tokens"], run["requests_at_max_model_len"]) == (491_760, 1.0)


def test_requests_of_the_longest_context_are_those_that_vllm_logs():
    # "GPU KV cache size: 491,760 tokens"
    # "Maximum concurrency for 8,192 tokens per request: 60.03x"
    engine = EngineSettings(kv_blocks=30_735, block_size=16, max_model_len=8192)

    assert engine.kv_tokens == 491_760
    assert engine.requests_at_max_model_len == pytest.approx(60.03, abs=0.005)


@pytest.mark.thorough
def test_the_mean_lengths_of_a_plan_are_those_of_its_workload():
    mix = "synthetic:prompt=lognormal(median=200,sigma=1),output=50,n=700"
    workload = read_requests(SimulateSettings(workload=mix, **COST))

    told = {
        plan(
            PlanSettings(
                workload=mix,
                rate=rate,
                slo="ttft=2s,tpot=50ms",
                llm="Llama-3.1-8B",
                **COST,
            )
        ).mean_prompt_tokens
        for rate in (1.0, 7.0)
    }

    assert told == {float(workload.prompt_tokens.mean())}
