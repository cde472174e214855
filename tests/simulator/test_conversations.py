"""Turns of conversations: who waits for whom, and what they find in the cache."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from judge_v1 import judge_v1
from test_against_judge import assert_same
from test_capabilities import random_case

from capplan.deployment.engine import EngineSettings
from capplan.errors import InputError
from capplan.latency.contract import linear_tables
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

ENGINE = EngineSettings(
    max_num_batched_tokens=64,
    max_num_seqs=8,
    block_size=4,
    kv_blocks=101,
    async_scheduling=False,
    prefix_caching=True,
)
TABLES = linear_tables(10e-3, 1e-3, 0.0, 0.0, 0.0, max_batch=8, max_tokens=64)
SETS = [(), ("drafts",), ("lora",), ("priority",), ("stages",), ("drafts", "priority")]


def served_ms(trace, engine=ENGINE):
    """Return arrivals, first tokens and ends [ms], and cached tokens."""
    table = simulate(trace, fleet_of(TABLES, engine, 1)).table
    times_s = table.arrival_s, table.first_token_s, table.finish_s
    return *((1e3 * np.asarray(each)).round(6).tolist() for each in times_s), (
        table.cached_tokens.tolist()
    )


def test_the_next_turn_arrives_when_the_answer_has_been_read_and_finds_it():
    trace = Trace(
        np.array([8, 16]),
        np.array([5, 2]),
        np.array([0.0, np.nan]),
        parent=np.array([-1, 0]),
        prefix_tokens=np.array([0, 13]),
        after=np.array([-1, 0]),
        think_s=np.array([0.0, 1.0]),
    )

    arrival_ms, first_ms, finish_ms, cached_tokens = served_ms(trace)

    assert (first_ms[0], finish_ms[0]) == (18, 58)
    assert (arrival_ms[1], cached_tokens[1]) == (1058, 12)
    assert (first_ms[1], finish_ms[1]) == (1072, 1082)


@pytest.mark.parametrize(("answer", "cached"), [(16, 32), (17, 48)])
def test_the_last_token_of_an_answer_has_no_kv_to_find(answer, cached):
    """Blocks of 16: a prompt of 32 and 16 tokens leave KV of 47, one more a block."""
    trace = Trace(
        np.array([32, 60]),
        np.array([answer, 2]),
        np.array([0.0, np.nan]),
        parent=np.array([-1, 0]),
        prefix_tokens=np.array([0, 48]),
        after=np.array([-1, 0]),
        think_s=np.array([0.0, 1.0]),
    )

    *_, cached_tokens = served_ms(trace, replace(ENGINE, block_size=16))

    assert cached_tokens == [0, cached]


def test_a_turn_that_joins_waits_for_all_its_answers():
    """A root, two of its sub-agents, and the turn that needs both."""
    trace = Trace(
        np.array([8, 8, 8, 8]),
        np.array([1, 3, 9, 1]),
        np.array([0.0, np.nan, np.nan, np.nan]),
        after=np.array([-1, 0, 0, 1]),
        joins=np.array([[3, 2]]),
        think_s=np.array([0.0, 0.1, 0.1, 0.05]),
    )

    arrival_ms, _, finish_ms, _ = served_ms(trace)

    assert arrival_ms[1:3] == [118, 118]
    assert arrival_ms[3] == max(finish_ms[1:3]) + 50


@pytest.mark.parametrize(("background", "begins_ms"), [(False, 2106), (True, 1082)])
def test_another_session_begins_when_one_has_ended_but_for_its_background(
    background, begins_ms
):
    """Two sessions in one lane; of each the last turn may be in the background."""
    trace = Trace(
        np.array([8, 16, 20, 8, 16, 20]),
        np.array([5, 2, 2, 5, 2, 2]),
        None,
        parent=np.array([-1, 0, 1, -1, 3, 4]),
        prefix_tokens=np.array([0, 13, 17, 0, 13, 17]),
        after=np.array([-1, 0, 1, -1, 3, 4]),
        think_s=np.array([0.0, 1.0, 1.0, 0.0, 1.0, 1.0]),
        agent=np.array([0, 0, -int(background)] * 2),
        users=1,
    )

    arrival_ms, _, finish_ms, _ = served_ms(trace)

    assert finish_ms[1:3] == [1082, 2106]
    assert arrival_ms[3] == begins_ms


def conversations(trace: Trace, seed: int, share: float) -> Trace:
    """Return requests of which many go on with others.

    A ``share`` of them once these are answered, and so do those who go on with them;
    the others at times of their own.
    """
    rng = np.random.default_rng(seed)
    n = len(trace)
    parent, prefix = np.full(n, -1), trace.prefix_tokens.copy()
    prompt, waits = trace.prompt_tokens.copy(), np.zeros(n, bool)
    for row in range(1, n):
        if rng.random() < 0.6:
            parent[row] = rng.integers(max(0, row - 8), row)
            whole = prompt[parent[row]] + trace.output_tokens[parent[row]]
            prefix[row] = whole if rng.random() < 0.6 else rng.integers(whole + 1)
            prompt[row] = min(
                prefix[row] + rng.integers(2) * rng.integers(20), prompt.max()
            )
            prompt[row] = max(prompt[row], 1)
            prefix[row] = min(prefix[row], prompt[row])
            waits[row] = waits[parent[row]] or rng.random() < share
    adapter = trace.adapter.copy()
    for row in range(n):
        if parent[row] >= 0:
            adapter[row] = adapter[parent[row]]
    return trace.changed(
        prompt_tokens=prompt,
        parent=parent,
        prefix_tokens=prefix,
        prefix_group=np.where(parent >= 0, -1, trace.prefix_group),
        after=np.where(waits, parent, -1),
        arrival_s=np.where(waits, np.nan, trace.arrival_s),
        think_s=rng.exponential(0.05, n),
        adapter=adapter,
    )


def as_arrived(trace: Trace, arrival_s: np.ndarray) -> Trace:
    """Return the requests at the times at which they came, after nobody."""
    order = np.argsort(arrival_s, kind="stable")
    to = np.argsort(order)
    return trace.rows_of(
        order,
        parent=np.where(trace.parent >= 0, to[trace.parent], -1)[order],
        after=np.full(len(trace), -1),
        arrival_s=arrival_s[order],
        think_s=None,
    )


@pytest.mark.thorough
@pytest.mark.parametrize("names", SETS, ids="-".join)
@settings(deadline=None, max_examples=12)
@given(seed=st.integers(0, 10**6))
@example(seed=1181)  # with LoRA, one that waits finds a block more of a growing answer
def test_conversations_are_served_as_the_judge_serves_their_arrivals(names, seed):
    case = random_case(seed, (*names, "cached"))
    share = 1.0 if {"drafts", "stages"} & {*names} else 0.5
    case = case._replace(trace=conversations(case.trace, seed, share))
    closed = case.simulated("jsq")
    arrived = as_arrived(case.trace, closed.table.arrival_s)

    verdict = judge_v1(arrived, *case[1:])

    opened = case._replace(trace=arrived).simulated("jsq")
    assert_same(opened, verdict)
    if "drafts" in names:  # they are drawn by row
        return
    order = np.argsort(closed.table.arrival_s, kind="stable")
    np.testing.assert_allclose(
        closed.table.finish_s[order], opened.table.finish_s, rtol=0, atol=1e-9
    )


def test_chunks_of_turns_are_refused():
    trace = Trace([8, 16], [5, 2], [0.0, 9.0], parent=[-1, 0], prefix_tokens=[0, 13])

    with pytest.raises(InputError, match="of a whole trace only"):
        simulate([trace], fleet_of(TABLES, ENGINE, 1))


def test_a_turn_with_another_adapter_is_refused():
    trace = Trace(
        [8, 16],
        [5, 2],
        [0.0, 9.0],
        parent=[-1, 0],
        prefix_tokens=[0, 13],
        adapter=[0, 1],
    )

    with pytest.raises(InputError, match="row 2 has another adapter than its parent"):
        simulate(trace, fleet_of(TABLES, ENGINE, 1))


def test_totals_of_turns_are_from_the_first_arrival_to_the_last():
    """The row of the last arrival need not be the last."""
    trace = Trace(
        np.array([8, 8, 8]),
        np.array([5, 1, 1]),
        np.array([0.0, np.nan, 0.2]),
        after=np.array([-1, 0, -1]),
        think_s=np.array([0.0, 9.0, 0.0]),
    )

    totals = simulate(trace, fleet_of(TABLES, ENGINE, 1)).totals

    assert totals.duration_s == pytest.approx(9.058)
    assert totals.makespan_s == pytest.approx(9.076)
