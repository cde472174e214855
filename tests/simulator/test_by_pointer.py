import copy
import pickle

import numpy as np
import pytest
from numba import config

from capplan.simulator.jit import compiled, from_python
from capplan.simulator.state import REPLICA, STATE, Sizes, empty_state, records

SIZES = Sizes(2, 4, 3, 16, 5, results=8, iterations=0, entries=0, bins=1, draws=1)
TABLES = tuple(np.ones(4) for _ in range(5))


def a_state(**sizes):
    return empty_state(SIZES._replace(**sizes), TABLES)


@from_python
@compiled()
def sum_of_shapes(state):
    total = 0
    for k in range(2):
        total += state.blocks.shape[k] + 10 * state.ends.shape[k]
    return total + 1000 * state.requests.shape[0]


@from_python
@compiled()
def write_through(state):
    state.replicas[1].now_s = 3.5
    state.ends[1, 4] = 7
    state.by_rank.replicas[2].now_s = 4.5


def test_compiled_code_sees_the_shapes_and_strides_of_all_arrays():
    state = a_state()

    assert sum_of_shapes(state) == (2 + 5) + 10 * (2 + 6) + 1000 * 4


def test_what_compiled_code_writes_stands_in_the_arrays():
    state = a_state(ranks=2)

    write_through(state)

    assert state.replicas[1].now_s == 3.5
    assert state.ends[1, 4] == 7
    assert state.ranks[2].now_s == 4.5


def test_a_replaced_array_is_seen():
    state = a_state()
    sum_of_shapes(state)

    assert sum_of_shapes(state._replace(requests=state.requests[:2])) == 2087


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))]
)
def test_a_copy_keeps_no_address_of_the_original(copied):
    state = a_state()
    sum_of_shapes(state)

    twin = copied(state)

    assert "words" not in vars(twin)
    assert type(twin) is type(state)


@pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")
@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("draws", np.zeros((3, 2), np.float32)),
        ("draws", np.zeros(3)),
        ("draws", np.zeros((4, 4))[:, :2]),
        ("ranks", np.zeros(2, [("now_s", float)])),
        ("draws", np.broadcast_to(0.5, (3, 2)).copy().view(np.ndarray)[:, ::-1]),
        ("counts", np.frombuffer(bytes(8 * 30), np.int64)),
    ],
)
def test_an_array_of_another_kind_is_refused(name, array):
    state = a_state()._replace(**{name: array})

    with pytest.raises(TypeError, match="expected"):
        sum_of_shapes(state)


def test_all_fields_of_a_state_are_words():
    state = a_state()

    assert len(state.words) == 2 * STATE.word_count
    assert state.by_rank.replicas is state.ranks
    assert records(1, REPLICA).dtype == state.ranks.dtype
