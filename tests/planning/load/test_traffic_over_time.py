"""Traffic by bins and lengths by class, beside counting one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.planning.load.traffic_over_time import lengths_of, traffic_over_time
from capplan.workload.trace import Trace


def trace(arrival_s, classes=None, names=("default",)):
    n = len(arrival_s)
    return Trace(
        prompt_tokens=np.arange(1, n + 1),
        output_tokens=np.arange(n, 0, -1),
        arrival_s=np.array(arrival_s, dtype=float),
        request_class=None if classes is None else np.array(classes, np.int16),
        class_names=names,
    )


def test_the_busiest_window_is_the_one_in_which_most_requests_arrive():
    # 100 s at 2 requests/s, but 100 s to 120 s at 30 of them: the bins are 30 s wide.
    quiet, busy = np.arange(0, 300, 0.5), np.arange(100, 120, 1 / 30)
    of = trace(np.sort(np.concatenate([quiet, busy])))

    traffic = traffic_over_time(of)

    assert traffic.width_s == 30
    assert traffic.start_s[traffic.busiest] == 90
    # 60 quiet ones and the 600 of the rush.
    assert traffic.rate_per_s[traffic.busiest] == pytest.approx(660 / 30)


@given(
    st.lists(st.floats(0, 5000), min_size=2, max_size=400),
    st.sampled_from([1.0, 60.0, 3600.0]),
)
def test_bins_hold_all_requests_and_tokens(gaps, scale):
    of = trace(np.sort(np.array(gaps)) * scale)
    since_s = of.arrival_s - of.arrival_s[0]

    traffic = traffic_over_time(of)

    if traffic is None:
        assert since_s[-1] < 2
        return
    ends = [*traffic.start_s[1:], since_s[-1]]
    lasts_s = np.array(ends) - traffic.start_s
    assert (lasts_s > 0).all()
    for rates, of_each in (
        (traffic.rate_per_s, np.ones(len(of))),
        (traffic.prompt_tokens_per_s, of.prompt_tokens),
        (traffic.output_tokens_per_s, of.output_tokens),
    ):
        # One by one: the bin of a request is the last that starts before it.
        slow = [
            sum(
                each
                for at_s, each in zip(since_s, of_each, strict=True)
                if np.searchsorted(traffic.start_s, at_s, side="right") - 1 == k
            )
            for k in range(len(rates))
        ]
        assert rates * lasts_s == pytest.approx(slow)
    assert len(traffic.start_s) <= 171 or traffic.width_s == 86400


def test_a_rest_shorter_than_half_a_bin_joins_the_bin_before_it():
    # 2,000 requests over 10 s and one at 10.2 s: a bin of 0.2 s would show 5 a second.
    of = trace([*np.arange(0, 10, 0.005), 10.2])

    traffic = traffic_over_time(of)

    assert len(traffic.start_s) == 10
    assert traffic.rate_per_s[-1] == pytest.approx(201 / 1.2)


@pytest.mark.parametrize("arrivals", [[0.0, 0.0], [3.0, 4.9]])
def test_requests_of_one_moment_have_no_course(arrivals):
    assert traffic_over_time(trace(arrivals)) is None


def test_requests_without_times_have_no_course():
    of = Trace(np.array([1, 2]), np.array([1, 2]))

    assert traffic_over_time(of) is None


def test_lengths_are_those_that_so_many_requests_are_within():
    (row,) = lengths_of(trace(np.arange(100)))

    # Prompts of 1 to 100 tokens: 90 of 100 have at most 90.
    assert (row.prompt_tokens_p50, row.prompt_tokens_p90) == (50, 90)
    assert (row.prompt_tokens_p99, row.prompt_tokens_mean) == (99, 50.5)
    assert row.output_tokens_p90 == 90


def test_each_class_has_lengths_of_its_own_whatever_limits_its_name_holds():
    names = ("chat/ttft=1s", "chat/ttft=2s", "code")
    of = trace(np.arange(6), classes=[0, 1, 2, 0, 1, 2], names=names)

    rows = lengths_of(of)

    assert [(row.class_name, row.request_count) for row in rows] == [
        ("", 6),
        ("chat", 4),
        ("code", 2),
    ]
    assert rows[1].prompt_tokens_mean == (1 + 2 + 4 + 5) / 4
    assert rows[2].prompt_tokens_p99 == 6
