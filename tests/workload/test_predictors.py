"""Predictors of answer lengths: unbiased where they claim it, never looking ahead."""

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.errors import InputError
from capplan.workload.conditional_mean import (
    LEAST_REQUESTS,
    ConditionalMean,
)
from capplan.workload.predictors import (
    PREDICTORS,
    PredictionError,
    predict,
    prediction_error,
    with_predictions,
)
from capplan.workload.readers import read_trace
from capplan.workload.retrieval import neighbour_outputs
from capplan.workload.trace import Trace

UNBIASED = ["oracle", "aladdin", "sa-gaussian", "relative-error"]


def assert_mean(replications, expected, z=4.0):
    replications = np.asarray(replications, float)
    error = replications.std(ddof=1) / np.sqrt(replications.size)
    assert abs(replications.mean() - expected) <= z * error + 1e-9


def requests(seed, n=600):
    """Answers near 200 tokens in one class and 800 in the other, far from 1."""
    rng = np.random.default_rng(seed)
    request_class = rng.integers(2, size=n)
    prompt_tokens = rng.integers(1, 3000, n)
    output_tokens = np.rint(
        rng.normal(200 + 600 * request_class + prompt_tokens / 20, 30)
    )
    return Trace(
        prompt_tokens,
        output_tokens,
        request_class=request_class,
        class_names=("chat", "code"),
    )


@pytest.mark.thorough
@pytest.mark.parametrize("name", PREDICTORS)
@settings(deadline=None, max_examples=50)
@given(
    tokens=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 9)), min_size=1),
    seed=st.integers(0, 9),
)
def test_a_prediction_is_a_whole_answer(name, tokens, seed):
    prompt, output = np.array(tokens).T
    trace = Trace(prompt, output)

    predicted = predict(name, trace, None, np.random.default_rng(seed))

    assert predicted.shape == (len(trace),)
    assert predicted.dtype == np.int64
    assert predicted.min() >= 1


@pytest.mark.parametrize("name", UNBIASED)
def test_predictions_from_the_past_are_unbiased(name):
    errors = []
    for seed in range(60):
        now, past = requests(seed), requests(1000 + seed)
        predicted = predict(name, now, past, np.random.default_rng(seed))
        errors.append((predicted - now.output_tokens).mean())

    assert_mean(errors, 0.0)


@pytest.mark.parametrize("name", ["aladdin", "sa-gaussian", "quantile", "retrieval"])
def test_a_predictor_from_the_past_never_looks_at_the_answer(name):
    now, past = requests(1), requests(2)
    turned = Trace(
        now.prompt_tokens,
        now.output_tokens[::-1],
        request_class=now.request_class,
        class_names=now.class_names,
    )

    seen = predict(name, now, past, np.random.default_rng(5))
    other = predict(name, turned, past, np.random.default_rng(5))

    np.testing.assert_array_equal(seen, other)


def test_the_oracle_knows():
    now = requests(1)

    predicted = predict("oracle", now, None, np.random.default_rng(0))

    np.testing.assert_array_equal(predicted, now.output_tokens)


@pytest.mark.parametrize("error", [0.025, 0.05, 0.10])
def test_relative_error_stays_within_its_share(error):
    now = requests(1)

    predicted = predict(
        f"relative-error:error={error}", now, None, np.random.default_rng(0)
    )

    off = np.abs(predicted - now.output_tokens)
    assert (off <= error * now.output_tokens + 0.5).all()
    assert off.max() > error * now.output_tokens.max() / 2


def test_a_gaussian_is_fitted_to_each_class():
    now, past = requests(1, 20_000), requests(2, 20_000)

    predicted = predict("sa-gaussian", now, past, np.random.default_rng(0))

    for index in range(2):
        own = past.output_tokens[past.request_class == index]
        drawn = predicted[now.request_class == index]
        error = own.std() / np.sqrt(len(drawn))
        assert abs(drawn.mean() - own.mean()) < 4 * error
        assert drawn.std() == pytest.approx(own.std(), rel=0.05)


