"""The work of a request against the theorem summed step by step."""

from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.bounds.prices import IterationPrices
from capplan.bounds.work import Requests, request_work
from capplan.deployment.engine import EngineSettings

ENGINE = EngineSettings(max_num_batched_tokens=64, max_num_seqs=8, kv_blocks=30)
PRICE = st.floats(0, 1e-2)


def request(prompt, output, tpot_s=0.02):
    """Return one request that has only a TPOT limit."""
    columns = (0.0, prompt, output, 0.0, np.inf, tpot_s, np.inf)
    return Requests(*(np.array([float(value)]) for value in columns))


def theorem_s(prompt, output, tpot_s, prices, mix, cap, l_s):
    """Return the work of the theorem for one price l, step by step."""
    fixed_s, decode_s, context_s, prefill_s, attention_s = prices
    total_s = prefill_s * prompt + attention_s * prompt**2 / 2
    for c in range(prompt + 1, prompt + output):
        u = decode_s + context_s * c
        v = decode_s + context_s * min(c, cap)
        r = prefill_s * c + attention_s * c**2 / 2
        total_s += min(u + 2 * sqrt(mix[0] * fixed_s * l_s * v), r)
        total_s -= (tpot_s - fixed_s) * l_s
        total_s += mix[1] * fixed_s / ENGINE.max_num_seqs
        total_s += mix[2] * fixed_s * c / ENGINE.kv_capacity_tokens
    return total_s


@settings(max_examples=200)
@given(
    prompt=st.integers(1, 20),
    output=st.integers(1, 20),
    tpot_s=st.floats(5e-3, 0.1),
    prices=st.tuples(st.floats(0, 4e-3), PRICE, PRICE, PRICE, st.floats(0, 1e-4)),
    mix=st.sampled_from([(1.0, 0.0, 0.0), (0.0, 0.5, 0.5), (0.5, 0.0, 0.5)]),
    cap=st.floats(2, 40),
)
def test_work_is_at_most_the_theorem_and_exact_without_attention(
    prompt, output, tpot_s, prices, mix, cap
):
    prices = IterationPrices._make(prices)
    steps = range(prompt + 1, prompt + output)
    v = [prices.decode_s + prices.context_s * min(c, cap) for c in steps]
    mean_square_s = (sum(map(sqrt, v)) / max(len(v), 1)) ** 2
    l_s = mix[0] * prices.fixed_s * mean_square_s / (tpot_s - prices.fixed_s) ** 2

    work = request_work(request(prompt, output, tpot_s), prices, ENGINE, mix, cap)

    served_s = theorem_s(prompt, output, tpot_s, prices, mix, cap, 0.0)
    within_slo_s = theorem_s(prompt, output, tpot_s, prices, mix, cap, l_s)
    assert work.base_s[0] <= served_s * (1 + 1e-9) + 1e-12
    assert work.work_s[0] <= max(served_s, within_slo_s) * (1 + 1e-6) + 1e-12
    if prices.attention_s == 0:
        assert work.base_s[0] == pytest.approx(served_s, abs=1e-12)


def test_steps_cost_what_recomputation_costs_where_that_is_cheaper():
    # Decode 3 ms; recomputing contexts 2, 3, 4 at 1 ms a token takes 2, 3, 4 ms.
    prices = IterationPrices(0.0, 3e-3, 0.0, 1e-3, 0.0)

    work = request_work(request(1, 4), prices, ENGINE, (0.0, 1.0, 0.0), 100.0)

    assert work.work_s[0] == pytest.approx(1e-3 + (2 + 3 + 3) * 1e-3)


def test_a_step_collects_its_share_of_the_fixed_time_by_batch_and_kv():
    # Contexts 11 and 12 of 464 KV tokens, batches of 8; 4 ms fixed, half by each.
    prices = IterationPrices(4e-3, 0.0, 0.0, 1.0, 0.0)

    work = request_work(request(10, 3), prices, ENGINE, (0.0, 0.5, 0.5), 100.0)

    shares_s = 2e-3 * (2 / 8 + (11 + 12) / 464)
    assert work.work_s[0] == pytest.approx(10 + shares_s)


def test_cached_tokens_save_nothing_without_prefix_caching():
    prices = IterationPrices(0.0, 0.0, 0.0, 1e-3, 0.0)
    cached = request(10, 1)._replace(cached_tokens=np.array([4.0]))

    without = request_work(cached, prices, ENGINE, (1.0, 0.0, 0.0), 100.0)
    caching = EngineSettings(prefix_caching=True)
    with_hits = request_work(cached, prices, caching, (1.0, 0.0, 0.0), 100.0)

    assert without.work_s[0] == pytest.approx(10e-3)
    assert with_hits.work_s[0] == pytest.approx(6e-3)
