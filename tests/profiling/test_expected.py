"""A dry run knows the points and about how long they take."""

from itertools import product

import pytest

from capplan.errors import InputError
from capplan.fleet.catalog import gpu
from capplan.latency.roofline import roofline_profile
from capplan.llm.catalog import llm
from capplan.profiling.expected import (
    expected_facts,
    expected_latency,
    expected_s,
    graph_batches,
    scene_iterations,
)
from capplan.profiling.plan import density, plan_profile
from capplan.profiling.runner import profile
from capplan.profiling.scenes import Ladder, Point, Prompts, Rung
from capplan.profiling.settings import ProfileSettings


def settings(out, **given):
    common = {"llm": "Llama-3.1-8B", "gpu": "H100-SXM", "out": out}
    return ProfileSettings(**common | given)


@pytest.mark.parametrize(
    ("gpu_name", "tp"),
    [
        *product(["H100-SXM", "H200-SXM", "A100-80GB-SXM"], [1, 2, 4, 8]),
        # All-reduces of more GPUs over PCIe make it half an hour.
        *product(["L40S"], [1, 2]),
    ],
)
def test_an_8b_model_takes_less_than_ten_minutes_at_default_density(
    tmp_path, gpu_name, tp
):
    how = density("default")
    request = settings(tmp_path, gpu=gpu_name)

    plan = plan_profile(expected_facts(request, tp), how)

    assert 60 < expected_s(plan, how, expected_latency(request, tp)) < 600


def test_limits_are_those_that_vllm_serve_chooses(tmp_path):
    facts = expected_facts(settings(tmp_path, max_num_seqs=64), 1)

    assert facts.max_num_batched_tokens == 8192
    assert facts.max_num_seqs == 64
    assert facts.graph_batches[-1] == 128


def test_vllm_captures_graphs_up_to_512():
    # vLLM 0.32: 1, 2, 4, by 8 below 256, by 16 up to min(2 * max_num_seqs, 512).
    sizes = graph_batches(1024)

    assert sizes[:5] == (1, 2, 4, 8, 16)
    assert sizes[-3:] == (480, 496, 512)
    assert len(sizes) == 51


def test_prompts_are_run_once_to_warm_up():
    iterations = scene_iterations(Prompts(1, 3000, 2), 2048)

    assert len(iterations) == 3 * 2


def test_a_ladder_is_filled_before_it_is_climbed_down():
    ladder = Ladder(1000, (Rung(8, (64,)), Rung(1)), 3)

    iterations = scene_iterations(ladder, 2048)

    # 8000 tokens are four budgets; then 9 iterations of 8 and 6 of 1.
    assert [point.phase for point in iterations[:5]] == ["prefill"] * 4 + ["decode"]
    assert len(iterations) == 4 + ladder.iterations == 4 + 15
    assert iterations[-1] == Point("decode", 1, 1, 1013)


def test_the_expected_time_is_the_sum_of_its_iterations(tmp_path):
    # A model of constant iterations: 30 ms each, whatever they hold.
    latency = roofline_profile(llm("Llama-3.1-8B"), gpu("H100-SXM"), 1)
    decode = latency.decode.model_copy(
        update={"batch_s": [0.03] * len(latency.decode.batch), "per_context_s": 0.0}
    )
    fused = latency.fused.model_copy(
        update={
            "tokens_s": [0.03] * len(latency.fused.tokens),
            "per_context_s": 0.0,
            "attention_s": 0.0,
        }
    )
    constant = latency.model_copy(update={"decode": decode, "fused": fused})
    how = density("coarse")
    plan = plan_profile(expected_facts(settings(tmp_path), 1), how)
    count = sum(
        len(scene_iterations(scene, plan.budget_tokens)) for scene in plan.scenes
    )

    assert expected_s(plan, how, constant) == pytest.approx(how.rounds * count * 0.03)


def test_a_dry_run_without_a_gpu_asks_for_one(tmp_path):
    with pytest.raises(InputError, match="needs --gpu"):
        expected_facts(settings(tmp_path, gpu=None), 1)


def test_a_model_that_does_not_fit_is_said(tmp_path):
    request = settings(tmp_path, llm="Llama-3.1-70B", gpu="L4")

    with pytest.raises(InputError, match="does not fit on L4 at TP 1"):
        expected_facts(request, 1)


def test_an_earlier_start_tells_the_limits(lawful, tmp_path):
    earlier = {"llm": "llm-7b", "backend": lawful, "gpu": "A100", "density": "coarse"}
    request = settings(tmp_path, **earlier)
    profile(request, lambda *progress: None)

    assert expected_facts(request, 1).backend == "lawful"
