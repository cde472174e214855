"""No schedule of a few requests on one replica attains more than the bound allows."""

from heapq import heappop, heappush
from itertools import count, product
from typing import NamedTuple

import numpy as np
import pytest
from adversary import Case, iteration_s

from capplan.bounds.lower_bound import lower_bound
from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import linear_tables

LIMITS = EngineSettings(max_num_batched_tokens=4, max_num_seqs=3, block_size=2)
_LATE = 1e-9


class State(NamedTuple):
    """A request while its schedules are enumerated."""

    held: int  # tokens in the KV cache
    made: int  # output tokens
    recomputing: bool  # whether its next token comes with a prefill
    first_s: float | None


def iterations(case, states, ready):
    """Yield every iteration of the ready requests: its time and the states after it.

    A request may be skipped, chunked, batched with any other, or preempted and
    recomputed. A first token has ``first_s`` 0.0 until the caller sets it.
    """

    def choices(i):
        state = states[i]
        known = case.prompt[i] + state.made
        starts = {state}
        if state.made:
            starts.add(state._replace(held=0, recomputing=True))
            if case.engine.prefix_caching:
                starts.add(state._replace(held=known - 1, recomputing=True))
        return [(0, state)] + [
            (new, start) for start in starts for new in range(1, known - start.held + 1)
        ]

    for combination in product(*(choices(i) for i in ready)):
        chosen = zip(ready, combination, strict=True)
        picked = [(i, new, start) for i, (new, start) in chosen if new]
        own = sum(start.held + new - case.cached[i] for i, new, start in picked)
        if (
            not 0 < len(picked) <= case.engine.max_num_seqs
            or sum(new for _, new, _ in picked) > case.engine.max_num_batched_tokens
            or own > case.engine.kv_capacity_tokens
        ):
            continue
        following = list(states)
        for i, new, start in picked:
            state = start._replace(held=start.held + new)
            if state.held == case.prompt[i] + state.made:
                state = state._replace(made=state.made + 1, recomputing=False)
                if state.made == 1:
                    state = state._replace(first_s=0.0)
            following[i] = state
        yield (
            iteration_s(
                case.tables,
                [(i, new) for i, new, _ in picked],
                {i: start.held for i, _, start in picked},
                {i: start.recomputing for i, _, start in picked},
            ),
            tuple(following),
        )


def start_states(case):
    return tuple(State(int(held), 0, True, None) for held in case.cached)


def least_makespan_s(case):
    """Return the least time in which one replica serves all, by Dijkstra's search."""
    queue, done = [(0.0, 0, start_states(case))], set()
    ties = count(1)
    while True:
        now_s, _, states = heappop(queue)
        unfinished = [i for i, s in enumerate(states) if s.made < case.output[i]]
        if not unfinished:
            return now_s
        if states in done:
            continue
        done.add(states)
        for time_s, following in iterations(case, states, unfinished):
            heappush(queue, (now_s + time_s, next(ties), following))


def best_attained(case, arrival_s, ttft_s, tpot_s):
    """Return the most requests that any schedule of one replica attains.

    The replica may also wait for an arrival and drop requests for good.
    """
    best, seen = 0, {}

    def due_s(i, state):
        if state.first_s is None:
            return arrival_s[i] + ttft_s + _LATE
        return state.first_s + tpot_s * (case.output[i] - 1) + _LATE

    def explore(now_s, states, attained):
        nonlocal best
        best = max(best, attained)
        alive = [
            i
            for i, state in enumerate(states)
            if state.made < case.output[i] and now_s <= due_s(i, state)
        ]
        if attained + len(alive) <= best:
            return
        if seen.get((states, attained), np.inf) <= now_s:
            return
        seen[states, attained] = now_s
        later = [arrival_s[i] for i in alive if arrival_s[i] > now_s + 1e-12]
        if later:
            explore(min(later), states, attained)
        ready = [i for i in alive if arrival_s[i] <= now_s + 1e-12]
        for time_s, following in iterations(case, states, ready):
            end_s, after, finished = now_s + time_s, list(following), 0
            for i in ready:
                if after[i].made == 1 and states[i].made == 0:
                    if end_s > due_s(i, states[i]):
                        break
                    after[i] = after[i]._replace(first_s=end_s)
                if after[i].made == case.output[i] and end_s <= due_s(i, after[i]):
                    finished += 1
            else:
                explore(end_s, tuple(after), attained + finished)

    explore(min(arrival_s), start_states(case), 0)
    return best


