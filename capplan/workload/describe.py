"""Summary statistics of a trace."""

from dataclasses import dataclass

import numpy as np

from capplan.workload.slo import base_classes
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
    """Summary statistics of a trace."""

    source: str
    request_count: int
    duration_s: float  # first to last arrival; 0 without times
    rate_per_s: float  # mean; NaN without times [requests/s]
    peak_rate_per_s: float  # in the busiest minute, or tenth of a short trace
    prompt_tokens: TokenSummary
    output_tokens: TokenSummary
    burstiness_1s: float  # see :func:`burstiness`
    burstiness_60s: float
    class_counts: dict[str, int]  # requests of each class
    shared_prefix_share: float  # of prompt tokens, in the prefix of a group
    notes: tuple[str, ...]  # what was corrected or estimated while reading


def describe_trace(trace: Trace) -> TraceSummary:
    """Return the summary of a trace.

    Examples
    --------
    >>> summary = describe_trace(Trace([10, 30], [1, 3], arrival_s=[0.0, 4.0]))
    >>> summary.rate_per_s, summary.prompt_tokens.mean, summary.output_tokens.total
    (0.25, 20.0, 4)
    """
    names, base = base_classes(trace.class_names)
    by_class = np.bincount(base[trace.request_class], minlength=len(names))
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
        class_counts=dict(zip(names, by_class.tolist(), strict=True)),
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
