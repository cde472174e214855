"""What arrives over the time of a trace, and how long its requests are."""

from dataclasses import dataclass

import numpy as np

from capplan.units import parse_duration_s
from capplan.workload.slo import base_classes
from capplan.workload.trace import Trace

LEVELS = np.concatenate([np.linspace(0.01, 0.99, 50), [0.999]])
"""Levels at which distributions of lengths are drawn."""

_WIDTHS = ("1s", "5s", "10s", "30s", "1m", "5m", "15m", "1h", "4h", "24h")
_HOUR_S = 3600.0
_MOST_BINS = 170
"""Bins at most: a week by the hour has 168."""
_LEAST_REQUESTS = 100
"""Requests of a bin in the mean: by chance alone their number differs by a tenth."""


@dataclass(frozen=True, eq=False)
class Traffic:
    """What arrives in each of the bins of a trace, in order, shape (bins,) each."""

    width_s: float  # of a bin; the last takes what is left and may be longer [s]
    start_s: np.ndarray  # after the first arrival [s]
    rate_per_s: np.ndarray  # [requests/s]
    prompt_tokens_per_s: np.ndarray  # [tokens/s]
    output_tokens_per_s: np.ndarray  # of the answers to what arrives [tokens/s]

    @property
    def busiest(self) -> int:
        """Index of the bin in which most requests arrive."""
        return int(np.argmax(self.rate_per_s))


@dataclass(frozen=True, eq=False)
class Lengths:
    """How long the requests of a class are, or all of them."""

    class_name: str  # empty: all
    request_count: int
    prompt_tokens_mean: float  # [tokens]
    prompt_tokens_p50: float  # [tokens]
    prompt_tokens_p90: float  # [tokens]
    prompt_tokens_p99: float  # [tokens]
    output_tokens_mean: float  # [tokens]
    output_tokens_p50: float  # [tokens]
    output_tokens_p90: float  # [tokens]
    output_tokens_p99: float  # [tokens]
    prompt_tokens_quantiles: np.ndarray  # at LEVELS, shape (levels,) [tokens]
    output_tokens_quantiles: np.ndarray  # at LEVELS, shape (levels,) [tokens]


def traffic_over_time(trace: Trace) -> Traffic | None:
    """Return what arrives over a trace's own times; None where these span < 2 s."""
    if trace.arrival_s is None or len(trace) < 2:
        return None
    since_s = np.asarray(trace.arrival_s - trace.arrival_s[0], dtype=float)
    span_s = float(since_s[-1])
    width_s = _width_s(span_s, len(trace))
    if width_s is None:
        return None
    count = int(span_s / width_s)
    # A short rest would show a rate of few requests: it joins the bin before it.
    if span_s - count * width_s >= width_s / 2:
        count += 1
    index = np.minimum((since_s / width_s).astype(np.int64), count - 1)
    lasts_s = np.full(count, width_s)
    lasts_s[-1] = span_s - (count - 1) * width_s

    def per_s(tokens: np.ndarray | None = None) -> np.ndarray:
        return np.bincount(index, tokens, count) / lasts_s

    return Traffic(
        width_s,
        np.arange(count) * width_s,
        per_s(),
        per_s(trace.prompt_tokens),
        per_s(trace.output_tokens),
    )


def busiest_hour_of_mean(trace: Trace) -> float | None:
    """Return the rate of a trace's busiest hour over its mean; None of less than two.

    Its last hour counts as a whole one.
    """
    if trace.arrival_s is None or len(trace) < 2:
        return None
    since_s = trace.arrival_s - trace.arrival_s[0]
    if since_s[-1] < 2 * _HOUR_S:
        return None
    busiest = int(np.bincount((since_s / _HOUR_S).astype(np.int64)).max())
    return busiest / _HOUR_S / trace.rate_per_s


def _width_s(span_s: float, request_count: int) -> float | None:
    """Return the width of bins that are few, and hold requests enough to show a rate.

    The widest of two bins where requests are few; None where there are no two. [s]
    """
    widths_s = [parse_duration_s(text) for text in _WIDTHS]
    dividing = [width_s for width_s in widths_s if 2 * width_s <= span_s]
    for width_s in dividing:
        bins = span_s / width_s
        if bins <= _MOST_BINS and request_count / bins >= _LEAST_REQUESTS:
            return width_s
    return dividing[-1] if dividing else None


def lengths_of(trace: Trace) -> tuple[Lengths, ...]:
    """Return how long all requests are, and those of each class where there are two."""
    names, base = base_classes(trace.class_names)
    of_class = np.asarray(base)[trace.request_class]
    found = [_lengths("", trace.prompt_tokens, trace.output_tokens)]
    used = np.unique(of_class).tolist()
    if len(used) > 1:
        for k in used:
            rows = of_class == k
            prompts, outputs = trace.prompt_tokens[rows], trace.output_tokens[rows]
            found.append(_lengths(names[k], prompts, outputs))
    return tuple(found)


def _lengths(name: str, prompts: np.ndarray, outputs: np.ndarray) -> Lengths:
    levels = np.concatenate([[0.5, 0.9, 0.99], LEVELS])
    # A length that a request has: the least that so many are within.
    of_prompts = np.quantile(prompts, levels, method="inverted_cdf").astype(float)
    of_outputs = np.quantile(outputs, levels, method="inverted_cdf").astype(float)
    prompt_p50, prompt_p90, prompt_p99 = of_prompts[:3].tolist()
    output_p50, output_p90, output_p99 = of_outputs[:3].tolist()
    return Lengths(
        name,
        len(prompts),
        prompt_tokens_mean=float(prompts.mean()),
        prompt_tokens_p50=prompt_p50,
        prompt_tokens_p90=prompt_p90,
        prompt_tokens_p99=prompt_p99,
        output_tokens_mean=float(outputs.mean()),
        output_tokens_p50=output_p50,
        output_tokens_p90=output_p90,
        output_tokens_p99=output_p99,
        prompt_tokens_quantiles=of_prompts[3:],
        output_tokens_quantiles=of_outputs[3:],
    )
