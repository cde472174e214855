"""A trace with other columns is checked as a new one is."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from capplan.errors import InputError
from capplan.workload.trace import COLUMNS, Trace

N = 4
TRACE = Trace(
    np.array([5, 6, 7, 8]),
    np.array([1, 2, 3, 4]),
    np.arange(4.0),
    prefix_group=np.array([0, 0, 1, -1]),
    priority=np.array([3, 2, 1, 0]),
)
NAMES = st.sampled_from([name for name in COLUMNS if name != "request_class"])
VALUES = st.lists(st.integers(-2, 9), min_size=N, max_size=N).map(np.array)


def columns_of(make):
    """Return the columns of a trace as lists; None where it is refused."""
    try:
        trace = make()
    except InputError:
        return None
    of = {name: getattr(trace, name) for name in COLUMNS}
    return {
        name: None if v is None else (v.dtype, v.tolist()) for name, v in of.items()
    }


@given(st.dictionaries(NAMES, VALUES, max_size=3))
def test_changed_columns_are_taken_and_refused_as_in_a_new_trace(columns):
    assert columns_of(lambda: TRACE.changed(**columns)) == columns_of(
        lambda: replace(TRACE, **columns)
    )


@given(st.lists(st.integers(0, N - 1), max_size=6).map(lambda r: np.array(r, int)))
def test_selected_requests_are_those_of_a_new_trace_of_the_same_columns(rows):
    def new():
        columns = {name: getattr(TRACE, name) for name in COLUMNS}
        return Trace(**{k: None if v is None else v[rows] for k, v in columns.items()})

    assert columns_of(lambda: TRACE.select(rows)) == columns_of(new)
