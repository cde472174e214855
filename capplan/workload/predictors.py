"""Predictors of output lengths, as a scheduler would use them.

A predictor is a function ``predict(trace, past, parameter, rng)`` that returns the
expected output tokens before rounding, listed in ``PREDICTORS``.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from capplan.errors import InputError
from capplan.units import number_in
from capplan.workload.conditional_mean import ConditionalMean
from capplan.workload.retrieval import neighbour_outputs
from capplan.workload.slo import base_classes
from capplan.workload.trace import MAX_TOKENS, Trace


class Predictor(NamedTuple):
    """A predictor and its parameter."""

    predict: Callable[[Trace, Trace, float, np.random.Generator], np.ndarray]
    parameter: str | None = None  # its name
    default: float = 0.0
    whole: bool = False  # from 1 to 1000; else between 0 and 1


def oracle(
    trace: Trace, past: Trace, parameter: float, rng: np.random.Generator
) -> np.ndarray:
    """Return the true lengths: the best possible prediction. [tokens]"""
    return trace.output_tokens


def aladdin(
    trace: Trace, past: Trace, parameter: float, rng: np.random.Generator
) -> np.ndarray:
    """Return the mean output of past requests with a similar prompt length. [tokens]

    Aladdin, section 2.3; see ``conditional_mean``.
    """
    return ConditionalMean.fit(past).predict(trace.prompt_tokens)


def sa_gaussian(
    trace: Trace, past: Trace, parameter: float, rng: np.random.Generator
) -> np.ndarray:
    """Return draws from a Gaussian fitted to past outputs of the class. [tokens]

    SA scheduling, section 4.2: the request profiler models the distribution of the
    output length of each task type.
    """
    outputs = _outputs_by_class(trace, past)
    mean = np.array([tokens.mean() for tokens in outputs])
    deviation = np.array([tokens.std() for tokens in outputs])
    drawn = rng.standard_normal(len(trace))
    return mean[trace.request_class] + deviation[trace.request_class] * drawn


def relative_error(
    trace: Trace, past: Trace, parameter: float, rng: np.random.Generator
) -> np.ndarray:
    """Return the true lengths with a uniform relative error, ± parameter. [tokens]"""
    return trace.output_tokens * (1 + parameter * rng.uniform(-1, 1, len(trace)))


def quantile(
    trace: Trace, past: Trace, parameter: float, rng: np.random.Generator
) -> np.ndarray:
    """Return a quantile of past outputs of the class. [tokens]"""
    outputs = _outputs_by_class(trace, past)
    level = np.array([np.quantile(tokens, parameter) for tokens in outputs])
    return level[trace.request_class]


def retrieval(
    trace: Trace, past: Trace, parameter: float, rng: np.random.Generator
) -> np.ndarray:
    """Return the median output of the k past requests most like each. [tokens]

    See ``neighbour_outputs``. On the traces of ``capplan/workload/README.md`` the
    median is nearer than the mean, and too low in total. 1 token in a trace of one.
    """
    outputs = neighbour_outputs(trace, past, int(parameter))
    outputs[np.isnan(outputs).all(axis=1), 0] = 1
    return np.asarray(np.nanmedian(outputs, axis=1))


def _outputs_by_class(trace: Trace, past: Trace) -> list[np.ndarray]:
    """Return past outputs of each class, whatever its limits; all of a new class."""
    names, base = base_classes(trace.class_names)
    past_names, past_base = base_classes(past.class_names)
    past_class = past_base[past.request_class]
    outputs = []
    for name in names:
        index = past_names.index(name) if name in past_names else -1
        of_class = past.output_tokens[past_class == index]
        outputs.append(of_class if len(of_class) else past.output_tokens)
    return [outputs[index] for index in base]


PREDICTORS = {
    "oracle": Predictor(oracle),
    "aladdin": Predictor(aladdin),
    "sa-gaussian": Predictor(sa_gaussian),
    "relative-error": Predictor(relative_error, "error", 0.1),
    "quantile": Predictor(quantile, "q", 0.9),
    "retrieval": Predictor(retrieval, "k", 16, whole=True),
}
"""Predictors by name."""


def predict(
    text: str, trace: Trace, past: Trace | None, rng: np.random.Generator
) -> np.ndarray:
    """Return predicted output lengths, whole and at least 1, shape (n,). [tokens]

    ``text`` is a name with its parameter, such as ``relative-error:error=0.05``;
    ``past`` has known outputs, by default the trace itself.

    Examples
    --------
    >>> trace = Trace([5, 5], [10, 20])
    >>> predict("aladdin", trace, None, np.random.default_rng(0)).tolist()
    [15, 15]
    """
    predictor, parameter = _parsed(text)
    past = trace if past is None else past
    expected = predictor.predict(trace, past, parameter, rng)
    return np.clip(np.rint(expected), 1, MAX_TOKENS).astype(np.int64)


def foreseen(trace: Trace, predictor: str | None, rng: np.random.Generator) -> Trace:
    """Return requests with the output lengths that policies are to expect."""
    if trace.predicted_output_tokens is not None:
        if predictor is not None:
            raise InputError(
                f"{trace.source}: has predicted_output_tokens; "
                "expected no --predictor beside them"
            )
        return with_error(trace, "the trace")
    return trace if predictor is None else with_predictions(trace, predictor, None, rng)


def with_predictions(
    trace: Trace, text: str, past: Trace | None, rng: np.random.Generator
) -> Trace:
    """Return the trace with ``predicted_output_tokens``; see :func:`predict`."""
    predicted = predict(text, trace, past, rng)
    return with_error(replace(trace, predicted_output_tokens=predicted), text)


def with_error(trace: Trace, source: str) -> Trace:
    """Return the trace with a note on its predictions' source and error."""
    note = f"answer lengths predicted by {source}: {prediction_error(trace)}"
    return replace(trace, notes=(*trace.notes, note))


