"""Every schedule of a few requests on one replica is tried; none beats the bound."""

from itertools import product

import numpy as np
import pytest

from capplan.bounds.lower_bound import lower_bound
from capplan.deployment import EngineSettings
from capplan.latency.contract import linear_tables

LIMITS = EngineSettings(max_num_batched_tokens=4, max_num_seqs=3, block_size=2)
_LATE = 1e-9


def best_attained(arrival_s, prompt, output, ttft_s, tpot_s, tables):
    """Return the most requests that any schedule of one replica attains.

    A request is (prompt tokens done, answers, first token's time); it may be
    chunked, skipped in any iteration and batched with any other; the replica may
    wait for the next arrival, and drop a request for good.
    """
    n = len(arrival_s)

    def iteration_s(chunks):
        tokens = sum(new for _, new, _ in chunks)
        batch = sum(1 for _, new, _ in chunks if not new)
        context = sum(held for _, new, held in chunks if not new)
        attention = sum(new * (held + new / 2) for _, new, held in chunks)
        if not tokens:
            return tables.decode_s[batch] + tables.decode_context_s[batch] * context
        return (
            tables.fused_s[tokens + batch]
            + tables.fused_decode_s[batch]
            + tables.fused_context_s[batch] * context
            + tables.attention_s * attention
        )

    seen = {}

    def explore(now_s, done, first_s, served):
        alive = []
        for i in range(n):
            if done[i] == prompt[i] + output[i] - 1 + 1:
                continue
            steps = output[i] - 1
            due_s = (
                arrival_s[i] + ttft_s
                if first_s[i] is None
                else first_s[i] + tpot_s * steps
            )
            if now_s <= due_s + _LATE:
                alive.append(i)
        if not alive or served + len(alive) <= best[0]:
            best[0] = max(best[0], served)
            return
        key = (done, first_s, served)
        if seen.get(key, np.inf) <= now_s:
            return
        seen[key] = now_s
        best[0] = max(best[0], served)
        ready = [i for i in alive if arrival_s[i] <= now_s + 1e-12]
        later = [arrival_s[i] for i in alive if arrival_s[i] > now_s + 1e-12]
        if later:
            explore(min(later), done, first_s, served)
        choices = [
            range(prompt[i] - done[i] + 1) if done[i] < prompt[i] else range(2)
            for i in ready
        ]
        for picked in product(*choices):
            chosen = [(i, c) for i, c in zip(ready, picked, strict=True) if c]
            if not chosen or sum(c for _, c in chosen) > LIMITS.max_num_batched_tokens:
                continue
            if len(chosen) > LIMITS.max_num_seqs:
                continue
            end_s = now_s + iteration_s(
                [
                    (i, c, done[i]) if done[i] < prompt[i] else (i, 0, done[i])
                    for i, c in chosen
                ]
            )
            new_done, new_first, new_served = list(done), list(first_s), served
            for i, c in chosen:
                new_done[i] += c
                if done[i] < prompt[i] and new_done[i] == prompt[i]:
                    new_first[i] = end_s
                    new_done[i] += 1  # the first token comes with the prompt
                    if end_s > arrival_s[i] + ttft_s + _LATE:
                        new_done[i] = -1
                if new_done[i] == prompt[i] + output[i]:
                    steps = output[i] - 1
                    late = end_s > new_first[i] + tpot_s * steps + _LATE
                    new_served += not late
            if -1 in new_done:
                continue
            explore(end_s, tuple(new_done), tuple(new_first), new_served)

    best = [0]
    explore(min(arrival_s), (0,) * n, (None,) * n, 0)
    return best[0]


@pytest.mark.parametrize("seed", range(16))
def test_no_schedule_of_one_replica_attains_what_the_bound_denies_it(seed):
    generator = np.random.default_rng(seed)
    n = 3
    prompt = generator.integers(1, 3, n).tolist()
    output = generator.integers(1, 4, n).tolist()
    arrival_s = np.sort(generator.random(n) * 0.01).tolist()
    tables = linear_tables(
        *generator.uniform([1e-3, 1e-4, 0, 1e-4, 0], [5e-3, 3e-3, 1e-4, 3e-3, 1e-4]),
        max_batch=3,
        max_tokens=4,
    )
    slowest_s = float(tables.decode_s[1])
    ttft_s = slowest_s * generator.uniform(1.5, 5)
    tpot_s = slowest_s * generator.uniform(1.1, 2.5)
    attained = best_attained(arrival_s, prompt, output, ttft_s, tpot_s, tables)

    for wanted in range(1, n + 1):
        bound = lower_bound(
            np.array(arrival_s),
            np.array(prompt),
            np.array(output),
            np.full(n, ttft_s),
            np.full(n, tpot_s),
            np.full(n, np.inf),
            wanted / n,
            tables,
            LIMITS,
        )

        denied = bound.replica_count > 1 or not bound.reachable
        assert not (denied and attained >= wanted)


def test_the_enumeration_finds_a_schedule_worked_by_hand():
    # Both prompts in one iteration (7 ms), then both decode together (8 ms).
    tables = linear_tables(5e-3, 1e-3, 0, 1.5e-3, 0, max_batch=3, max_tokens=4)
    case = ([0.0, 0.0], [1, 1], [2, 2])

    assert best_attained(*case, 7e-3, 8e-3, tables) == 2
    assert best_attained(*case, 6.5e-3, 8e-3, tables) == 1
    assert best_attained(*case, 7e-3, 6.4e-3, tables) == 0
