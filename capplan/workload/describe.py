"""Summary statistics of a trace."""

from dataclasses import dataclass

import numpy as np

from capplan.workload.trace import Trace

_SHARES = (0.1, 0.5, 0.9, 0.99)
_LEAST_WINDOWS = 10


@dataclass(frozen=True)
class TokenSummary:
    """Mean, quantiles, largest and sum of a column of lengths. [tokens]"""

    mean: float
    p10: float
    p50: float
    p90: float
    p99: float
    most: int
    total: int


@dataclass(frozen=True)
class TraceSummary:
    """Summary statistics of a trace.

    Parameters
    ----------
    source
        Where the requests come from.
    request_count
        Requests.
    duration_s
        First to last arrival; 0 without times. [s]
    rate_per_s
        Mean arrival rate; NaN without times. [requests/s]
    peak_rate_per_s
        Rate in the busiest minute, or in the busiest tenth of a trace shorter than
        ten minutes; NaN without times. [requests/s]
    prompt_tokens, output_tokens
        Lengths of prompts and outputs.
    burstiness_1s, burstiness_60s
        See :func:`burstiness`, with windows of 1 s and 60 s.
    class_counts
        Requests of each class.
    shared_prefix_share
        Share of prompt tokens in the shared prefix of a group.
    notes
        What was corrected or estimated while reading.
    """

    source: str
    request_count: int
    duration_s: float
    rate_per_s: float
    peak_rate_per_s: float
    prompt_tokens: TokenSummary
    output_tokens: TokenSummary
    burstiness_1s: float
    burstiness_60s: float
    class_counts: dict[str, int]
    shared_prefix_share: float
    notes: tuple[str, ...]


def describe_trace(trace: Trace) -> TraceSummary:
    """Return the summary of a trace.

    Examples
    --------
    >>> summary = describe_trace(Trace([10, 30], [1, 3], arrival_s=[0.0, 4.0]))
    >>> summary.rate_per_s, summary.prompt_tokens.mean, summary.output_tokens.total
    (0.25, 20.0, 4)
    """
    by_class = np.bincount(trace.request_class, minlength=len(trace.class_names))
    prefix = trace.prefix_tokens[trace.prefix_group >= 0].sum()
    return TraceSummary(
        source=trace.source,
        request_count=len(trace),
        duration_s=trace.duration_s,
        rate_per_s=trace.rate_per_s,
        peak_rate_per_s=_peak_rate_per_s(trace),
        prompt_tokens=_summary(trace.prompt_tokens),
        output_tokens=_summary(trace.output_tokens),
        burstiness_1s=burstiness(trace, 1.0),
        burstiness_60s=burstiness(trace, 60.0),
        class_counts=dict(zip(trace.class_names, by_class.tolist(), strict=True)),
        shared_prefix_share=float(prefix / trace.prompt_tokens.sum()),
        notes=trace.notes,
    )


def burstiness(trace: Trace, window_s: float) -> float:
    """Return variance ÷ mean of the arrivals counted in windows of ``window_s``.

    The index of dispersion (Cox and Lewis, "The Statistical Analysis of Series of
    Events", 1966, section 4.5): 1 for Poisson arrivals, more for bursts, less for
    regular arrivals; NaN with fewer than ten windows.
    """
    windows = int(trace.duration_s // window_s)
    if trace.arrival_s is None or windows < _LEAST_WINDOWS:
        return float("nan")
    edges_s = trace.arrival_s[0] + window_s * np.arange(windows + 1)
    counts = np.diff(np.searchsorted(trace.arrival_s, edges_s))
    return float(counts.var(ddof=1) / counts.mean())


def _peak_rate_per_s(trace: Trace) -> float:
    if trace.arrival_s is None or not trace.duration_s > 0:
        return float("nan")
    window_s = min(60.0, trace.duration_s / 10)
    reached = np.searchsorted(trace.arrival_s, trace.arrival_s + window_s, "left")
    return float((reached - np.arange(len(trace))).max() / window_s)


def _summary(tokens: np.ndarray) -> TokenSummary:
    p10, p50, p90, p99 = (float(value) for value in np.quantile(tokens, _SHARES))
    mean, total = float(tokens.mean()), int(tokens.sum())
    return TokenSummary(mean, p10, p50, p90, p99, int(tokens.max()), total)
