"""Time of an iteration of ranks that step together: hand cases, laws and a judge.

The hand cases' ranks take 1000 + 10 b + 0.01 L µs alone, 1000 + 2 T with a prompt of T
tokens, and the experts 2000 + 5 N.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.latency.contract import linear_tables
from capplan.latency.rank_tables import RankTables, RankWork

US = 1e-6
MOST_BATCH, MOST_TOKENS = 64, 1200


def hand(ranks: int, *, exchange_us: float = 0.0, tokens_per_request: int = 1):
    """Tables of the hand cases, with an all-to-all of so many µs per token."""
    rank = linear_tables(
        1000 * US,
        2 * US,
        0.0,
        10 * US,
        0.01 * US,
        max_batch=MOST_BATCH,
        max_tokens=MOST_TOKENS,
    )
    most = MOST_TOKENS + tokens_per_request * MOST_BATCH
    experts_s = (2000 + 5 * np.arange(ranks * most + 1)) * US
    exchange_s = exchange_us * US * np.arange(most + 1)
    return RankTables(
        rank, ranks, experts_s, experts_s, exchange_s, exchange_s, tokens_per_request
    )


def decoding_us(tables, ranks, iterations, graph_sizes=()):
    """Sum the iterations of ranks that only decode, each token adding to a context."""
    total_s = 0.0
    for i in range(iterations):
        work = [RankWork(b, context + b * i) for b, context in ranks]
        total_s += tables.iteration_time_s(work, graph_sizes)
    return total_s / US


def test_the_rank_with_the_longest_contexts_leads_throughout():
    # Rank 1 takes 1000 + 20 + 80 µs at first, 0.02 more in each iteration: 100 of
    # 1100 + 2000 + 5 * 5, and 0.02 * (0 + ... + 99).
    found_us = decoding_us(hand(2), [(3, 3000), (2, 8000)], 100)

    assert found_us == pytest.approx(312_599.0, abs=1e-6)


def test_the_lead_passes_to_the_rank_whose_contexts_grow_faster():
    found_us = decoding_us(hand(2), [(20, 2000), (2, 20100)], 10)

    assert found_us == pytest.approx(33_312.3, abs=1e-6)


def test_with_graphs_all_ranks_are_padded_to_the_largest():
    # The largest rank's 20 tokens run the graph of 24: 48 tokens in place of 22.
    found_us = decoding_us(
        hand(2), [(20, 2000), (2, 20100)], 10, graph_sizes=(1, 2, 4, 8, 16, 24)
    )

    assert found_us == pytest.approx(34_612.3, abs=1e-6)


def test_a_prompt_on_one_rank_holds_up_the_others():
    tables = hand(2)
    graphs = (1, 2, 4, 8, 16, 24)
    decoding = RankWork(2, 8000)

    with_prompt_s = tables.iteration_time_s(
        [RankWork(prefill_tokens=1000), decoding], graphs
    )
    with_dummy_s = tables.iteration_time_s([RankWork(), decoding])

    # max(3000, 1100) and 2000 + 5 * 1002: a prompt beyond the graphs pads nobody.
    assert with_prompt_s == pytest.approx(10_010 * US)
    # The idle rank computes a dummy token: 1100 and 2000 + 5 * 3.
    assert with_dummy_s == pytest.approx(3_115 * US)


def test_the_all_to_all_is_of_the_largest_rank():
    tables = hand(3, exchange_us=7)

    found_s = tables.iteration_time_s([RankWork(4), RankWork(9), RankWork(1)])

    assert found_s == pytest.approx((1090 + 2000 + 5 * 14 + 7 * 9) * US)


def test_drafted_tokens_are_computed_by_the_experts():
    tables = hand(2, exchange_us=1, tokens_per_request=4)

    found_s = tables.iteration_time_s([RankWork(4), RankWork(2)])

    # 16 and 8 tokens.
    assert found_s == pytest.approx((1040 + 2000 + 5 * 24 + 16) * US)


def test_drafts_are_verified_in_one_batch_by_the_kernels_of_decoding():
    tables = hand(2)
    slower = tables._replace(experts_prefill_s=2 * tables.experts_prefill_s)

    found_s = slower.iteration_time_s(
        [RankWork(4, 1000, drafted_tokens=12), RankWork(2, drafted_tokens=6)]
    )

    # 1000 + 10 * 4 + 0.01 * 1000 and 2 for each draft, whose KV is read once.
    assert found_s == pytest.approx((1000 + 40 + 10 + 24 + 2000 + 5 * 24) * US)


def test_prompts_have_kernels_of_their_own():
    tables = hand(2)
    slower = tables._replace(experts_prefill_s=2 * tables.experts_prefill_s)

    decoding = [RankWork(4), RankWork(2)]
    prompt = [RankWork(4), RankWork(2, prefill_tokens=10)]

    assert slower.iteration_time_s(decoding) == tables.iteration_time_s(decoding)
    more_s = slower.iteration_time_s(prompt) - tables.iteration_time_s(prompt)
    assert more_s == pytest.approx((2000 + 5 * 16) * US)


WORK = st.builds(
    RankWork,
    st.integers(0, MOST_BATCH),
    st.integers(0, 100_000),
    st.sampled_from([0, 0, 1, 100, 1000]),
    st.integers(0, 10**6),
    st.sampled_from([0, 0, 1, 64]),
)
RANKS = st.lists(WORK, min_size=1, max_size=8)


def judged_us(work, graph_sizes):
    """Return the time of an iteration, rank by rank, from the hand cases' formulas."""
    alone, counts = [], []
    for one in work:
        beside = one.prefill_tokens + one.drafted_tokens
        us = 1000 + 10 * one.decoding + 0.01 * one.context + 2 * beside
        alone.append(us)
        counts.append(max(1, one.decoding + beside))
    fitting = [size for size in graph_sizes if size >= max(counts)]
    if fitting:
        counts = [fitting[0]] * len(counts)
    return max(alone) + 2000 + 5 * sum(counts) + 3 * max(counts)


