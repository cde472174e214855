from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.errors import InputError
from capplan.latency.contract import linear_tables
from capplan.planning.size.search import (
    TpOption,
    mean_context_tokens,
    search_tp,
)


def option(gpu="G", tp=1, *, fixed=10e-3, per_request=1e-3, context=0.0, **fields):
    """Return an option whose decode iteration takes fixed + b·per_request + …"""
    tables = linear_tables(
        fixed, 0, 0, per_request, context, max_batch=100, max_tokens=8
    )
    return TpOption(gpu, tp, tables, **({"kv_capacity_tokens": 10**9} | fields))


def only(found):
    return found.rows[0]


def test_full_kv_binds_by_hand():
    # M / m_r = 2,000 / 100 = 20 requests, 10 + 20 = 30 ms: 20 / 30 ms over 2 GPUs
    row = only(
        search_tp(
            [option(tp=2, kv_capacity_tokens=2000)],
            context_tokens=100,
            slo_tpot_s=50e-3,
        )
    )

    assert (row.binding, row.kv_batch, row.batch, row.tpot_batch) == ("KV", 20, 20, 40)
    assert row.iteration_s == pytest.approx(30e-3)
    assert row.kv_tokens_per_s_per_gpu == pytest.approx(20 / 30e-3 / 2)
    assert row.tokens_per_s_per_gpu == row.kv_tokens_per_s_per_gpu


def test_the_tpot_slo_binds_by_hand():
    # 10 + b = 50 ms at b = 40: 40 / 50 ms
    row = only(
        search_tp(
            [option(kv_capacity_tokens=9000)], context_tokens=100, slo_tpot_s=50e-3
        )
    )

    assert (row.binding, row.kv_batch, row.batch) == ("TPOT", 90, 40)
    assert row.tokens_per_s_per_gpu == pytest.approx(40 / 50e-3)


def test_the_context_of_the_batch_takes_time_too():
    # 10 ms + b·(1 ms + 100·10 µs) = 50 ms at b = 20
    row = only(
        search_tp([option(context=10e-6)], context_tokens=100, slo_tpot_s=50.001e-3)
    )

    assert (row.binding, row.batch) == ("TPOT", 20)


def test_the_engines_batch_binds_when_nothing_else_does():
    row = only(
        search_tp([option(max_num_seqs=8)], context_tokens=100, slo_tpot_s=np.inf)
    )

    assert (row.binding, row.batch) == ("max_num_seqs", 8)
    assert row.tokens_per_s_per_gpu == pytest.approx(8 / 18e-3)


def test_a_step_in_the_time_does_not_choose_a_batch_that_breaks_the_slo():
    stepped = option(per_request=0.0, kv_capacity_tokens=6000)
    stepped.tables.decode_s[51:] = 1.0  # 10 ms up to 50 requests, then 1 s

    row = only(search_tp([stepped], context_tokens=100, slo_tpot_s=20e-3))

    assert (row.binding, row.batch) == ("TPOT", 50)
    assert row.tokens_per_s_per_gpu == pytest.approx(50 / 20e-3)


def test_a_request_larger_than_the_replica_cannot_be_served():
    row = only(
        search_tp([option(kv_capacity_tokens=99)], context_tokens=100, slo_tpot_s=1)
    )

    assert row.tokens_per_s_per_gpu == 0
    assert (
        row.infeasible_reason == "a request holds 100 tokens on average, the replica 99"
    )


def test_an_slo_below_the_unbatched_time_cannot_be_kept():
    found = search_tp([option()], context_tokens=100, slo_tpot_s=5e-3)

    assert found.best is None
    assert "takes 11 ms per output token, the SLO is 5 ms" in found.reason


def test_the_best_degree_trades_memory_against_what_is_not_split():
    # TP 1: KV for 2 requests, 2 / 12 ms = 167; TP 2: 20 requests, 20 / 26 ms / 2 = 385;
    # TP 4: SLO at 41 of 9 + b ms, 41 / 50 ms / 4 = 205
    options = [
        option(tp=1, kv_capacity_tokens=200),
        option(tp=2, fixed=6e-3, kv_capacity_tokens=2000),
        option(tp=4, fixed=9e-3, kv_capacity_tokens=90_000),
    ]

    found = search_tp(options, context_tokens=100, slo_tpot_s=50.0001e-3)

    assert [row.binding for row in found.rows] == ["KV", "KV", "TPOT"]
    assert found.best is found.rows[1]
    assert found.best_by_gpu == {"G": found.rows[1]}
    assert found.reason == (
        "G TP 2 makes 385 output tokens/s per GPU, limited by KV at a batch of "
        "20; 88 % more than G TP 4, limited by TPOT"
    )


def test_between_gpu_types_the_price_may_choose_another():
    fast = option("fast", usd_per_h=4.0)
    slow = option("slow", fixed=20e-3, usd_per_h=1.0)

    found = search_tp([fast, slow], context_tokens=100, slo_tpot_s=50e-3)

    assert found.best.gpu == "fast"
    assert found.best_by_usd.gpu == "slow"
    # 30 requests in 50 ms: 600 tokens/s, 2.16 M an hour for a dollar
    assert found.best_by_usd.saturated_usd_per_million_output_tokens == pytest.approx(
        1 / 2.16
    )


def test_of_equal_throughput_fewer_gpus_are_chosen():
    twice = option(tp=2, fixed=5e-3, per_request=0.5e-3, max_num_seqs=10)
    once = option(tp=1, max_num_seqs=10)

    found = search_tp([twice, once], context_tokens=1, slo_tpot_s=1)

    assert found.best.tp == 1


def test_the_context_of_a_request_is_its_mean_over_its_iterations():
    # prompt 10 and 3 answers: contexts 11, 12, 13
    assert mean_context_tokens(10, 3) == pytest.approx(np.mean([11, 12, 13]))


def test_long_answers_weigh_by_the_iterations_they_stay():
    contexts = [*range(11, 14), *range(101, 102)]

    assert mean_context_tokens([10, 100], [3, 1]) == pytest.approx(np.mean(contexts))


@given(
    fixed=st.floats(1e-3, 50e-3),
    per_request=st.floats(1e-6, 1e-3),
    capacity=st.integers(0, 50_000),
    context=st.floats(1, 5000),
    slo=st.floats(1e-3, 1),
)
def test_more_memory_or_a_looser_slo_never_serves_less(
    fixed, per_request, capacity, context, slo
):
    first = option(fixed=fixed, per_request=per_request, kv_capacity_tokens=capacity)
    roomier = replace(first, kv_capacity_tokens=2 * capacity)

    def throughput(one, limit_s):
        found = search_tp([one], context_tokens=context, slo_tpot_s=limit_s)
        return only(found).tokens_per_s_per_gpu

    assert throughput(roomier, slo) >= throughput(first, slo) * (1 - 1e-9)
    # B is whole, so the right side of Eq. 6 may sag by a request's worth
    looser = throughput(first, 2 * slo)
    assert looser >= throughput(first, slo) - 1 / slo


def test_nothing_to_compare_is_refused():
    with pytest.raises(InputError):
        search_tp([], context_tokens=1, slo_tpot_s=1)
