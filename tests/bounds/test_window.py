"""The busiest window against a search over every window."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from capplan.bounds.window import busiest_window


def every_window(release_s, deadline_s, work_s, droppable):
    """Return start, end and work of each window, the costliest left out."""
    for start_s in set(release_s):
        for end_s in set(deadline_s):
            inside = (release_s >= start_s) & (deadline_s <= end_s)
            keep = max(int(inside.sum()) - droppable, 0)
            kept_s = np.sort(work_s[inside])[:keep].sum()
            if end_s > start_s:
                yield start_s, end_s, kept_s


def random_requests(seed, n):
    generator = np.random.default_rng(seed)
    release_s = generator.random(n)
    deadline_s = release_s + 0.05 + generator.random(n)
    return release_s, deadline_s, generator.exponential(1, n)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 9))
def test_without_a_request_that_may_miss_the_busiest_window_is_found(seed, n):
    release_s, deadline_s, work_s = random_requests(seed, n)

    window = busiest_window(release_s, deadline_s, work_s, 0)

    most = max(
        kept_s / (end_s - start_s)
        for start_s, end_s, kept_s in every_window(release_s, deadline_s, work_s, 0)
    )
    assert window.replicas == pytest.approx(most)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(3, 9), droppable=st.integers(1, 2))
def test_the_costliest_requests_of_the_window_are_left_out(seed, n, droppable):
    release_s, deadline_s, work_s = random_requests(seed, n)

    window = busiest_window(release_s, deadline_s, work_s, droppable)

    assume(window is not None)
    works = {
        (start_s, end_s): kept_s
        for start_s, end_s, kept_s in every_window(
            release_s, deadline_s, work_s, droppable
        )
    }
    most = max(kept_s / (end_s - start_s) for (start_s, end_s), kept_s in works.items())
    assert window.work_s == pytest.approx(works[window.start_s, window.end_s])
    # Requests are left out after the window is chosen: not always of the best one.
    assert window.replicas <= most * (1 + 1e-9)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(4, 9))
def test_each_group_leaves_out_no_more_than_its_own(seed, n):
    release_s, deadline_s, work_s = random_requests(seed, n)
    group = np.random.default_rng(seed).integers(0, 2, n)

    window = busiest_window(release_s, deadline_s, work_s, np.array([1, 0]), group)

    inside = (release_s >= window.start_s) & (deadline_s <= window.end_s)
    first = work_s[inside & (group == 0)]
    kept_s = work_s[inside].sum() - max(first, default=0.0)
    assert window.work_s == pytest.approx(kept_s)


def test_a_window_worked_by_hand():
    # [0, 1] holds 1 s of work; [0, 2] holds 1 + 4 s, 2.5 s a second.
    window = busiest_window(
        np.array([0.0, 0.5]), np.array([1.0, 2.0]), np.array([1.0, 4.0]), 0
    )

    assert (window.start_s, window.end_s) == (0.5, 2.0)
    assert window.replicas == pytest.approx(4 / 1.5)
    assert window.requests == 1


def test_no_window_holds_work_without_deadlines_or_when_all_may_miss():
    one = np.ones(1)

    assert busiest_window(0 * one, np.inf * one, one, 0) is None
    assert busiest_window(0 * one, one, one, 1) is None
