"""What routers remember, however much room there is for it."""

from dataclasses import replace

import numpy as np
import pytest
from asking import Asked
from cases import EXAMPLES
from judge import judge
from remembering import drawn, drawn_case, settings_of
from test_conversations import as_arrived, conversations

from capplan.simulator.jit import from_python
from capplan.simulator.memory import prefix_memory
from capplan.simulator.state import Count

REMEMBERING = sorted(settings_of(np.random.default_rng(0)))


def replicas_of(case, router, scheduler, **settings):
    return case.simulated(router, scheduler=scheduler, **settings).times.replica


@pytest.mark.thorough
@pytest.mark.parametrize("first_runs", [1, prefix_memory.FIRST_RUNS])
@pytest.mark.parametrize("router", REMEMBERING)
def test_every_router_that_remembers_meets_its_judge(router, first_runs, monkeypatch):
    monkeypatch.setattr(prefix_memory, "FIRST_RUNS", first_runs)  # 1: a full table
    for seed in range(4 * EXAMPLES):
        given, scheduler, case = drawn(seed, router)

        simulation = case.simulated(given, scheduler=scheduler, seed=seed)

        verdict = judge(*case, given, seed, scheduler=scheduler)
        ended_s = [request.token_s[-1] for request in verdict.requests]
        assert simulation.times.replica.tolist() == verdict.replica, (seed, given)
        assert simulation.times.finish_s == pytest.approx(ended_s, abs=1e-9)


@pytest.mark.thorough
@pytest.mark.parametrize("router", REMEMBERING)
def test_every_router_that_remembers_meets_its_judge_in_conversations(
    router, monkeypatch
):
    monkeypatch.setattr(prefix_memory, "FIRST_RUNS", 1)
    for seed in range(4 * EXAMPLES):
        rng = np.random.default_rng(seed)
        given, case = settings_of(rng)[router], drawn_case(rng)
        turns = conversations(case.trace, seed, 0.0)
        case = case._replace(trace=as_arrived(turns, case.trace.arrival_s))
        tokens = int((turns.prompt_tokens + turns.output_tokens).max())
        blocks = max(case.engine.kv_blocks, 2 + tokens // case.engine.block_size)
        case = case._replace(engine=replace(case.engine, kv_blocks=blocks))

        simulation = case.simulated(given, scheduler="vllm-v1", seed=seed)

        verdict = judge(*case, given, seed, scheduler="vllm-v1")
        ended_s = [request.token_s[-1] for request in verdict.requests]
        assert simulation.times.replica.tolist() == verdict.replica, (seed, given)
        assert simulation.times.finish_s == pytest.approx(ended_s, abs=1e-9)


@pytest.mark.parametrize("router", REMEMBERING)
def test_the_room_for_runs_changes_nothing(router, monkeypatch):
    cases = [drawn(seed, router) for seed in range(EXAMPLES)]
    roomy = [replicas_of(case, given, by) for given, by, case in cases]
    monkeypatch.setattr(prefix_memory, "FIRST_RUNS", 1)

    short = [replicas_of(case, given, by) for given, by, case in cases]

    assert all((a == b).all() for a, b in zip(short, roomy, strict=True))


def test_a_replica_that_is_new_has_been_sent_nothing():
    asked = Asked("sglang-cache-aware")
    assert asked.ask(8, 6, loads=(0, 1)) == 0
    assert asked.ask(8, 6, loads=(1, 0)) == 0

    from_python(prefix_memory.forget)(asked.state, 0)

    assert asked.ask(8, 6, loads=(1, 0)) == 1


@pytest.mark.parametrize("router", [*REMEMBERING, "llm-d:index=approximate"])
def test_only_open_replicas_are_chosen_while_their_number_changes(router):
    asked, rng = Asked(router, 4), np.random.default_rng(0)

    for k in range(400):
        count = asked.state.counts[Count.OPEN] = rng.integers(1, 5)
        prompt = int(rng.integers(1, 30))
        shared = int(rng.integers(0, prompt + 1))
        group = int(rng.integers(0, 3)) if shared else -1
        loads, draw = rng.integers(0, 99, 4), rng.random()

        r = asked.ask(
            prompt, shared, loads=loads, draw=draw, at_s=k / 9, prefix_group=group
        )

        assert 0 <= r < count


@pytest.mark.parametrize(
    "router",
    [
        "session:window=1s",
        "prefix-aware:match=10,window=1s",
        "dynamo-kv:events=0,ttl=1s",
        "llm-d:index=approximate,capacity=100",
        "sglang-cache-aware:size=1000,period=1s",
    ],
)
def test_the_runs_do_not_grow_with_the_trace(router):
    asked = Asked(router)
    for k in range(4000):
        asked.ask(8, 4, at_s=k / 100, prefix_group=k % 40, session=k % 7)

    assert (asked.state.runs["holder"] >= 0).sum() < 500


def test_a_group_takes_as_many_runs_as_lengths_that_still_count():
    # 9; 5 over the rest of 9; 7, which covers 5, over that rest; 9, which covers all.
    asked = Asked("prefix-aware:chunk=4")
    runs = []
    for tokens in (9, 5, 7, 9):
        asked.ask(tokens, tokens)
        runs.append(int((asked.state.runs["holder"] >= 0).sum()))

    assert runs == [1, 2, 2, 1]
