"""Layouts of an engine's GPUs: what they hold, their names, and what is refused."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.deployment.engine import EngineSettings
from capplan.deployment.memory import MemoryShare, memory_budget
from capplan.errors import InputError
from capplan.fleet.catalog import gpu
from capplan.llm.catalog import llm
from capplan.llm.layout import Layout, check_mtp, parse_layout

R1 = "DeepSeek-R1"
EXPERT_BYTES = 3 * 7168 * 2048 * (1 + 4 / 128**2)
"""An expert of DeepSeek-R1 in FP8, with a scale of four bytes for 128 x 128."""
GIB = 2**30


def kv_tokens(layout: Layout, gpu_name: str) -> float:
    """Tokens of FP8 KV on a rank of DeepSeek-R1."""
    model = llm(R1)
    budget = memory_budget(
        model, gpu(gpu_name), layout, EngineSettings(), MemoryShare(has_graphs=False)
    )
    return budget.kv_bytes / model.kv_bytes_per_token_per_gpu(layout.tp, "fp8")


@pytest.mark.parametrize(("name", "published_gib"), [("tp8", 84.6), ("dp8-ep8", 96.9)])
def test_weights_of_a_rank_are_aiconfigurators_within_2_percent(name, published_gib):
    # aiconfigurator-core 0.12 counts experts in all 61 layers; the first 3 have none.
    none_there_gib = 3 * 256 * EXPERT_BYTES / 8 / GIB
    layout, model = parse_layout(name), llm(R1)

    weights_bytes = model.weight_bytes_per_gpu(
        layout.tp, expert_gpus=layout.expert_gpus(model.experts)
    )

    assert weights_bytes / GIB == pytest.approx(
        published_gib - none_there_gib, rel=0.02
    )


@pytest.mark.parametrize(
    ("gpu_name", "tp8", "dp8", "times"),
    [
        ("H200-SXM", 1_065_619, 645_371, 4.8),
        ("B200-SXM", 2_162_097, 1_741_849, 6.4),
    ],
)
def test_kv_of_deepseek_r1_is_aiconfigurators_or_up_to_30_percent_more(
    gpu_name, tp8, dp8, times
):
    alone, ranks = (
        kv_tokens(parse_layout(name), gpu_name) for name in ("tp8", "dp8-ep8")
    )

    # Its weights are 3.9 GiB too many, see above; on a rank vLLM holds the
    # up-projections of all heads twice, and expands 65,536 tokens of context by them.
    assert 1.0 <= alone / tp8 <= 1.3
    assert 1.0 <= ranks / dp8 <= 1.3
    assert 8 * ranks / alone == pytest.approx(times, rel=0.06)


def test_experts_of_all_ranks_are_spread_over_all_gpus():
    model = llm(R1)
    dense_bytes = model.weight_bytes_per_gpu(1, expert_gpus=float("inf"))
    ep8 = model.weight_bytes_per_gpu(1, expert_gpus=8)
    ep16 = model.weight_bytes_per_gpu(1, expert_gpus=16)

    assert ep8 - dense_bytes == pytest.approx(58 * 256 * EXPERT_BYTES / 8)
    assert ep16 - dense_bytes == pytest.approx(58 * 256 * EXPERT_BYTES / 16)


def test_redundant_experts_take_their_share_of_memory():
    layout = Layout(1, 32, 32, redundant_experts=32)

    gpus = layout.expert_gpus(256)

    # 288 experts on 32 GPUs are 9 each.
    assert Fraction(256) / Fraction(gpus).limit_denominator(10**6) == 9


@given(
    st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8, 16]), st.integers(0, 7)
)
def test_a_layout_is_read_from_its_own_name(tp, dp, power):
    ep = 2**power
    if tp * dp % ep:
        with pytest.raises(InputError, match="does not divide the"):
            Layout(tp, dp, ep)
        return
    layout = Layout(tp, dp, ep)

    assert parse_layout(str(layout)) == layout
    assert layout.gpus == tp * dp
    assert layout.gpus % layout.ep == 0


def test_names_are_those_of_the_files_of_profiles():
    assert str(Layout(8)) == "tp8"
    assert str(Layout(8, 1, 8)) == "tp8-ep8"
    assert str(Layout(1, 8, 8)) == "dp8-ep8"
    assert str(Layout(2, 4)) == "tp2-dp4"
    for wrong in (
        "",
        "-",
        "ep",
        "8",
        "dp8ep8",
        "tp8-",
        "-dp8",
        "tp8-sp2",
        "ep8-tp8",
        "dp8--ep8",
    ):
        with pytest.raises(InputError, match="no layout"):
            parse_layout(wrong)


@pytest.mark.parametrize("layout", [Layout(8), Layout(4, 2), Layout(1, 8, 8)])
def test_a_layout_without_ep_and_dp_weighs_what_tp_does(layout):
    model = llm(R1)

    bytes_per_gpu = model.weight_bytes_per_gpu(
        layout.tp, expert_gpus=layout.expert_gpus(model.experts)
    )

    plain = model.weight_bytes_per_gpu(layout.tp)
    assert (bytes_per_gpu == plain) == (layout.dp == 1)
    assert bytes_per_gpu <= plain


@pytest.mark.parametrize(
    ("layout", "name", "message"),
    [
        (
            Layout(2, 4),
            "Llama-3.1-8B",
            "has no experts, so DP 4 is 4 replicas .* expected --replicas 4 of TP 2",
        ),
        (Layout(8, 1, 8), "Llama-3.1-8B", "no experts for EP 8; expected TP 8 alone"),
        (
            Layout(1, 48, 48),
            R1,
            "256 experts; EP 48 does not divide them; expected EP 16, or 32 redund",
        ),
        (
            Layout(1, 32, 32, redundant_experts=16),
            R1,
            "with 16 redundant ones EP 32 .* expected 32 redundant",
        ),
        (Layout(3, 8, 8), R1, "128 attention heads; TP 3 does not divide"),
    ],
)
def test_what_an_llm_cannot_have_is_refused_with_the_nearest_that_it_can(
    layout, name, message
):
    with pytest.raises(InputError, match=message):
        layout.check(llm(name))


def test_what_is_named_in_a_refusal_is_accepted():
    Layout(1, 48, 16).check(llm(R1))
    Layout(1, 48, 48, redundant_experts=32).check(llm(R1))
    Layout(1, 32, 32, redundant_experts=32).check(llm(R1))


def test_redundant_experts_without_ep_are_refused():
    with pytest.raises(InputError, match=r"need expert parallelism; expected EP 8"):
        Layout(8, redundant_experts=8)
    with pytest.raises(InputError, match="redundant_experts is -1"):
        Layout(8, 1, 8, redundant_experts=-1)
    with pytest.raises(InputError, match="dp is 0"):
        Layout(8, 0)
    with pytest.raises(
        InputError, match=r"EP 5 does not divide the 8 .* expected EP 4"
    ):
        Layout(8, 1, 5)


def test_mtp_needs_the_layer():
    check_mtp(llm("DeepSeek-R1"), 3)
    check_mtp(llm("Qwen3.5-397B-A17B"), 1)
    check_mtp(llm("Kimi-K2.5"), 0)
    with pytest.raises(InputError, match=r"Kimi-K2\.5 has no layer for multi-token"):
        check_mtp(llm("Kimi-K2.5"), 1)
    with pytest.raises(InputError, match="drafts -1 tokens"):
        check_mtp(llm("DeepSeek-R1"), -1)
