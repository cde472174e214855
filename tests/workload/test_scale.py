"""F times the traffic of a trace, at the hours at which it has it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, chi2

from capplan.errors import InputError
from capplan.workload.scale import scaled_traffic
from capplan.workload.trace import COLUMNS, Trace

HOUR_S = 3600.0
DAY = np.array([1, 1, 1, 1, 2, 3, 5, 8, 9, 9, 8, 7, 7, 8, 9, 9, 8, 7, 6, 5, 4, 3, 2, 1])
ALONE = {"prompt_tokens": [7], "output_tokens": [3]}


def day(n=24_000, seed=0, **columns):
    """A day whose hours have requests in proportion to ``DAY``."""
    rng = np.random.default_rng(seed)
    hour = rng.choice(24, n, p=DAY / DAY.sum())
    arrival_s = np.sort((hour + rng.random(n)) * HOUR_S)
    return Trace(rng.integers(1, 900, n), rng.integers(1, 90, n), arrival_s, **columns)


def by_hour(trace):
    return np.bincount((trace.arrival_s / HOUR_S).astype(int), minlength=24)


def rows_of(trace):
    return sorted(
        zip(
            trace.prompt_tokens.tolist(),
            trace.output_tokens.tolist(),
            trace.request_class.tolist(),
            strict=True,
        )
    )


def test_scale_1_is_the_trace_itself():
    trace = day(50)

    assert scaled_traffic(trace, 1.0, 0) is trace


@pytest.mark.parametrize("scale", [0.1, 0.5, 0.9, 1.3, 2.75])
def test_the_requests_are_as_many_as_a_binomial_lets_expect(scale):
    trace = day()
    whole, share = divmod(scale, 1.0)

    found = [len(scaled_traffic(trace, scale, seed)) for seed in range(20)]

    added = np.array(found) - int(whole) * len(trace)
    low, high = binom.ppf([1e-5, 1 - 1e-5], len(trace), share)
    assert ((added >= low) & (added <= high)).all()
    assert len(set(found)) > 1


@pytest.mark.parametrize("scale", [2.0, 3.0])
def test_a_whole_scale_has_each_request_as_often(scale):
    trace = day(500)

    scaled = scaled_traffic(trace, scale, 3)

    assert rows_of(scaled) == sorted(rows_of(trace) * int(scale))


@pytest.mark.parametrize("scale", [0.2, 0.7, 1.5, 2.0, 5.0])
def test_the_hours_of_a_day_keep_their_shares(scale):
    """The chi-square of scaled hours; shifts of 5 minutes move a part of an hour."""
    trace = day(200_000)

    scaled = scaled_traffic(trace, scale, 1)

    assert scaled.duration_s == pytest.approx(trace.duration_s, rel=0.01)
    if scale < 1:
        expected = by_hour(trace) * len(scaled) / len(trace)
        spread = expected * (1 - scale)  # thinned: binomial
        square = ((by_hour(scaled) - expected) ** 2 / spread).sum()
        assert square < chi2.ppf(1 - 1e-6, 24)
    else:
        shares = by_hour(scaled) / len(scaled), by_hour(trace) / len(trace)
        assert np.abs(shares[0] - shares[1]).max() < 0.004


def test_no_two_copies_arrive_at_once():
    arrival_s = np.repeat(np.arange(0.0, 3600.0, 60.0), 3)  # batches of three
    trace = Trace(np.full(180, 5), np.full(180, 5), arrival_s)

    scaled = scaled_traffic(trace, 4.0, 0)

    _, counts = np.unique(scaled.arrival_s.round(6), return_counts=True)
    assert set(counts) == {3}  # as they were, and at other times
    assert len(counts) == 4 * 60


def test_copies_of_a_trace_stay_within_its_time():
    trace = day(2000)

    scaled = scaled_traffic(trace, 6.0, 0)

    first_s, gap_s = trace.arrival_s[0], 1 / trace.rate_per_s
    assert scaled.arrival_s[0] >= first_s
    assert scaled.arrival_s[-1] <= trace.arrival_s[-1] + gap_s


def test_a_session_is_kept_whole_or_not_at_all():
    session = np.repeat(np.arange(300), 5)
    session[:100] = -1
    trace = day(1500, session=np.random.default_rng(0).permutation(session))

    scaled = scaled_traffic(trace, 0.4, 0)

    known = trace.session >= 0
    sizes = np.bincount(trace.session[known], minlength=300)
    kept = np.bincount(scaled.session[scaled.session >= 0], minlength=300)
    assert set(np.unique(kept / np.maximum(sizes, 1))) == {0.0, 1.0}
    alone = (scaled.session < 0).sum()
    assert binom.ppf(1e-6, 100, 0.4) <= alone <= binom.ppf(1 - 1e-6, 100, 0.4)


def test_classes_and_prefix_groups_keep_their_shares():
    n = 40_000
    rng = np.random.default_rng(1)
    kinds, groups = rng.choice(2, n, p=[0.8, 0.2]), rng.choice(5, n)
    trace = day(
        n,
        request_class=kinds,
        class_names=("chat", "code"),
        prefix_group=groups,
        prefix_tokens=np.ones(n, int),
    )

    scaled = scaled_traffic(trace, 0.25, 0)

    for name in ("request_class", "prefix_group"):
        before = np.bincount(getattr(trace, name)) / n
        after = np.bincount(getattr(scaled, name)) / len(scaled)
        error = np.sqrt(before * (1 - before) / len(scaled))
        assert (np.abs(after - before) < 5 * error).all()


def test_copies_have_sessions_and_prefix_groups_of_their_own():
    n = 40
    trace = day(
        n,
        session=np.arange(n) % 4,
        prefix_group=np.arange(n) % 3 - 1,
        prefix_tokens=np.ones(n, int),
    )

    scaled = scaled_traffic(trace, 3.0, 0)

    assert len(np.unique(scaled.session)) == 3 * 4
    groups = scaled.prefix_group
    assert len(np.unique(groups[groups >= 0])) == 3 * 2
    assert (groups < 0).sum() == 3 * (trace.prefix_group < 0).sum()


def test_a_prompt_that_all_share_stays_one():
    n = 30
    trace = day(n, prefix_group=np.zeros(n, int), prefix_tokens=np.ones(n, int))

    scaled = scaled_traffic(trace, 2.0, 0)

    assert set(scaled.prefix_group) == {0}


@given(low=st.floats(0.05, 1), high=st.floats(0.05, 1), seed=st.integers(0, 2**62))
def test_what_a_smaller_scale_keeps_a_larger_one_keeps(low, high, seed):
    low, high = sorted((low, high))
    trace = replace(day(400), prompt_tokens=np.arange(1, 401))

    fewer, more = (scaled_traffic(trace, scale, seed) for scale in (low, high))

    assert set(fewer.prompt_tokens) <= set(more.prompt_tokens)


@given(scale=st.floats(0.5, 4), seed=st.integers(0, 2**62))
def test_the_same_seed_gives_the_same_bytes(scale, seed):
    trace = day(60)

    first, second = (scaled_traffic(trace, scale, seed) for _ in range(2))

    for name in COLUMNS:
        column = getattr(first, name)
        if column is not None:
            assert column.tobytes() == getattr(second, name).tobytes()


@pytest.mark.parametrize(
    ("trace", "scale", "said"),
    [
        (Trace(**ALONE), 2.0, "no arrival times"),
        (Trace(**ALONE, arrival_s=[0.0]), 1e-9, "none of 1 requests is left"),
        (day(40_000), 999.0, "expected at most 30,000,000"),
        (day(5), 0.0, "expected more than 0"),
        (day(5), float("nan"), "expected more than 0"),
    ],
)
def test_what_cannot_be_scaled_is_refused(trace, scale, said):
    with pytest.raises(InputError, match=said):
        scaled_traffic(trace, scale, 0)


def test_requests_of_one_moment_stay_there():
    trace = Trace([5, 6], [1, 1], arrival_s=[3.0, 3.0])

    scaled = scaled_traffic(trace, 2.5, 0)

    assert set(scaled.arrival_s) == {3.0}
