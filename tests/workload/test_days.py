"""Days of a trace laid in another order: against taking one request after another."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.errors import InputError
from capplan.workload.days import empty_blocks, laid, whole_blocks
from capplan.workload.trace import Trace

ARRIVALS = st.lists(st.integers(0, 399), min_size=1, max_size=40).map(sorted)


def trace_of(arrivals, **columns):
    """Return requests whose prompt says which they are."""
    count = len(arrivals)
    return Trace(
        np.arange(1, count + 1),
        np.ones(count, int),
        np.array(arrivals, float) + 7.0,
        **columns,
    )


@given(ARRIVALS, st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_every_request_of_a_block_comes_at_its_time_of_day(arrivals, chosen):
    trace = trace_of(arrivals)
    first = arrivals[0]
    expected = [
        (row + 1, arrival - first - 100 * block + 100 * position)
        for position, block in enumerate(chosen)
        for row, arrival in enumerate(arrivals)
        if 100 * block <= arrival - first < 100 * (block + 1)
    ]
    if not expected:
        with pytest.raises(InputError, match="no requests in the blocks"):
            laid(trace, 100.0, chosen)
        return

    found = laid(trace, 100.0, chosen)

    assert found.prompt_tokens.tolist() == [row for row, _ in expected]
    at_s = found.arrival_s - trace.arrival_s[0]
    assert at_s == pytest.approx([since for _, since in expected])
    assert (np.diff(found.arrival_s) >= 0).all()


@given(ARRIVALS)
def test_the_blocks_in_their_own_order_are_the_trace(arrivals):
    trace = trace_of(arrivals)

    found = laid(trace, 100.0, range(4))

    assert found.arrival_s.tolist() == trace.arrival_s.tolist()
    assert found.prompt_tokens.tolist() == trace.prompt_tokens.tolist()


def test_a_day_that_comes_again_shares_no_prefix_with_its_first_time():
    trace = trace_of([0, 1, 150], prefix_group=[0, 1, 1], prefix_tokens=[1, 1, 1])

    found = laid(trace, 100.0, [0, 1, 0])

    first, second, again = np.split(found.prefix_group, [2, 3])
    assert first.tolist() == [0, 1]
    assert second.tolist() == [1]
    assert not set(again) & {0, 1}


def test_blocks_without_requests_are_known():
    trace = trace_of([0, 99, 250])

    assert empty_blocks(trace, 100.0, 3) == {1}
    assert empty_blocks(trace, 100.0, 0) == frozenset()


@pytest.mark.parametrize(
    ("last", "days"), [(94, 0), (95, 1), (194, 1), (195, 2), (249, 2)]
)
def test_a_day_may_lack_a_twentieth(last, days):
    assert whole_blocks(trace_of([0, last]), 100.0) == days