def random_case(generator):
    n = 3
    prompt = generator.integers(1, 3, n)
    output = generator.integers(1, 4, n)
    tables = linear_tables(
        *generator.uniform([0, 1e-4, 0, 1e-4, 0], [5e-3, 3e-3, 1e-4, 3e-3, 1e-4]),
        max_batch=3,
        max_tokens=4,
    )
    engine = EngineSettings(
        max_num_batched_tokens=4,
        max_num_seqs=int(generator.integers(1, 4)),
        block_size=1,
        kv_blocks=int(generator.choice([6, 8, 100])),
        prefix_caching=bool(generator.random() < 0.4),
    )
    cached = generator.integers(0, prompt) * engine.prefix_caching
    return Case(tables, engine, prompt, output, cached)


def check_every_schedule(seed):
    generator = np.random.default_rng(seed)
    case = random_case(generator)
    n = len(case.prompt)
    arrival_s = np.sort(generator.random(n) * generator.choice([0, 0.01])).tolist()
    slowest_s = float(case.tables.decode_s[1])
    ttft_s = slowest_s * generator.uniform(1.5, 5)
    tpot_s = slowest_s * generator.uniform(0.6, 2.5)
    attained = best_attained(case, arrival_s, ttft_s, tpot_s)

    for wanted in range(1, attained + 1):
        columns = {
            "arrival_s": np.array(arrival_s),
            "prompt_tokens": case.prompt,
            "output_tokens": case.output,
            "cached_tokens": case.cached,
            "ttft_s": np.full(n, ttft_s),
            "tpot_s": np.full(n, tpot_s),
            "e2e_s": np.full(n, np.inf),
        }
        bound = lower_bound(columns, wanted / n, case.tables, case.engine)

        assert bound.reachable
        assert bound.replica_count == 1


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(12))
def test_one_replica_is_enough_for_what_some_schedule_of_it_attains(seed):
    check_every_schedule(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_one_replica_is_enough_for_what_many_schedules_attain(seed):
    check_every_schedule(seed)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(30))
def test_one_replica_is_enough_for_the_least_time_in_which_it_serves_all(seed):
    check_least_makespan(seed)


def check_least_makespan(seed):
    case = random_case(np.random.default_rng(seed))
    none = np.full(len(case.prompt), np.inf)
    makespan_s = least_makespan_s(case)

    columns = {
        "arrival_s": np.zeros(len(none)),
        "prompt_tokens": case.prompt,
        "output_tokens": case.output,
        "cached_tokens": case.cached,
        "ttft_s": none,
        "tpot_s": none,
        "e2e_s": np.full(len(none), makespan_s),
    }
    bound = lower_bound(columns, 1.0, case.tables, case.engine)

    assert bound.reachable
    assert bound.replica_count == 1


def hand_worked(tables, engine=LIMITS, prompt=(1, 1), output=(2, 2)):
    return Case(tables, engine, np.array(prompt), np.array(output), np.zeros(2, int))


def test_the_enumeration_finds_a_schedule_worked_by_hand():
    # Both prompts in one iteration (7 ms), then both decode together (8 ms).
    case = hand_worked(
        linear_tables(5e-3, 1e-3, 0, 1.5e-3, 0, max_batch=3, max_tokens=4)
    )

    assert best_attained(case, [0.0, 0.0], 7e-3, 8e-3) == 2
    assert best_attained(case, [0.0, 0.0], 6.5e-3, 8e-3) == 1
    assert best_attained(case, [0.0, 0.0], 7e-3, 6.4e-3) == 0


def test_the_enumeration_finds_that_recomputing_is_quicker_by_hand():
    # A prompt token takes 1 ms, a decode step 3 ms, so two tokens recomputed take 2 ms.
    case = hand_worked(linear_tables(0, 1e-3, 0, 3e-3, 0, max_batch=3, max_tokens=4))

    assert best_attained(case, [0.0, 0.0], 2e-3, 4e-3) == 2
    assert best_attained(case, [0.0, 0.0], 2e-3, 3.9e-3) == 1
    assert best_attained(case, [0.0, 0.0], 2e-3, 1.9e-3) == 0