class PredictionError(NamedTuple):
    """Error of predicted output lengths over a trace, as shares of the true ones."""

    mean: float  # of the requests' absolute errors
    median: float  # of the requests' absolute errors
    bias: float  # of all output tokens; above 0 where predicted too long

    def __str__(self) -> str:
        """Return ``off by 20 % in the median, 50 % on average, -10 % in total``."""
        return (
            f"off by {100 * self.median:.3g} % in the median, "
            f"{100 * self.mean:.3g} % on average, {100 * self.bias:+.3g} % in total"
        )


def prediction_error(trace: Trace) -> PredictionError:
    """Return the error of a trace's ``predicted_output_tokens``.

    Examples
    --------
    >>> prediction_error(Trace([5, 5], [10, 20], predicted_output_tokens=[15, 20]))
    PredictionError(mean=0.25, median=0.25, bias=0.16666666666666666)
    """
    if trace.predicted_output_tokens is None:
        raise ValueError(f"{trace.source}: no predicted_output_tokens")
    error_tokens = trace.predicted_output_tokens - trace.output_tokens
    shares = np.abs(error_tokens) / trace.output_tokens
    return PredictionError(
        float(shares.mean()),
        float(np.median(shares)),
        float(error_tokens.sum() / trace.output_tokens.sum()),
    )


def _parsed(text: str) -> tuple[Predictor, float]:
    name, _, given = text.strip().partition(":")
    if name not in PREDICTORS:
        raise InputError(
            f"unknown predictor {name!r}; expected {', '.join(PREDICTORS)}"
        )
    predictor = PREDICTORS[name]
    if not given:
        return predictor, predictor.default
    parameter, _, value = given.partition("=")
    number = number_in(value)
    low, high, what = 0.0, 1.0, "a number between 0 and 1"
    if predictor.whole:
        low, high, what = 0, 1001, "a whole number from 1 to 1000"
    fits = low < number < high and not (predictor.whole and number % 1)
    if parameter.strip() != predictor.parameter or not fits:
        takes = f"{predictor.parameter}= {what}" if predictor.parameter else "nothing"
        raise InputError(f"predictor {text!r}: {name} takes {takes}")
    return predictor, number
