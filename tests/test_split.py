"""Splits of requests over pools: bands by hand, and laws of what they cover."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.deployment.split import SizeBand, Split, bands_of, dealt
from capplan.errors import InputError
from capplan.workload.trace import MAX_TOKENS, Trace


def test_bands_are_cut_at_quantiles_of_the_prompt_and_then_of_the_answer():
    trace = Trace(
        [1, 2, 3, 4, 10, 20, 30, 40],
        [1] * 8,
        predicted_output_tokens=np.array([1, 9, 1, 9, 5, 5, 7, 7]),
    )

    bands = bands_of(trace, prompt_bands=2, output_bands=2, least_requests=2)

    assert bands == (
        SizeBand("", (1, 4), (1, 1)),
        SizeBand("", (1, 4), (2, MAX_TOKENS)),
        SizeBand("", (5, MAX_TOKENS), (1, 5)),
        SizeBand("", (5, MAX_TOKENS), (6, MAX_TOKENS)),
    )


def test_a_band_is_not_cut_below_the_fewest_requests():
    trace = Trace(np.arange(1, 11), np.ones(10))

    assert len(bands_of(trace, 6, 4, least_requests=5)) == 2
    assert len(bands_of(trace, 6, 4, least_requests=6)) == 1


def test_classes_have_bands_of_their_own_without_the_limits_in_their_names():
    trace = Trace(
        [5, 6, 7],
        [1, 1, 1],
        request_class=np.array([0, 1, 2]),
        class_names=("chat/ttft=1s", "code", "chat/ttft=2s"),
    )

    bands = bands_of(trace, 6, 4, least_requests=200)

    assert [band.class_name for band in bands] == ["chat", "code"]
    assert bands[0].holds(trace).tolist() == [True, False, True]


lengths = st.lists(st.integers(1, 60), min_size=1, max_size=60)


@given(lengths, lengths, st.integers(1, 6), st.integers(1, 4), st.integers(1, 30))
def test_each_request_is_of_exactly_one_band_and_none_is_empty(
    prompts, outputs, prompt_bands, output_bands, least
):
    n = min(len(prompts), len(outputs))
    trace = Trace(
        prompts[:n],
        np.ones(n),
        request_class=np.arange(n) % 2,
        class_names=("a", "b")[:n],
        predicted_output_tokens=np.array(outputs[:n]),
    )

    bands = bands_of(trace, prompt_bands, output_bands, least)

    holds = np.array([band.holds(trace) for band in bands])
    assert (holds.sum(axis=0) == 1).all()
    assert holds.any(axis=1).all()


@given(st.lists(st.integers(0, 6), min_size=1, max_size=4).filter(any))
def test_turns_are_never_more_than_one_from_their_share(parts):
    turns = np.tile(dealt(parts), 3)

    for pool, part in enumerate(parts):
        got = np.cumsum(turns == pool)
        due = np.arange(1, len(turns) + 1) * part / sum(parts)
        assert (np.abs(got - due) <= 1).all()


def test_a_request_that_no_band_holds_is_named():
    split = Split((SizeBand("", (1, 10)),), ((1, 1),))

    with pytest.raises(InputError, match="request 1 with a prompt of 11 tokens"):
        split.pools_of(Trace([10, 11], [1, 1]))


@pytest.mark.parametrize("parts", [(), ((0, 0),), ((1,), (1,)), ((-1, 2),)])
def test_parts_that_do_not_fit_the_bands_are_refused(parts):
    with pytest.raises(InputError, match="expected"):
        Split((SizeBand("", (1, 10)),), parts)


def test_a_split_over_answers_needs_predictions():
    split = Split((SizeBand("", (1, 10), (1, 5)),), ((1,),))

    with pytest.raises(InputError, match="--predictor"):
        split.pools_of(Trace([1], [1]))


@given(lengths, lengths, st.lists(st.integers(0, 2), min_size=60, max_size=60))
def test_requests_of_a_band_are_dealt_in_turn_as_one_after_the_other(
    prompts, outputs, classes
):
    n = min(len(prompts), len(outputs)) + 2
    answers = np.array([1, 1, *outputs][:n])
    trace = Trace(
        [1, 1, *prompts][:n],
        answers,
        request_class=np.array([0, 1, *classes][:n]),
        class_names=("chat/ttft=1s", "code", "chat/ttft=2s"),
        predicted_output_tokens=answers,
    )
    bands = bands_of(trace, 3, 2, least_requests=4)
    split = Split(bands, tuple((1 + k % 3, k % 2) for k in range(len(bands))))
    taken = [0] * len(bands)
    expected = []

    for row in range(n):
        one = trace.select(slice(row, row + 1))
        band = next(k for k, each in enumerate(bands) if each.holds(one)[0])
        turn = dealt(split.parts[band])
        expected.append(turn[taken[band] % len(turn)])
        taken[band] += 1

    assert split.pools_of(trace).tolist() == expected
