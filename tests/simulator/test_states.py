"""Prefix caching of recurrent states: as worked by hand, by its judge, by its laws."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_v1 import judge_v1
from random_cases import random_states
from recorded import as_recorded
from test_against_judge import assert_same

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment
from capplan.errors import InputError
from capplan.latency.contract import linear_tables
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

# An iteration takes 10 ms, and 1 ms for each token, of a prompt or decoded.
TABLES = linear_tables(10e-3, 1e-3, 0, 1e-3, 0, max_batch=8, max_tokens=8192)


def engine(**given) -> EngineSettings:
    """Return an engine of an LLM with three groups of states, as Qwen3.5 has."""
    return EngineSettings(
        **{
            "max_num_batched_tokens": 8192,
            "max_num_seqs": 8,
            "block_size": 528,
            "kv_blocks": 101,
            "async_scheduling": False,
            "prefix_caching": True,
            "bounded_groups": 3,
            "bounded_blocks": 2,
            "state_groups": 3,
            **given,
        }
    )


def served(requests, given: EngineSettings | None = None):
    """Serve requests: arrival [s], prompt, output and shared tokens."""
    arrival_s, prompts, outputs, shared = np.array(requests).T
    trace = Trace(
        prompts.astype(int),
        outputs.astype(int),
        arrival_s,
        prefix_group=np.where(shared > 0, 0, -1),
        prefix_tokens=shared.astype(int),
    )
    deployment = fleet_of(TABLES, given or engine(), 1)
    return simulate(trace, deployment, record_iterations=True)


def chunks_of(simulation) -> list[tuple[int, int]]:
    """Return where each chunk of the requests begins, and its tokens."""
    entries = simulation.iterations.entries
    return [tuple(map(int, entry)) for entry in entries.tolist()]


def test_the_third_request_finds_the_state_that_the_second_left():
    # 1,000 shared tokens fill one block of 528. The first request keeps the state
    # behind the last block that its prompt fills, 1,056; the second finds KV in common
    # up to 528, no state there, and leaves one; the third goes on from it.
    found = served([(0, 1200, 1, 1000), (10, 1200, 1, 1000), (20, 1200, 1, 1000)])

    assert found.times.cached_tokens.tolist() == [0, 0, 528]
    assert chunks_of(found) == [
        (0, 0, 1056),
        (0, 1056, 144),
        (1, 0, 528),
        (1, 528, 528),
        (1, 1056, 144),
        (2, 528, 528),
        (2, 1056, 144),
    ]


def test_a_prompt_of_more_than_a_block_takes_two_iterations():
    found = served([(0, 528, 1, 0), (10, 529, 1, 0)])

    # 528 tokens at once; 528 and 1, which costs as a decode.
    assert found.times.ttft_s.tolist() == pytest.approx([0.538, 0.538 + 0.011])


def test_chunks_end_with_a_block_where_the_budget_does_not():
    given = engine(max_num_batched_tokens=1100)

    found = served([(0, 1200, 1, 0), (0, 600, 1, 0)], given)

    # Of 1,100 tokens the first takes two blocks; 44 do not end one of the second.
    assert chunks_of(found) == [(0, 0, 1056), (0, 1056, 144), (1, 0, 528), (1, 528, 72)]


def test_a_request_waits_while_the_state_that_it_would_use_is_written():
    # The shared 1,056 tokens are all that the first prompt fills.
    found = served([(0, 1100, 2, 1056), (0.5, 1100, 1, 1056)])

    # At 1,066 ms the first computes its last 44 tokens and hashes that state again.
    scheduled_s = found.times.scheduled_s.tolist()
    assert scheduled_s == pytest.approx([0, 1.066 + 0.054])
    assert found.times.cached_tokens.tolist() == [0, 1056]


def test_a_decode_behind_a_prompt_that_takes_the_budget_sits_out():
    # Blocks of 4, a budget of 8. B gets the 3 tokens that A leaves while C decodes;
    # then A takes all 8, twice.
    given = engine(block_size=4, max_num_batched_tokens=8)
    c, a, b = 0, 1, 2

    found = served([(0, 2, 2, 0), (0, 30, 1, 0), (0, 3, 3, 0)], given)

    assert chunks_of(found) == [
        *[(c, 0, 2), (a, 0, 4)],
        *[(c, 2, 1), (a, 4, 4), (b, 0, 3)],
        (a, 8, 8),
        (a, 16, 8),
        *[(a, 24, 4), (b, 3, 1)],
        *[(a, 28, 2), (b, 4, 1)],
    ]


def test_a_decode_holds_two_states_while_it_enters_a_block():
    found = served([(0, 520, 12, 0)])

    # 100 blocks; the prompt and three states take 4, position 528 another 4, and the
    # states before are free again an iteration later.
    free = found.iterations.steps["free_blocks"].tolist()
    assert free == [96] * 9 + [92, 95, 95]


@st.composite
def recorded_like(draw):
    """Draw a case as those recorded with vLLM."""
    return as_recorded(random_states(draw(st.integers(0, 10**6))))


@given(recorded_like())
@settings(max_examples=15)
def test_every_request_is_served_as_the_judge_serves_it(case):
    trace, tables, given = case

    found = simulate(trace, fleet_of(tables, given, 1))

    assert_same(found, judge_v1(trace, tables, given, 1))


@given(recorded_like(), st.integers(1, 4))
@settings(max_examples=15)
def test_jumps_are_steps(case, replicas):
    trace, tables, given = case
    deployment = fleet_of(tables, given, replicas)

    jumped, stepped = (
        simulate(trace, deployment, longest_jump=most).table for most in (10**6, 1)
    )

    for name in ("replica", "preemptions", "cached_tokens"):
        assert (getattr(jumped, name) == getattr(stepped, name)).all()
    for name in ("scheduled_s", "first_token_s", "finish_s", "longest_gap_s"):
        np.testing.assert_allclose(
            getattr(jumped, name), getattr(stepped, name), rtol=0, atol=1e-9
        )


@given(st.integers(0, 10**6))
@settings(max_examples=10)
def test_requests_of_one_block_hold_one_state_as_without_caching(seed):
    # No prompt is cut: the budget is that of all of them.
    trace, tables, given = as_recorded(
        random_states(seed) | {"max_num_batched_tokens": 1024}
    )
    size = given.block_size
    small = Trace(
        np.minimum(trace.prompt_tokens, size // 2),
        np.minimum(trace.output_tokens, size // 2),
        trace.arrival_s,
    )
    plain = replace(given, prefix_caching=False, state_groups=0, bounded_blocks=1)

    kept, without = (
        simulate(small, fleet_of(tables, each, 1)).table for each in (given, plain)
    )

    np.testing.assert_allclose(kept.finish_s, without.finish_s, rtol=0, atol=1e-9)


def test_context_parallelism_is_not_modelled_with_states():
    with pytest.raises(InputError, match="recurrent states"):
        served([(0, 10, 1, 0)], engine(block_size=1056, decode_context_parallel_size=2))


def test_states_are_not_modelled_where_requests_move():
    configuration = Configuration(engine(), TABLES)
    deployment = Deployment.of(configuration, 2, "jsq")

    with pytest.raises(InputError, match="fixed fleet of one pool"):
        simulate(
            Trace(np.array([10]), np.array([1]), np.array([0.0])),
            replace(deployment, rebalancer="llumnix"),
        )
