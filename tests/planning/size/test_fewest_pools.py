"""The search for the cheapest two counts, on runs whose attainment is given."""

from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.deployment.pools import one_fewer
from capplan.planning.evaluate.executors import Interrupted
from capplan.planning.size.fewest_pools import fewest_pools


def run(counts, meets):
    """A run of which the search sees its counts and its verdict."""
    judgement = SimpleNamespace(
        meets=meets,
        holds=meets is True,
        no_miss=False,
        missing=() if meets is not False else ("all",),
        steadiness=SimpleNamespace(settled=True),
        attainment=SimpleNamespace(share=1.0 if meets else 0.0),
    )
    pools = [SimpleNamespace(replica_count=count) for count in counts]
    return SimpleNamespace(
        deployment=SimpleNamespace(pools=pools),
        judgement=judgement,
        simulation=SimpleNamespace(iteration_count=hash(counts), busy_s=9.0),
    )


def search(verdict, at_least=(1, 1), tps=(1, 1), competes=None):
    """Search among counts that meet the SLO as ``verdict`` says; each GPU costs $2."""
    tried = []

    def run_with(counts):
        tried.append(counts)
        return run(counts, verdict(counts))

    def price_of(counts):
        gpu_count = counts[0] * tps[0] + counts[1] * tps[1]
        return 2.0 * gpu_count, gpu_count

    limit = None if competes is None else lambda counts: price_of(counts)[1] < competes
    return fewest_pools(run_with, at_least, price_of, limit), tried


def counts_of(found):
    if found.run is None:
        return None
    return tuple(pool.replica_count for pool in found.run.deployment.pools)


def test_the_least_may_be_enough_and_one_fewer_of_each_pool_is_simulated():
    found, tried = search(lambda counts: counts >= (2, 3) and counts[1] >= 3, (2, 3))

    assert counts_of(found) == (2, 3)
    assert found.decided
    assert {(1, 3), (2, 2)} <= set(tried)


def test_each_pool_is_as_small_as_it_may_be():
    found, _ = search(lambda counts: counts[0] >= 5 and counts[1] >= 9, (2, 3))

    assert counts_of(found) == (5, 9)


@st.composite
def frontiers(draw):
    """The fewest for decoding at each count for prompts, from the first that does."""
    first = draw(st.integers(1, 6))
    falls = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    last = draw(st.integers(1, 6))
    needed = [last]
    for fall in falls:
        needed.append(needed[-1] + fall)
    return first, needed[::-1]


@given(frontiers(), st.sampled_from([(1, 1), (1, 2), (2, 1), (4, 1), (1, 4), (8, 2)]))
@settings(max_examples=300, deadline=None)
def test_no_counts_are_cheaper_than_those_found(frontier, tps):
    """Trying all counts finds none cheaper, where more of a pool never harm."""
    first, needed = frontier

    def meets(counts):
        after = counts[0] - first
        return after >= 0 and counts[1] >= needed[min(after, len(needed) - 1)]

    found, _ = search(meets, tps=tps)

    every = [(p, d) for p in range(1, 16) for d in range(1, 24) if meets((p, d))]
    least = min(p * tps[0] + d * tps[1] for p, d in every)
    prompts, decoding = counts_of(found)
    assert meets((prompts, decoding))
    assert prompts * tps[0] + decoding * tps[1] == least


@given(frontiers(), st.integers(2, 20))
@settings(max_examples=200, deadline=None)
def test_of_counts_that_must_compete_the_cheapest_is_found_or_none(frontier, limit):
    first, needed = frontier

    def meets(counts):
        after = counts[0] - first
        return after >= 0 and counts[1] >= needed[min(after, len(needed) - 1)]

    found, _ = search(meets, competes=limit)

    every = [(p, d) for p in range(1, 16) for d in range(1, 24) if meets((p, d))]
    least = min(map(sum, every))
    if least < limit and counts_of(found) is not None:
        assert sum(counts_of(found)) < limit
        assert meets(counts_of(found))
    if least >= limit:
        assert counts_of(found) is None


def test_counts_that_stay_too_close_are_told_and_not_taken_for_an_answer():
    # 2 + 2 is too close to call; 2 + 3 and 3 + 2 are decided.
    def verdict(counts):
        return None if counts == (2, 2) else min(counts) >= 2

    found, _ = search(verdict)

    assert sorted(counts_of(found)) == [2, 3]
    assert found.close == ((2, 2),)


def test_where_none_is_decided_the_cheapest_at_the_target_is_taken_with_one_fewer():
    def verdict(counts):
        return None if min(counts) >= 2 else False

    found, tried = search(verdict, at_least=(2, 2))

    assert counts_of(found) == (2, 2)
    assert not found.decided
    assert {(1, 2), (2, 1)} <= set(tried)


def test_where_more_replicas_change_nothing_the_search_ends():
    def run_with(counts):
        found = run(counts, False)
        found.simulation.iteration_count = 7
        return found

    found = fewest_pools(run_with, (1, 1), lambda counts: (0.0, sum(counts)))

    assert found.run is None
    assert len(found.runs) == 2


def test_where_more_replicas_add_nothing_to_what_is_attained_the_search_ends():
    def run_with(counts):
        found = run(counts, False)
        found.judgement.attainment.share = 0.9
        return found

    found = fewest_pools(run_with, (2, 3), lambda counts: (0.0, sum(counts)))

    assert found.run is None
    assert len(found.runs) == 2


def test_an_interruption_answers_with_the_cheapest_known():
    def run_with(counts):
        if counts == (1, 2):
            raise Interrupted
        return run(counts, min(counts) >= 2)

    found = fewest_pools(run_with, (1, 1), lambda counts: (0.0, sum(counts)))

    assert found.interrupted
    assert counts_of(found) == (2, 2)


def test_one_fewer_leaves_each_pool_a_replica():
    assert one_fewer((1, 4)) == [(1, 3)]
    assert one_fewer((2, 4)) == [(1, 4), (2, 3)]