@pytest.mark.parametrize("q", [0.5, 0.9])
def test_a_quantile_covers_its_share_of_each_class(q):
    now, past = requests(1, 20_000), requests(2, 20_000)

    predicted = predict(f"quantile:q={q}", now, past, np.random.default_rng(0))

    for index in range(2):
        own = now.request_class == index
        covered = (now.output_tokens[own] <= predicted[own]).mean()
        # Both the level and the share are estimated from about 10,000 requests.
        assert abs(covered - q) < 4 * np.sqrt(2 * q * (1 - q) / own.sum()) + 0.01


def test_a_class_the_past_does_not_have_takes_all_of_it():
    past = Trace([1, 1, 1, 1], [10, 20, 30, 40])
    now = Trace([1], [99], class_names=("new",))

    assert predict("quantile:q=0.5", now, past, np.random.default_rng(0)) == [25]


def test_similar_prompts_share_a_mean_by_hand():
    # Two bins of LEAST_REQUESTS: prompts up to 10, and longer ones.
    k = LEAST_REQUESTS
    past = Trace([10] * k + [500] * k, [100] * k + [300] * (k // 2) + [500] * (k // 2))

    predicted = ConditionalMean.fit(past).predict(np.array([1, 10, 11, 9999]))

    assert predicted.tolist() == [100, 100, 400, 400]


def test_a_short_past_is_one_bin():
    past = Trace([1, 1000], [10, 20])

    assert ConditionalMean.fit(past).predict(np.array([1, 1000])).tolist() == [15, 15]


def test_the_nearest_prompts_of_the_class_are_neighbours_by_hand():
    past = Trace(
        [10, 20, 40, 41, 1000],
        [1, 2, 3, 400, 5],
        request_class=[0, 0, 0, 1, 0],
        class_names=("chat", "code"),
    )
    # By ratio 40 is nearer to 60 than 20 is to 40; 20 is as near to 40 as 10 to 20.
    now = Trace([60, 21, 7], [9, 9, 9], class_names=("chat",))

    one, three = (
        predict(f"retrieval:k={k}", now, past, np.random.default_rng(0)) for k in (1, 3)
    )

    assert one.tolist() == [3, 2, 1]
    assert three.tolist() == [2, 2, 2]  # medians of 1, 2 and 3


def test_a_request_is_not_its_own_neighbour():
    trace = Trace([10, 11, 500], [100, 200, 900])

    predicted = predict("retrieval:k=1", trace, None, np.random.default_rng(0))

    assert predicted.tolist() == [200, 100, 200]


def test_those_before_in_a_session_come_first_by_hand():
    # Rows 0, 2 and 4 are a session.
    trace = Trace(
        [10, 100, 20, 101, 99],
        [1000, 7, 2000, 9, 3000],
        prefix_group=[5, -1, 5, -1, 5],
    )

    one, three = (
        predict(f"retrieval:k={k}", trace, None, np.random.default_rng(0))
        for k in (1, 3)
    )

    assert one[[2, 4]].tolist() == [1000, 2000]
    # The first has the others' 7 and 9, and then the next of its session, 2000.
    assert three[[0, 2, 4]].tolist() == [9, 9, 1000]


def test_later_requests_of_a_session_are_not_known():
    trace = Trace([10, 10, 90, 95], [1, 500, 3, 5], prefix_group=[0, 0, -1, -1])

    predicted = predict("retrieval:k=2", trace, None, np.random.default_rng(0))

    assert predicted[:2].tolist() == [4, 2]


def test_a_prefix_that_all_share_hardly_changes_the_error():
    plain = requests(1)
    shared = replace(plain, prefix_group=np.zeros(600, np.int64))

    own, other = (
        predict("retrieval", trace, None, np.random.default_rng(0))
        for trace in (plain, shared)
    )

    error = [np.abs(x - plain.output_tokens).mean() for x in (own, other)]
    assert error[1] < 1.2 * error[0]


@settings(deadline=None, max_examples=50)
@given(
    tokens=st.lists(
        st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(0, 1)),
        min_size=2,
        max_size=40,
    ),
    k=st.integers(1, 5),
    seed=st.integers(0, 9),
)
def test_neighbours_are_the_nearest_of_the_class(tokens, k, seed):
    prompt, output, request_class = np.array(tokens).T
    trace = Trace(prompt, output, None, request_class, ("a", "b"))

    found = neighbour_outputs(trace, trace, k)

    for row in range(len(trace)):
        others = np.arange(len(trace)) != row
        alike = others & (request_class == request_class[row])
        rows = np.flatnonzero(alike if alike.any() else others)
        distance = np.sort(np.abs(np.log(prompt[rows] / prompt[row])))[:k]
        outputs = found[row][~np.isnan(found[row])]
        assert len(outputs) == len(distance)
        within = np.abs(np.log(prompt[rows] / prompt[row])) <= distance[-1] + 1e-12
        assert not Counter(outputs.tolist()) - Counter(output[rows[within]].tolist())


def test_limits_of_requests_make_no_difference_to_predictions():
    plain, limits = requests(1), ("chat/ttft=1s", "code", "chat")
    split = np.where((plain.request_class == 0) & (np.arange(600) % 2 == 0), 2, 0)
    index = np.where(plain.request_class == 1, 1, split)
    limited = replace(plain, request_class=index, class_names=limits)

    for name in PREDICTORS:
        np.testing.assert_array_equal(
            predict(name, plain, None, np.random.default_rng(0)),
            predict(name, limited, None, np.random.default_rng(0)),
        )


def test_the_error_of_a_prediction_by_hand():
    trace = Trace([5] * 4, [10, 20, 40, 100], predicted_output_tokens=[15, 20, 30, 80])

    found = prediction_error(trace)

    # Shares 0.5, 0, 0.25 and 0.2; 145 tokens predicted of 170.
    assert found == PredictionError(*map(pytest.approx, (0.2375, 0.225, -25 / 170)))


def test_a_prediction_of_no_tokens_is_refused_with_its_row_and_value(tmp_path):
    with pytest.raises(InputError, match="row 2: predicted_output_tokens is 0; exp"):
        Trace([5, 5], [1, 1], predicted_output_tokens=[1, 0])
    path = tmp_path / "trace.csv"
    path.write_text(
        "prompt_tokens,output_tokens,predicted_output_tokens\n5,6,7\n5,6,0\n"
    )
    with pytest.raises(InputError, match=":3: predicted_output_tokens is 0; expected"):
        read_trace(path)


def test_predictions_become_a_column_with_a_note():
    trace = with_predictions(
        Trace([5, 5], [10, 20]), "aladdin", None, np.random.default_rng(0)
    )

    assert trace.predicted_output_tokens.tolist() == [15, 15]
    assert trace.notes[-1] == (
        "answer lengths predicted by aladdin: off by 37.5 % in the median, "
        "37.5 % on average, +0 % in total"
    )
    assert trace.select(slice(1, 2)).predicted_output_tokens.tolist() == [15]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("magic", "unknown predictor 'magic'; expected oracle, aladdin"),
        ("oracle:q=1", "oracle takes nothing"),
        ("quantile:q=1", "quantile takes q= a number between 0 and 1"),
        ("quantile:error=0.5", "quantile takes q= a number"),
        ("retrieval:k=0", "retrieval takes k= a whole number from 1 to 1000"),
        ("retrieval:k=2.5", "retrieval takes k= a whole number"),
        ("relative-error:error=much", "relative-error takes error= a number"),
    ],
)
def test_a_predictor_that_cannot_be_is_refused(text, message):
    with pytest.raises(InputError, match=re.escape(message)):
        predict(text, Trace([1], [1]), None, np.random.default_rng(0))
