"""The search for the fewest replicas, on runs whose attainment is given."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.planning.fewest_replicas import binding_limit, fewest_replicas


def run(count, share, target=0.99, iterations=None):
    """A run of which the search sees its count, its share and its iterations."""
    return SimpleNamespace(
        replica_count=count,
        judgement=SimpleNamespace(
            meets=share >= target, attainment=SimpleNamespace(share=share)
        ),
        simulation=SimpleNamespace(iteration_count=iterations or 1000 + count),
    )


def search(shares, at_least=1, most=4096):
    """Search among counts whose share is ``shares(count)``; return what was tried."""
    tried = []

    def run_with(count):
        tried.append(count)
        return run(count, shares(count))

    passing, runs = fewest_replicas(run_with, at_least, most)
    return passing, runs, tried


def test_the_bound_itself_may_pass():
    passing, runs, tried = search(lambda count: 1.0, at_least=1)

    assert passing.replica_count == 1
    assert tried == [1]
    assert len(runs) == 1


def test_the_count_below_is_among_the_runs_and_fails():
    passing, runs, _ = search(lambda count: count / 20, at_least=3)

    assert passing.replica_count == 20
    counts = [each.replica_count for each in runs]
    assert counts == sorted(counts)
    assert 19 in counts
    assert not runs[counts.index(19)].judgement.meets


def test_a_bound_that_is_too_high_for_the_count_below_is_tried_downward():
    # The bound may be exact while its count below passes by chance: show it.
    passing, _, _ = search(lambda count: 1.0 if count >= 4 else 0.0, at_least=6)

    assert passing.replica_count == 4


def test_no_count_is_simulated_twice():
    _, _, tried = search(lambda count: count / 100, at_least=1)

    assert len(tried) == len(set(tried))


def test_the_first_miss_goes_near_the_bound_and_later_ones_stride():
    # 40 fails: 50 next (a quarter more), then 75 (half more), then bisection.
    _, _, tried = search(lambda count: 1.0 if count >= 60 else 0.5, at_least=40)

    assert tried[:3] == [40, 50, 75]


def test_the_search_gives_up_at_the_most_replicas():
    passing, runs, _ = search(lambda count: 0.5, at_least=1, most=64)

    assert passing is None
    assert runs[-1].replica_count == 64


def test_the_search_gives_up_where_more_replicas_change_nothing():
    tried = []

    def run_with(count):
        tried.append(count)
        return run(count, 0.5, iterations=777)

    passing, _ = fewest_replicas(run_with, 10, 4096)

    assert passing is None
    assert tried == [10, 13]


@given(first=st.integers(1, 300), at_least=st.integers(1, 300))
def test_a_rising_attainment_is_found_exactly(first, at_least):
    at_least = min(at_least, first)

    passing, runs, tried = search(
        lambda count: 1.0 if count >= first else 0.0, at_least
    )

    assert passing.replica_count == first
    assert len(tried) <= 4 + 3 * int(np.ceil(np.log2(first + 1)))
    if first > 1 and first > at_least:
        assert first - 1 in [each.replica_count for each in runs]


def failing(by_limit, preemptions=(0, 0, 0, 0), kv_share=0.5):
    return SimpleNamespace(
        simulation=SimpleNamespace(
            table=SimpleNamespace(preemptions=np.array(preemptions)),
            series=SimpleNamespace(kv_share=np.full(10, kv_share)),
        ),
        judgement=SimpleNamespace(attainment=SimpleNamespace(by_limit=by_limit)),
    )


@pytest.mark.parametrize(
    ("run", "binding"),
    [
        (None, "none"),
        (failing({"ttft": 0.9, "tpot": 0.7, "e2e": 1.0}), "TPOT"),
        (failing({"ttft": 0.6, "tpot": 0.7, "e2e": 1.0}), "TTFT"),
        (failing({"ttft": 0.6, "tpot": 0.7, "e2e": 0.1}), "E2E"),
        (failing({"ttft": 0.6, "tpot": 0.7, "e2e": 1.0}, (0, 0, 2, 0)), "KV"),
        (failing({"ttft": 0.6, "tpot": 0.7, "e2e": 1.0}, kv_share=0.99), "KV"),
    ],
    ids=["one replica", "tpot", "ttft", "e2e", "preempted", "cache full"],
)
def test_what_binds_is_read_off_the_count_that_fails(run, binding):
    assert binding_limit(run) == binding
