"""Tiers of KV: worked cases, and laws."""

from dataclasses import replace

import numpy as np
import pytest
from cases import Case
from judge_tier import judge_tier
from test_against_judge import assert_same
from test_capabilities import random_case
from test_conversations import as_arrived, conversations

from capplan.deployment.engine import EngineSettings
from capplan.deployment.tier import Tier
from capplan.latency.contract import linear_tables
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of
from tests.uncompiled import in_python, run_uncompiled

ENGINE = EngineSettings(
    max_num_batched_tokens=64,
    max_num_seqs=8,
    block_size=4,
    kv_blocks=6,
    async_scheduling=False,
    prefix_caching=True,
    tier=Tier(
        "0.32", chunks=1000, latency_s=0.0, load_block_s=1e-3, store_block_s=1e-3
    ),
)
TABLES = linear_tables(10e-3, 1e-3, 0.0, 0.0, 0.0, max_batch=8, max_tokens=64)


def trace_of(*rows) -> Trace:
    """Return requests: arrival [ms], prompt, output, then parent and prefix tokens."""
    rows = [(*row, -1, 0)[:5] for row in rows]
    arrival_ms, prompt, output, parent, prefix = np.array(rows).T
    return Trace(prompt, output, arrival_ms / 1e3, parent=parent, prefix_tokens=prefix)


def served(trace, engine=ENGINE, **tier):
    """Return the requests as they were served, and the start of each iteration [ms]."""
    engine = replace(engine, tier=replace(engine.tier, **tier))
    simulation = simulate(trace, fleet_of(TABLES, engine, 1), record_iterations=True)
    jumping = simulate(trace, fleet_of(TABLES, engine, 1)).table
    np.testing.assert_allclose(jumping.finish_s, simulation.table.finish_s, atol=1e-12)
    return simulation


def ms(seconds):
    """Return milliseconds without the noise of sums."""
    return np.round(1e3 * np.asarray(seconds), 6).tolist()


def first_and_end_ms(simulation, row):
    """Return when a request was scheduled, had its first token and its last."""
    table = simulation.table
    times_s = table.scheduled_s[row], table.first_token_s[row], table.finish_s[row]
    return tuple(ms(times_s))


A, X = (0, 8, 5), (100, 19, 2)
"""A request whose KV has 3 blocks, of which 2 are stored; one that takes all 5."""


@in_python
@pytest.mark.parametrize("async_scheduling", [False, True])
def test_a_later_turn_loads_what_the_gpu_has_lost(async_scheduling):
    engine = replace(ENGINE, async_scheduling=async_scheduling)

    simulation = served(trace_of(A, X, (300, 14, 2, 0, 13)), engine)

    assert first_and_end_ms(simulation, 0)[2] == 58
    assert first_and_end_ms(simulation, 2) == (302, 318, 328)
    assert simulation.table.tier_tokens.tolist() == [0, 0, 8]
    assert simulation.table.cached_tokens[2] == 8


@in_python
def test_without_a_tier_it_is_computed_again():
    simulation = simulate(
        trace_of(A, X, (300, 14, 2, 0, 13)),
        fleet_of(TABLES, replace(ENGINE, tier=None), 1),
    )

    assert first_and_end_ms(simulation, 2) == (300, 324, 334)


@in_python
def test_answers_are_stored_where_that_is_asked():
    simulation = served(trace_of(A, X, (300, 14, 2, 0, 13)), answers=True)

    assert simulation.table.tier_tokens[2] == 12
    assert first_and_end_ms(simulation, 2) == (303, 315, 325)


@in_python
def test_the_last_token_of_a_prompt_that_is_all_loaded_is_computed_again():
    simulation = served(trace_of((0, 8, 2), X, (300, 8, 2, 0, 8)))

    assert simulation.table.cached_tokens[2] == 7
    assert first_and_end_ms(simulation, 2)[:2] == (302, 313)


@in_python
def test_an_iteration_waits_for_copies_of_the_blocks_that_it_takes():
    trace = Trace(
        np.array([16, 19, 18]),
        np.array([2, 2, 2]),
        np.array([0.0, 0.03, 0.08]),
        prefix_group=np.array([0, -1, 0]),
        prefix_tokens=np.array([16, 0, 16]),
    )

    simulation = served(trace, store_block_s=20e-3)

    steps = simulation.iterations.steps
    of_x = int(np.argmax(steps["ctx_tokens"] == 19))
    assert ms([steps["sched_s"][of_x], steps["start_s"][of_x]]) == [36, 106]
    assert first_and_end_ms(simulation, 1)[2] == 145
    assert first_and_end_ms(simulation, 2)[1] == 231
    assert simulation.table.tier_tokens[2] == 16


@in_python
def test_a_request_of_one_token_leaves_its_copies_behind():
    simulation = served(trace_of((0, 16, 1), (20, 19, 2)), store_block_s=20e-3)

    steps = simulation.iterations.steps
    assert ms([steps["sched_s"][1], steps["start_s"][1]]) == [26, 106]
    assert simulation.pools[0].tier.flushed_iterations == 1


@in_python
def test_the_oldest_chunks_make_room():
    """At x the four of lowest rank go: all of a, and the last of b."""
    trace = trace_of(
        (0, 12, 1), (100, 12, 1), (200, 16, 1), (300, 12, 1, 0, 12), (400, 12, 1, 1, 12)
    )

    simulation = served(trace, replace(ENGINE, kv_blocks=5), chunks=6)

    assert simulation.table.tier_tokens[3] == 0
    assert simulation.pools[0].tier.evicted_chunks >= 4


