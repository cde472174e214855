"""What a scheduler would guess of answer lengths: one function per predictor.

A predictor is a function ``predict(trace, past, parameter, rng)`` that returns
the expected tokens of each answer, before rounding. Adding one is a function
and a line in ``PREDICTORS``.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from capplan.errors import InputError
from capplan.workload.conditional_mean import ConditionalMean
from capplan.workload.trace import MAX_TOKENS, Trace


class Predictor(NamedTuple):
    """A predictor and the one number that it may take.

    Parameters
    ----------
    predict
        Returns the expected answer of each request, shape (n,). [tokens]
    parameter
        Name of its number; None when it takes none.
    bounds
        The number is more than the first and less than the second.
    default
        The number where none is given.
    """

    predict: Callable[[Trace, Trace, float, np.random.Generator], np.ndarray]
    parameter: str | None = None
    bounds: tuple[float, float] = (0.0, 1.0)
    default: float = 0.0


def oracle(
    trace: Trace, past: Trace, parameter: float, rng: np.random.Generator
) -> np.ndarray:
    """Return the true lengths: the best that any predictor could do. [tokens]"""
    return trace.output_tokens


def aladdin(
    trace: Trace, past: Trace, parameter: float, rng: np.random.Generator
) -> np.ndarray:
    """Return the mean answer of past requests with a similar prompt length. [tokens]

    References
    ----------
    Nie et al., "Aladdin: Joint Placement and Scaling for SLO-Aware LLM Serving",
    arXiv:2405.06856, section 2.3.
    """
    return ConditionalMean.fit(past).predict(trace.prompt_tokens)


def sa_gaussian(
    trace: Trace, past: Trace, parameter: float, rng: np.random.Generator
) -> np.ndarray:
    """Return draws from a Gaussian fitted to past answers of the class. [tokens]

    A class that the past does not have takes the Gaussian of all classes.

    References
    ----------
    SA scheduling, section 4.2: the request profiler models the distribution of
    the output length of each task type.
    """
    mean = np.full(len(trace.class_names), past.output_tokens.mean())
    deviation = np.full(len(trace.class_names), past.output_tokens.std())
    for index, name in enumerate(trace.class_names):
        if name in past.class_names:
            own = past.request_class == past.class_names.index(name)
            if own.any():
                mean[index] = past.output_tokens[own].mean()
                deviation[index] = past.output_tokens[own].std()
    drawn = rng.standard_normal(len(trace))
    return mean[trace.request_class] + deviation[trace.request_class] * drawn


def relative_error(
    trace: Trace, past: Trace, parameter: float, rng: np.random.Generator
) -> np.ndarray:
    """Return the true length, off by at most a share, evenly either way. [tokens]"""
    return trace.output_tokens * (1 + parameter * rng.uniform(-1, 1, len(trace)))


def quantile(
    trace: Trace, past: Trace, parameter: float, rng: np.random.Generator
) -> np.ndarray:
    """Return one quantile of past answers of the class, for everyone. [tokens]"""
    level = np.full(len(trace.class_names), np.quantile(past.output_tokens, parameter))
    for index, name in enumerate(trace.class_names):
        if name in past.class_names:
            own = past.request_class == past.class_names.index(name)
            if own.any():
                level[index] = np.quantile(past.output_tokens[own], parameter)
    return level[trace.request_class]


PREDICTORS = {
    "oracle": Predictor(oracle),
    "aladdin": Predictor(aladdin),
    "sa-gaussian": Predictor(sa_gaussian),
    "relative-error": Predictor(relative_error, "error", (0.0, 1.0), 0.1),
    "quantile": Predictor(quantile, "q", (0.0, 1.0), 0.9),
}
"""Name of a predictor to the function that predicts."""


def predict(
    text: str, trace: Trace, past: Trace | None, rng: np.random.Generator
) -> np.ndarray:
    """Return the predicted answers as whole tokens, at least 1, shape (n,).

    Parameters
    ----------
    text
        A name of ``PREDICTORS``, with its number where it takes one:
        ``aladdin``, ``relative-error:error=0.05``.
    trace
        The requests.
    past
        Requests whose answers are known; None takes the trace itself, as after
        a long while in service.
    rng
        Source of the draws.

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


def with_predictions(
    trace: Trace, text: str, past: Trace | None, rng: np.random.Generator
) -> Trace:
    """Return the trace with the predictor's guesses as a column."""
    predicted = predict(text, trace, past, rng)
    note = f"answer lengths predicted by {text}"
    return replace(trace, predicted_output_tokens=predicted, notes=(*trace.notes, note))


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
    low, high = predictor.bounds
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if parameter.strip() != predictor.parameter or not low < number < high:
        takes = (
            f"{predictor.parameter}= a number between {low:g} and {high:g}"
            if predictor.parameter
            else "nothing"
        )
        raise InputError(f"predictor {text!r}: {name} takes {takes}")
    return predictor, number
