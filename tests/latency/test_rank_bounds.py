"""Least times of ranks that step together: below all that they may compute."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.latency.contract import LatencyTables, linear_tables
from capplan.latency.rank_bounds import alone, as_one
from capplan.latency.rank_tables import RankTables, RankWork

SEATS, TOKENS = 6, 40


def random_parts(seed: int, ranks: int) -> RankTables:
    """Return tables that rise and fall, as measured ones do."""
    rng = np.random.default_rng(seed)

    def table(length: int) -> np.ndarray:
        return 1e-3 + np.abs(np.cumsum(rng.normal(2e-4, 4e-4, length)))

    batch = table(SEATS + 1)
    rank = LatencyTables(
        decode_s=batch,
        decode_context_s=rng.uniform(0, 1e-4, SEATS + 1),
        fused_s=table(TOKENS + 1),
        fused_decode_s=rng.uniform(-1e-4, 1e-3, SEATS + 1),
        fused_context_s=rng.uniform(0, 1e-4, SEATS + 1),
        attention_s=float(rng.uniform(0, 1e-5)),
        request_s=0.0,
    )
    all_tokens = ranks * TOKENS + 1
    return RankTables(
        rank,
        ranks,
        table(all_tokens),
        table(all_tokens),
        table(TOKENS + 1),
        table(TOKENS + 1),
    )


@st.composite
def iterations(draw):
    """Draw the tables of ranks, the work of each and the sizes of graphs."""
    ranks = draw(st.integers(1, 5))
    tables = random_parts(draw(st.integers(0, 2**20)), ranks)
    work = []
    for _ in range(ranks):
        b = draw(st.integers(0, SEATS))
        new = draw(st.sampled_from([0, 0, 1, 7, TOKENS - SEATS]))
        context = draw(st.floats(2, 60)) * b
        work.append(RankWork(b, context, new, new * draw(st.floats(0.5, 30))))
    sizes = draw(st.sets(st.integers(1, TOKENS), max_size=4))
    return tables, work, tuple(sorted(sizes))


def time_by(tables: LatencyTables, work: RankWork) -> float:
    return RankTables(tables, 1, *(4 * [np.zeros(10**3)])).iteration_time_s([work])


@given(iterations())
def test_no_iteration_of_ranks_is_shorter_than_that_of_all_their_work_in_one(case):
    tables, work, sizes = case
    together = RankWork(*(sum(values) for values in zip(*work, strict=True)))

    least = as_one(tables, SEATS, TOKENS)

    real_s = tables.iteration_time_s(work, sizes)
    assert time_by(least, together) <= real_s * (1 + 1e-12)
    least.check(tables.ranks * SEATS, tables.ranks * TOKENS)


@given(st.integers(0, 2**20), st.integers(1, 5))
def test_tables_beyond_the_seats_and_the_budget_change_no_least_time(seed, ranks):
    tables = random_parts(seed, ranks)
    rank = {
        name: np.append(column, np.zeros(3)) if np.ndim(column) else column
        for name, column in tables.rank._asdict().items()
    }

    longer = as_one(tables._replace(rank=LatencyTables(**rank)), SEATS, TOKENS)

    assert len(longer.decode_s) == ranks * SEATS + 1
    assert len(longer.fused_s) == ranks * TOKENS + 1
    for own, other in zip(longer, as_one(tables, SEATS, TOKENS), strict=True):
        np.testing.assert_array_equal(own, other)


@given(iterations())
def test_no_iteration_is_shorter_than_by_the_work_of_any_of_its_ranks(case):
    tables, work, sizes = case

    least = alone(tables)

    real_s = tables.iteration_time_s(work, sizes)
    for each in work:
        if each.decoding or each.prefill_tokens:
            assert time_by(least, each) <= real_s * (1 + 1e-12)


@pytest.mark.parametrize("batch", [1, 3, 6])
def test_equal_ranks_on_straight_lines_take_just_the_least(batch):
    rank = linear_tables(1e-3, 2e-6, 0, 1e-5, 1e-8, max_batch=SEATS, max_tokens=TOKENS)
    experts_s = 2e-3 + 5e-6 * np.arange(4 * TOKENS + 1)
    exchange_s = 1e-4 + 1e-6 * np.arange(TOKENS + 1)
    tables = RankTables(rank, 4, experts_s, experts_s, exchange_s, exchange_s)
    one = RankWork(batch, 1000.0 * batch)

    least = as_one(tables, SEATS, TOKENS)

    # 1 + 10 b + 0.01 L of a rank, experts of 4 b tokens, an exchange of b.
    by_hand_s = 1e-3 + 1e-5 * batch + 1e-5 * batch
    by_hand_s += 2e-3 + 20e-6 * batch + 1e-4 + 1e-6 * batch
    assert tables.iteration_time_s([one] * 4) == pytest.approx(by_hand_s)
    together = RankWork(4 * batch, 4000.0 * batch)
    assert time_by(least, together) == pytest.approx(by_hand_s, rel=1e-12)