@given(RANKS, st.sets(st.integers(1, 100), max_size=4))
def test_any_work_takes_what_the_judge_says(work, sizes):
    tables = hand(len(work), exchange_us=3)
    graph_sizes = sorted(sizes)

    found_s = tables.iteration_time_s(work, graph_sizes)

    assert found_s == pytest.approx(judged_us(work, graph_sizes) * US)


@given(RANKS, st.randoms(use_true_random=False))
def test_the_order_of_ranks_changes_nothing(work, random):
    shuffled = list(work)
    random.shuffle(shuffled)
    tables = hand(len(work), exchange_us=3)

    assert tables.iteration_time_s(work) == tables.iteration_time_s(shuffled)


@given(RANKS)
def test_an_iteration_takes_each_rank_at_least_its_own_time(work):
    together_s = hand(len(work), exchange_us=3).iteration_time_s(work)

    for one in work:
        assert together_s >= hand(1, exchange_us=3).iteration_time_s([one])


@given(WORK)
def test_one_rank_takes_what_its_folded_tables_say(one):
    tables = hand(1, exchange_us=3)
    folded = tables.folded()
    one = one._replace(drafted_tokens=0)
    b, fresh = one.decoding, one.prefill_tokens
    if b + fresh == 0:
        return

    if fresh:
        alone_s = folded.fused_s[b + fresh] + folded.fused_decode_s[b]
        alone_s += folded.fused_context_s[b] * one.context
        alone_s += folded.attention_s * one.attention
    else:
        alone_s = folded.decode_s[b] + folded.decode_context_s[b] * one.context

    assert tables.iteration_time_s([one]) == pytest.approx(float(alone_s))
    assert folded.check(MOST_BATCH, MOST_TOKENS) is folded
