"""Requests that are made: resampled, extended, drawn, or given a shared prefix."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.errors import InputError
from capplan.workload.lengths import LENGTHS, parse_lengths
from capplan.workload.synthesis import (
    extend,
    resample,
    reshaped,
    synthesise,
    with_max_new_tokens,
    with_output_scale,
    with_shared_prefix,
)
from capplan.workload.trace import Trace

LENGTH_MEANS = {
    "fixed": ("256", 256.0),
    "uniform": ("uniform(low=10,high=21)", 15.5),
    "lognormal": ("lognormal(median=600,sigma=0.5)", 600 * np.exp(0.125)),
    "normal": ("normal(mean=8000,sd=800)", 8000.0),
    "exponential": ("exponential(mean=5000)", 5000.0),
}


def assert_mean(replications, expected, z=4.0):
    replications = np.asarray(replications, float)
    error = replications.std(ddof=1) / np.sqrt(replications.size)
    assert abs(replications.mean() - expected) <= z * error + 1e-9


def rows_of(trace):
    return set(
        zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True)
    )


def timed(n=6):
    return Trace(
        np.arange(1, n + 1) * 10,
        np.arange(1, n + 1),
        arrival_s=5.0 + np.cumsum(np.arange(n) % 3 + 0.25),
        request_class=np.arange(n) % 2,
        class_names=("chat", "code"),
        source="made up",
    )


@settings(deadline=None, max_examples=50)
@given(n=st.integers(1, 60), seed=st.integers(0, 99))
def test_a_resampled_request_is_one_of_the_source_whole(n, seed):
    trace = timed()

    drawn = resample(trace, n, np.random.default_rng(seed))

    assert len(drawn) == n
    assert drawn.arrival_s is None
    assert rows_of(drawn) <= rows_of(trace)
    np.testing.assert_array_equal(drawn.request_class, (drawn.output_tokens - 1) % 2)


def test_resampling_is_unbiased():
    trace = timed()

    means = [
        resample(trace, 50, np.random.default_rng(seed)).prompt_tokens.mean()
        for seed in range(200)
    ]

    assert_mean(means, trace.prompt_tokens.mean())


def test_each_pass_of_draws_has_groups_and_sessions_of_its_own():
    groups = {"prefix_group": [0, 0, 1], "prefix_tokens": [4] * 3}
    trace = Trace([9, 9, 9], [1, 1, 1], **groups, session=[-1, 0, 1])

    drawn = resample(trace, 9, np.random.default_rng(3))

    for name, none in (("prefix_group", set()), ("session", {-1})):
        number = getattr(drawn, name)
        passes = [set(number[i : i + 3].tolist()) for i in (0, 3, 6)]
        assert passes[0] <= {0, 1} | none
        assert passes[1] <= {2, 3} | none
        assert passes[2] <= {4, 5} | none


def test_a_prefix_of_everybody_stays_one_when_extended():
    trace = with_shared_prefix(timed(), 5)

    longer = extend(trace, 40, np.random.default_rng(0))

    assert set(longer.prefix_group.tolist()) == {0}
    assert set(longer.prefix_tokens.tolist()) == {5}


def test_resampling_nothing_is_refused():
    with pytest.raises(InputError, match="0 requests asked for"):
        resample(timed(), 0, np.random.default_rng(0))


@settings(deadline=None)
@given(n=st.integers(1, 80), seed=st.integers(0, 99))
def test_an_extended_trace_begins_with_the_given_one(n, seed):
    trace = timed()

    longer = extend(trace, n, np.random.default_rng(seed))

    kept = len(trace)
    assert len(longer) == max(n, kept)
    np.testing.assert_array_equal(longer.arrival_s[:kept], trace.arrival_s)
    np.testing.assert_array_equal(longer.prompt_tokens[:kept], trace.prompt_tokens)
    assert (np.diff(longer.arrival_s) >= 0).all()
    assert rows_of(longer) <= rows_of(trace)


def test_the_gaps_come_again():
    trace = Trace([1, 1, 1], [1, 1, 1], arrival_s=[10.0, 11.0, 14.0])

    longer = extend(trace, 7, np.random.default_rng(0))

    # The first request of a pass comes one mean gap (2 s) after the last.
    assert longer.arrival_s.tolist() == [10, 11, 14, 16, 17, 20, 22]


def test_predictions_are_extended_with_their_requests():
    trace = Trace([1, 2], [10, 20], predicted_output_tokens=[11, 22])

    longer = extend(trace, 30, np.random.default_rng(0))

    assert set(
        zip(
            longer.output_tokens.tolist(),
            longer.predicted_output_tokens.tolist(),
            strict=True,
        )
    ) == {(10, 11), (20, 22)}


def test_requests_all_at_once_have_no_rate_to_go_on_with():
    trace = Trace([1, 1], [1, 1], arrival_s=[3.0, 3.0])

    with pytest.raises(InputError, match="no rate to"):
        extend(trace, 5, np.random.default_rng(0))


def test_a_shared_prefix_leaves_the_prompts_as_long_as_they_were():
    trace = with_shared_prefix(Trace([300, 301], [1, 1]), 300)

    assert trace.prompt_tokens.tolist() == [300, 301]
    assert trace.prefix_tokens.tolist() == [300, 300]
    assert trace.prefix_group.tolist() == [0, 0]


def test_a_shared_prefix_longer_than_a_prompt_is_cut_to_it_with_a_note():
    trace = with_shared_prefix(Trace([5, 299, 301], [1, 1, 1]), 300)

    assert trace.prompt_tokens.tolist() == [5, 299, 301]
    assert trace.prefix_tokens.tolist() == [5, 299, 300]
    assert trace.prefix_group.tolist() == [0, 0, 0]
    assert trace.notes[-1].endswith("cut for 2 of 3 prompts that are shorter")


def test_a_shared_prefix_of_nothing_is_no_group():
    trace = with_shared_prefix(Trace([5], [1]), 0)

    assert trace.prefix_group.tolist() == [-1]


def test_a_negative_shared_prefix_is_refused():
    with pytest.raises(InputError, match="--shared-prefix is -1"):
        with_shared_prefix(Trace([5], [1]), -1)


def test_a_limit_of_all_answers_takes_the_place_of_the_column():
    trace = Trace([5, 5], [20, 30], max_new_tokens=[40, 0])

    assert trace.most_output_tokens.tolist() == [40, 30]
    assert reshaped(trace).max_new_tokens.tolist() == [40, 0]
    assert reshaped(trace, max_new_tokens=64).max_new_tokens.tolist() == [64, 64]
    assert reshaped(trace, max_new_tokens=0).most_output_tokens.tolist() == [20, 30]


def test_a_limit_below_an_answer_is_refused():
    trace = Trace([5, 5, 5], [20, 30, 40])

    with pytest.raises(InputError, match="2 answers are longer than max_new_tokens 20"):
        with_max_new_tokens(trace, 20)
    with pytest.raises(InputError, match="row 2: output_tokens is 30 and max_new_tok"):
        Trace([5, 5], [20, 30], max_new_tokens=[20, 29])


def test_answers_made_longer_end_at_their_limit():
    trace = Trace([5, 5], [20, 30], max_new_tokens=[25, 0])

    assert with_output_scale(trace, 2.0).output_tokens.tolist() == [25, 60]


def test_every_length_distribution_is_under_these_laws():
    assert set(LENGTH_MEANS) == set(LENGTHS)


@pytest.mark.parametrize("name", LENGTH_MEANS)
def test_lengths_are_whole_and_have_the_stated_mean(name):
    text, expected = LENGTH_MEANS[name]
    lengths = parse_lengths(text)

    drawn = [lengths.draw(2000, np.random.default_rng(seed)) for seed in range(40)]

    assert all(sample.dtype == np.int64 and sample.min() >= 1 for sample in drawn)
    assert_mean([sample.mean() for sample in drawn], expected)


def test_synthetic_requests_may_have_times():
    trace = synthesise(
        "synthetic:prompt=uniform(low=1,high=9),output=4,n=50,rate=2,arrivals=constant",
        np.random.default_rng(0),
    )

    assert len(trace) == 50
    assert trace.arrival_s.tolist() == [i / 2 for i in range(50)]
    assert set(trace.output_tokens.tolist()) == {4}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("synthetic:prompt=5", "no output; expected output=TOKENS"),
        ("synthetic:prompt=5,output=5,size=3", "'size=3' is not understood"),
        ("synthetic:prompt=5,prompt=6,output=1", "'prompt=6' is not understood"),
        ("synthetic:prompt=5,output=5,n=0", "n is '0'; expected a whole number"),
        ("synthetic:prompt=5,output=5,n=1.5", "n is '1.5'; expected a whole number"),
        ("synthetic:prompt=5,output=5,rate=0", "rate is '0'; expected a number"),
        ("synthetic:prompt=-5,output=5", "tokens is -5; expected more than 0"),
        ("synthetic:prompt=nan,output=5", "'nan' is no length"),
        ("synthetic:prompt=inf,output=5", "'inf' is no length"),
        ("synthetic:prompt=5.5,output=5", "'5.5' is no length; expected whole"),
        ("synthetic:prompt=long,output=5", "'long' is no length"),
        ("synthetic:prompt=zipf(a=2),output=5", "unknown lengths 'zipf'"),
        ("synthetic:prompt=uniform(low=9),output=5", "take low and high; given: low"),
        ("synthetic:prompt=uniform(low=9,high=3),output=5", "1 <= low <= high"),
        ("synthetic:prompt=exponential(mean=x),output=5", "is no length"),
    ],
)
def test_a_synthetic_workload_that_cannot_be_is_refused(text, message):
    with pytest.raises(InputError, match=re.escape(message)):
        synthesise(text, np.random.default_rng(0))
