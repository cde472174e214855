"""A trace with other columns is checked as a new one is."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.errors import InputError
from capplan.planning.evaluate.known_runs import digest
from capplan.workload.synthesis import joined
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


@pytest.mark.parametrize("rows", [slice(1, 3), np.array([0, 0, 2, 3] * 9)])
def test_columns_that_were_not_given_are_one_array_for_all_traces(rows):
    missing = [name for name, column in COLUMNS.items() if column.default is not None]
    few = Trace([5, 6, 7, 8], [1, 2, 3, 4])
    told = Trace(
        [5, 6, 7, 8],
        [1, 2, 3, 4],
        **{name: np.full(4, COLUMNS[name].default) for name in missing},
    )
    longer = Trace(np.ones(999), np.ones(999))  # makes the shared arrays longer

    for short, full in ((few, told), (few.select(rows), told.select(rows))):
        assert all(short.is_default(name) for name in missing)
        assert not any(full.is_default(name) for name in missing)
        behind, other = joined(short, longer), joined(full, longer)
        assert behind.is_default("priority")
        assert not other.is_default("priority")
        for name in COLUMNS:
            for one, two in ((short, full), (behind, other)):
                np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
        assert digest(short) == digest(full)
    with pytest.raises(ValueError, match="read-only"):
        few.priority[0] = 1
