"""One pass gives the hits of an LRU cache of every size, as a list that is searched."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from capplan.workload.forest import forest
from capplan.workload.stack_distance import hit_curve
from capplan.workload.trace import Trace
from tests.workload.test_forest import owner, traces


def slow_hits(trace, order, size):
    """Return the stack distance of each block hit, by a list, most recent first."""
    stack, found = [], []
    trees = forest(trace, size)
    for row in order:
        own = [
            (owner(trace, int(row), k, size), k)
            for k in range(int(trees.end_block[row]))
        ]
        most = (int(trace.prompt_tokens[row]) - 1) // size
        found += [stack.index(key) + 1 for key in own[:most] if key in stack]
        stack = own + [key for key in stack if key not in set(own)]
    return found


@given(traces(), st.integers(1, 5), st.randoms(use_true_random=False))
def test_the_hits_of_every_size_are_those_of_a_list(trace, size, random):
    order = list(range(len(trace)))
    random.shuffle(order)

    curve = hit_curve(forest(trace, size), trace.prompt_tokens, np.array(order), size)

    expected = slow_hits(trace, order, size)
    total = int(trace.prompt_tokens.sum())
    for blocks in range(max([0, *expected]) + 2):
        hits = sum(distance <= blocks for distance in expected)
        assert curve.share(blocks * size) == hits * size / total


def test_a_path_that_comes_again_is_as_deep_as_what_came_since():
    prompts, parent = [13, 9, 13], [-1, -1, 0]
    trace = Trace(prompts, [1] * 3, [0, 1, 2], parent=parent, prefix_tokens=[0, 0, 13])

    curve = hit_curve(forest(trace, 4), trace.prompt_tokens, np.arange(3), 4)

    assert [curve.share(4 * k) * 35 / 4 for k in (2, 3, 4, 5, 99)] == [0, 1, 2, 3, 3]


def test_ten_thousand_turns_of_long_contexts_take_a_second_or_so():
    turns, sessions = 100, 100
    turn = np.tile(np.arange(turns), sessions)
    rows = np.arange(len(turn))
    prompt = 40_000 + 1000 * turn
    parent = np.where(turn > 0, rows - 1, -1)
    prefix = np.where(turn > 0, prompt - 800, 0)
    trace = Trace(
        prompt, np.full(len(rows), 200), rows * 1.0, parent=parent, prefix_tokens=prefix
    )
    order = np.argsort(turn, kind="stable")

    curve = hit_curve(forest(trace, 16), prompt, order, 16)

    most = ((np.maximum(0, prefix - 1) // 16) * 16).sum() / prompt.sum()  # of KV
    assert curve.share(np.inf) == most
    assert curve.share(100 * 40_000) < 0.01 < curve.share(100 * 145_000)
