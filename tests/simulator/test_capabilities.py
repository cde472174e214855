"""V1's schedule with random sets of capabilities: as the judge, and by its laws."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from cases import Case
from group_cases import GroupCase, random_rank_tables
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from judge_group import judge_groups
from judge_v1 import Verdict, judge_v1
from random_cases import random_set
from recorded import as_recorded
from test_against_judge import assert_same

from capplan.errors import InputError
from capplan.simulator.schedulers.v1_policy import v1_policy
from capplan.simulator.simulate import simulate
from tests.deployments import fleet_of
from tests.uncompiled import IN_PYTHON, in_python, run_uncompiled

FEATURES = ("drafts", "images", "lora", "priority", "stages", "states")
"""Each beside prefix caching and without, as the seed has it."""
EVERY_SET = [
    names
    for size in range(2, 1 + len(FEATURES))
    for names in combinations(FEATURES, size)
]
PLAIN_BESIDE = ("images", "lora", "priority", "states")
"""Which nobody asks for where no request has any."""
COMPILED = {
    ("drafts", "images", "lora", "priority", "states"),
    ("drafts", "priority", "stages", "states"),
    ("images", "lora", "priority", "stages", "states"),
}
"""Large sets, which have every pair; each takes seconds to compile."""
UNCOMPILED = {
    ("drafts", "images"),
    ("drafts", "images", "priority", "stages", "states"),
    ("drafts", "lora", "priority", "states"),
    ("drafts", "stages"),
    PLAIN_BESIDE,
    ("images", "lora", "priority", "stages"),
    ("images", "states"),
    ("priority", "states"),
}
"""Sets of which each run of the tests has cases too."""


def marks(names):
    """Return which runs of the tests have cases of a set."""
    if names in COMPILED:
        return [pytest.mark.thorough]
    return IN_PYTHON if names in UNCOMPILED else [pytest.mark.slow]


SETS = [pytest.param(names, marks=marks(names)) for names in EVERY_SET]
WITH_RANKS = [
    pytest.param(names, marks=pytest.mark.thorough if is_run else pytest.mark.slow)
    for names in [*zip(FEATURES), *EVERY_SET]
    if "stages" not in names
    for is_run in [len(names) == 1 or names in COMPILED]
]


@pytest.mark.thorough
def test_most_sets_are_served_without_compilation():
    run_uncompiled(__file__)


def random_case(seed: int, names: tuple[str, ...]) -> Case:
    """Return a case of a set; loading and slower iterations have a cost."""
    rng = np.random.default_rng(seed)
    cached = ("cached",) if rng.random() < 0.5 else ()
    trace, tables, engine = as_recorded(random_set(seed, (*names, *cached)))
    if engine.adapters is not None:
        costs = {
            "slowdown": float(rng.choice([0.0, 0.5])),
            "read_s": float(rng.choice([0.0, 1e-3])),
            "load_s": float(rng.choice([0.0, 4e-3])),
            "fetch_s": float(rng.choice([0.0, 9e-3])),
        }
        engine = replace(engine, adapters=replace(engine.adapters, **costs))
    if engine.speculation is not None and engine.pipeline is not None:
        share = 0.3 * (seed % 2)  # of a draft's passes, on the last stage alone
        drafts = replace(engine.speculation, draft_share=share)
        engine = replace(engine, speculation=drafts)
    return Case(trace, tables, engine, int(rng.integers(1, 3)))


@pytest.mark.parametrize("names", SETS, ids="-".join)
@settings(deadline=None, max_examples=8)
@given(seed=st.integers(0, 10**6))
def test_every_request_is_served_as_the_judge_serves_it(names, seed):
    case = random_case(seed, names)

    assert_as_judged(lambda: case.simulated("jsq"), judge_v1(*case))


def assert_as_judged(simulated, verdict):
    """Assert that a case is served as judged, or refused where vLLM stops."""
    if any(replica.stops for replica in verdict.replicas):
        with pytest.raises(InputError, match="more adapters than max_loras"):
            simulated()
    else:
        assert_same(simulated(), verdict)


@in_python
def test_more_adapters_than_slots_are_refused_where_one_waited_for_its_image():
    case = random_case(1_000_620, ("images", "lora"))

    with pytest.raises(InputError, match="more adapters than max_loras"):
        case.simulated("jsq")


@in_python
def test_a_token_in_flight_fills_no_block_of_a_decode_that_gives_its_place_back():
    case = random_case(2, ("images", "priority", "stages", "states"))

    assert_same(case.simulated("jsq"), judge_v1(*case))


@in_python
def test_an_arrival_waits_for_one_of_the_steps_that_an_idle_engine_computes_in_vain():
    case = random_case(306, ("drafts", "stages", "states"))

    assert_same(case.simulated("jsq"), judge_v1(*case))


@in_python
def test_a_prompt_preempted_in_the_iteration_that_ends_it_is_not_unfinished():
    case = random_case(341, ("images", "priority"))

    assert_same(case.simulated("jsq"), judge_v1(*case))


@in_python
def test_others_come_to_an_arrival_while_an_idle_engine_waits_for_what_it_discards():
    case = random_case(11000048, ("drafts", "stages"))

    assert_same(case.simulated("jsq"), judge_v1(*case))


@in_python
def test_an_image_that_only_a_draft_would_read_is_referred_to_once():
    case = random_case(5000691, ("drafts", "images", "priority", "stages"))

    assert_same(case.simulated("jsq"), judge_v1(*case))


@pytest.mark.parametrize("names", WITH_RANKS, ids="-".join)
@settings(deadline=None, max_examples=5)
@given(seed=st.integers(0, 10**6))
def test_ranks_meet_their_judge(names, seed):
    case = random_case(seed, names)
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 5))
    engine = replace(case.engine, data_parallel_size=count)
    case = case._replace(engine=engine)
    tables = random_rank_tables(seed, count, case, exact=False)
    scheduler = engine.scheduler.name

    requests, chosen, groups = judge_groups(
        case.trace, tables, (), engine, case.replica_count, scheduler
    )
    ranks = [rank for group in groups for rank in group.ranks]
    assert_as_judged(
        lambda: GroupCase(case, tables, ()).simulated(scheduler),
        Verdict(requests, chosen, ranks),
    )


@pytest.mark.thorough
@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    names=st.sampled_from(sorted(COMPILED)),
    jump=st.integers(1, 4),
)
def test_the_length_of_a_jump_changes_nothing(seed, names, jump):
    case = random_case(seed, names)
    assume(not any(replica.stops for replica in judge_v1(*case).replicas))

    whole, cut = (
        case.simulated("jsq", longest_jump=most).table for most in (10**6, jump)
    )

    np.testing.assert_allclose(cut.finish_s, whole.finish_s, rtol=1e-9)


@in_python
@settings(deadline=None, max_examples=5)
@given(seed=st.integers(0, 10**6))
def test_capabilities_that_nobody_asks_for_change_nothing(seed):
    """Requests without images, of one priority and of no adapter are served as V1's."""
    trace, tables, engine = as_recorded(random_set(seed, PLAIN_BESIDE))
    count = len(trace)
    trace = replace(
        trace,
        images=np.zeros(count, int),
        image_tokens=np.zeros(count, int),
        adapter=np.full(count, -1),
        priority=np.zeros(count, int),
        # No request is hashed with an adapter, and none has a place in the queue again.
        arrival_s=trace.arrival_s + 1e-6 * np.arange(count),
    )
    plain = replace(
        engine,
        adapters=None,
        images=None,
        scheduler=as_recorded(random_set(seed, ["states"]))[2].scheduler,
    )

    every, alone = (
        simulate(trace, fleet_of(tables, each, 1)).table for each in (engine, plain)
    )

    np.testing.assert_array_equal(every.finish_s, alone.finish_s)
    assert v1_policy(plain, {}).name == "vllm-v1+STATES"
