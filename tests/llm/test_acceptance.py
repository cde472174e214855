"""Measured acceptance of drafts: tables, families, and what a draft adds to an LLM."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.llm.acceptance import (
    draft_share,
    drafted_llm,
    has_mtp_layer,
    measured_acceptance,
    pooled,
    rates_of_lengths,
)
from capplan.llm.catalog import llm


@pytest.mark.parametrize(
    ("name", "method", "rates"),
    [
        ("DeepSeek-V4-Pro", "mtp", (0.79, 0.48, 0.22)),
        ("GLM-5.2", "mtp", (0.84, 0.66, 0.49)),
        ("Kimi-K2.5", "eagle3", (0.83, 0.60, 0.45)),
        ("Qwen3.5-397B-A17B", "mtp", (0.93, 0.80, 0.66)),
    ],
)
def test_the_rates_of_a_table_are_the_differences_of_its_lengths(name, method, rates):
    found = measured_acceptance(name, method, 3)

    assert found.is_own
    assert found.rates == pytest.approx(rates, abs=1e-9)


def test_deepseek_r1_takes_the_table_of_v4():
    found = measured_acceptance("DeepSeek-R1", "mtp", 3)

    assert not found.is_own
    assert found.measured_on == "deepseek-v4-pro"
    assert sum(found.rates) == pytest.approx(1.49)


def test_of_two_tables_the_one_with_fewer_tokens_counts():
    # 2.78 tokens with three drafts in one run of MiniMax-M3, 2.83 in the other.
    found = measured_acceptance("MiniMax-M3", "eagle3", 3)

    assert 1 + sum(found.rates) == pytest.approx(2.78)
    assert found.run == 29784780049


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("Llama-3.1-8B", "eagle3"),
        ("DeepSeek-R1", "eagle3"),
        ("DeepSeek-V2-Lite", "mtp"),
    ],
)
def test_other_llms_have_no_table(name, method):
    assert measured_acceptance(name, method, 3) is None


def test_a_length_that_falls_is_pooled_with_its_neighbours():
    # 3.91, 3.70, 3.90: rates -0.21 and 0.20 become their mean, never below 0.
    rates = rates_of_lengths([1.9, 2.7, 2.5, 2.7])

    assert rates == pytest.approx((0.9, 0.8, 0.0, 0.0))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_pooling_leaves_what_does_not_rise_and_keeps_the_sum(values):
    rates = pooled(values)

    assert all(a >= b - 1e-8 for a, b in pairwise(rates))
    assert sum(rates) == pytest.approx(sum(values), abs=1e-7)
    falling = tuple(sorted(rates, reverse=True))
    assert pooled(list(falling)) == pytest.approx(falling, abs=1e-8)


def test_the_mtp_layer_of_deepseek_r1_weighs_what_one_of_its_expert_layers_does():
    # 256 + 1 experts of three matrices 7168 by 2048, in 8 bits: 11.3 GB, and attention.
    one = llm("DeepSeek-R1")
    more = drafted_llm(one, "mtp").weight_bytes() - one.weight_bytes()

    assert more == pytest.approx(257 * 3 * 7168 * 2048, rel=0.03)
    assert drafted_llm(one, "mtp").kv_bytes_per_token() == pytest.approx(
        one.kv_bytes_per_token() * 62 / 61
    )


def test_the_draft_of_eagle_has_no_experts():
    one = llm("DeepSeek-R1")
    eagle, mtp = (drafted_llm(one, kind).weight_bytes() for kind in ("eagle3", "mtp"))

    assert eagle - one.weight_bytes() < 0.1 * (mtp - one.weight_bytes())


def test_a_draft_pass_reads_one_layer_and_the_head():
    # Llama-3.1-8B: a layer of 218 M and the head of 525 M over 7.50 G parameters.
    assert draft_share(llm("Llama-3.1-8B"), "eagle3", "bf16") == pytest.approx(
        (218.1 + 525.3) / 7504.9, rel=0.01
    )


def test_llms_with_a_layer_for_multi_token_prediction():
    assert has_mtp_layer("DeepSeek-R1")
    assert has_mtp_layer("Qwen3.5-397B-A17B")
    assert not has_mtp_layer("Llama-3.1-8B")
    assert not has_mtp_layer("DeepSeek-V2-Lite")
