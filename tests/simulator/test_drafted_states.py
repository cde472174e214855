"""Drafts and prefix caching of states: worked by hand, by its judge, by its laws."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_cases import random_drafted_states, random_states
from recorded import as_recorded
from test_speculative import accepting, assert_judged
from test_states import chunks_of, engine, served

from capplan.deployment.speculation import Speculation
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

ALL_ACCEPTED = (1.0, 1.0)


def drafting(method="mtp", **more):
    """Return the engine of Qwen3.5 with two drafts, which are always accepted."""
    speculation = Speculation(method, ALL_ACCEPTED)
    return engine(bounded_blocks=4, speculation=speculation, **more)


@pytest.mark.parametrize(
    ("method", "second"),
    [("mtp", [(1, 528, 772)]), ("ngram", [(1, 1056, 244)])],
)
def test_a_draft_with_kv_finds_a_block_less(method, second):
    # 1,200 shared tokens fill two blocks of 528. With MTP the last one that is found is
    # computed again, and so the prompt is cut a block earlier.
    found = served([(0, 1300, 1, 1200), (10, 1300, 1, 1200)], drafting(method))

    cut = second[0][1]
    assert chunks_of(found) == [(0, 0, cut), (0, cut, 1300 - cut), *second]
    assert found.times.cached_tokens.tolist() == [0, cut]


def test_a_request_holds_the_states_of_its_drafts():
    # 100 blocks; the prompt takes one, and 3 groups a state and those of two drafts.
    # Three tokens an iteration: the third verifies the tokens up to the 529th, which
    # enters a block of KV and of each state. The next frees the states before.
    found = served([(0, 520, 12, 0)], drafting())

    free = found.iterations.steps["free_blocks"].tolist()
    assert free == [90, 90, 90, 90 - 1 - 3, 90 - 1]


def test_a_request_verifies_what_is_left_of_the_budget():
    # Blocks of 4, a budget of 9, three tokens an iteration. While A's prompt goes on, B
    # gets the two tokens that C and A leave, then the one that A leaves.
    given = drafting("ngram", block_size=4, max_num_batched_tokens=9)
    c, a, b = 0, 1, 2

    found = served([(0, 2, 4, 0), (0, 30, 1, 0), (0, 3, 5, 0)], given)

    assert chunks_of(found) == [
        *[(c, 0, 2), (a, 0, 4), (b, 0, 3)],
        *[(c, 2, 3), (a, 4, 4), (b, 3, 2)],
        *[(a, 8, 8), (b, 5, 1)],
        *[(a, 16, 8), (b, 6, 1)],
        (a, 24, 4),
        (a, 28, 2),
    ]


@st.composite
def drafted(draw):
    """Draw a case as those recorded with vLLM, with drafts accepted by chance."""
    return accepting(draw, random_drafted_states(draw(st.integers(0, 10**6))))


@given(drafted(), st.integers(0, 2**20), st.integers(1, 9))
@settings(max_examples=15, deadline=None)
def test_every_request_is_served_as_the_judge_serves_it(case, seed, jump):
    assert_judged(case, "jsq", seed)
    assert_judged(case, "jsq", seed, longest_jump=jump)


@given(st.integers(0, 10**6))
@settings(max_examples=10, deadline=None)
def test_no_drafts_are_the_scheduler_without(seed):
    trace, tables, given = as_recorded(random_states(seed))
    none = replace(given, speculation=Speculation("ngram", ()))

    drafted, plain = (
        simulate(trace, fleet_of(tables, each, 1), record_iterations=True)
        for each in (none, given)
    )

    assert chunks_of(drafted) == chunks_of(plain)
    for name in ("free_blocks", "start_s", "end_s"):
        ours, theirs = (each.iterations.steps[name] for each in (drafted, plain))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)


@given(drafted())
@settings(max_examples=10, deadline=None)
def test_all_blocks_are_free_when_all_requests_have_left(case):
    # A last request of one token takes a block of KV, and of each group the states.
    trace = case.trace
    last = {"arrival_s": 1e6, "prompt_tokens": 1, "output_tokens": 1}
    last |= {"prefix_group": -1, "prefix_tokens": 0}
    columns = {name: np.append(getattr(trace, name), end) for name, end in last.items()}
    trace = Trace(**columns)
    deployment = fleet_of(case.tables, case.engine, 1)

    found = simulate(trace, deployment, record_iterations=True)

    of_states = case.engine.state_groups * case.engine.speculation.verified_tokens
    free = found.iterations.steps["free_blocks"][-1]
    assert free == case.engine.kv_blocks - 1 - (1 + of_states)
