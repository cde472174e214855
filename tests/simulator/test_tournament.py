import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.simulator.fleet.tournament import (
    first_of_fewest,
    first_that_wakes,
    watch,
    with_trees,
)
from capplan.simulator.jit import compiled, from_python
from capplan.simulator.state import NONE, Sizes, empty_state

TABLES = tuple(np.ones(4) for _ in range(5))


@from_python
@compiled()
def watched(state, r):
    watch(state, r)


@from_python
@compiled()
def waking(state, until_s):
    return first_that_wakes(state, until_s)


@from_python
@compiled()
def fewest(state):
    return first_of_fewest(state)


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9])
@given(data=st.data())
def test_trees_find_what_a_scan_finds(count, data):
    sizes = Sizes(
        count, 4, 3, 16, 0, results=8, iterations=0, entries=0, bins=1, draws=1
    )
    state = with_trees(empty_state(sizes, TABLES))
    for r in range(count):
        watched(state, r)
    changes = st.tuples(
        st.integers(0, count - 1),
        st.integers(0, 3),
        st.sampled_from([1.0, 2.0, np.inf]),
    )

    for r, outstanding, wake_s in data.draw(st.lists(changes, max_size=20)):
        state.replicas[r].outstanding = outstanding
        state.replicas[r].wake_s = wake_s
        watched(state, r)

    assert fewest(state) == int(np.argmin(state.replicas.outstanding))
    for until_s in (0.5, 1.0, 1.5, 3.0):
        before = np.flatnonzero(state.replicas.wake_s < until_s)
        assert waking(state, until_s) == (before[0] if len(before) else NONE)