@in_python
def test_a_chunk_may_be_of_several_blocks():
    simulation = served(trace_of(A, X, (300, 14, 2, 0, 13)), blocks_per_chunk=2)

    assert first_and_end_ms(simulation, 2) == (302, 318, 328)
    assert simulation.pools[0].tier.stores == 2


@in_python
def test_a_load_begins_behind_the_iteration_that_runs():
    trace = trace_of(A, (100, 40, 2), (290, 4, 12), (300, 14, 2, 0, 13))

    simulation = served(trace, replace(ENGINE, kv_blocks=12), load_block_s=20e-3)

    assert first_and_end_ms(simulation, 3)[:2] == (364, 380)
    assert first_and_end_ms(simulation, 2)[2] == 420


@in_python
def test_a_tier_of_no_chunks_is_none():
    trace = trace_of(A, X, (300, 14, 2, 0, 13))
    for async_scheduling in (False, True):
        engine = replace(ENGINE, async_scheduling=async_scheduling)
        empty = replace(engine, tier=replace(ENGINE.tier, chunks=0))
        none = replace(engine, tier=None)

        with_tier, without = (
            simulate(trace, fleet_of(TABLES, each, 1)).table for each in (empty, none)
        )

        np.testing.assert_array_equal(with_tier.finish_s, without.finish_s)


SETS = [(), ("lora",), ("priority",), ("drafts",), ("drafts", "priority")]


def random_tier(seed: int, names: tuple[str, ...], flies: bool = False) -> Case:
    """Return conversations beside a tier, mostly a small one behind slow links.

    Requests with drafts have two iterations in flight only where one ``flies``.
    """
    case = random_case(seed, (*names, "cached"))
    drafts = "drafts" in names
    rng = np.random.default_rng(seed + 1)
    blocks_per_chunk = int(rng.choice([1, 1, 2, 3]))
    tier = Tier(
        str(rng.choice(["0.32", "0.33"])),
        chunks=int(rng.choice([3, 10, 40, 400])),
        blocks_per_chunk=blocks_per_chunk,
        answers=bool(rng.random() < 0.4) and not drafts,
        latency_s=float(rng.choice([0.05e-3, 1e-3])),
        load_block_s=float(rng.choice([0.08e-3, 1e-3, 5e-3])),
        store_block_s=float(rng.choice([0.09e-3, 1.1e-3, 6e-3])),
    )
    engine = replace(case.engine, tier=tier, prefix_caching=True)
    if drafts and not flies:
        engine = replace(engine, async_scheduling=False)
    trace = conversations(case.trace, seed, float(drafts))
    case = case._replace(trace=trace, engine=engine)
    if not drafts:
        arrival_s = np.sort(trace.arrival_s + 1e-7 * np.arange(len(trace)))
        return case._replace(trace=trace.changed(arrival_s=arrival_s))
    arrival_s = case.simulated("jsq").table.arrival_s
    return case._replace(trace=as_arrived(trace, arrival_s))


@in_python
@pytest.mark.parametrize("names", SETS, ids="-".join)
@pytest.mark.parametrize("seed", range(4))
def test_conversations_are_served_as_the_judge_serves_them(names, seed):
    assert_judged(random_tier(seed, names))


@pytest.mark.slow
@pytest.mark.parametrize("names", SETS, ids="-".join)
@pytest.mark.parametrize("seed", range(100, 180))
def test_many_more_conversations_are_served_as_the_judge_serves_them(names, seed):
    assert_judged(random_tier(seed, names))


@in_python
def test_chunks_of_a_request_that_sits_an_iteration_out_are_offered_again():
    assert_judged(random_tier(16, ("priority",)))


@in_python
@pytest.mark.parametrize(("seed", "names"), [(75, ()), (83, ("drafts",))])
def test_of_two_equal_blocks_one_is_copied(seed, names):
    """Taking the other, or finding it, waits for no copy."""
    assert_judged(random_tier(seed, names))


@in_python
def test_decodes_that_verify_drafts_wait_for_copies_of_the_blocks_that_they_take():
    assert_judged(random_tier(74, ("drafts", "priority")))


@in_python
@pytest.mark.parametrize("seed", [1, 9, 14, 16, 126, 259, 262])
def test_blocks_of_requests_that_are_computed_once_more_are_held_until_then(seed):
    assert_judged(random_tier(seed, ("drafts",), flies=True))


@in_python
def test_all_tokens_are_known_of_one_that_sat_the_iteration_before_out():
    assert_judged(random_tier(2190, ()))
    assert_judged(random_tier(5252, ("priority",)))


@in_python
@pytest.mark.parametrize("seed", [785, 910])
def test_requests_end_in_a_jump_before_others_come(seed):
    """Where they have chunks left to be stored, each iteration is looked at."""
    assert_judged(random_tier(seed, ()))


@in_python
def test_a_prompt_that_is_preempted_reserves_no_blocks():
    assert_judged(random_tier(174, ("drafts", "priority")))


def assert_judged(case: Case) -> None:
    """Assert that a case is served as judged, where it ever ends."""
    try:
        verdict = judge_tier(*case)
    except RuntimeError:
        pytest.skip("nothing ever fits")
    if any(replica.stops for replica in verdict.replicas):
        pytest.skip("vLLM stops")
    simulation = case.simulated("jsq")
    assert_same(simulation, verdict)
    judged = [
        replica.of[request].tier_tokens
        for request in verdict.requests
        for replica in verdict.replicas
        if request in replica.of
    ]
    assert simulation.table.tier_tokens.tolist() == judged


@pytest.mark.thorough
def test_all_are_served_without_compilation():
    run_uncompiled(__file__)
