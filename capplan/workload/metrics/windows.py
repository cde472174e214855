"""Windows of one replica: where its time is cut, and what happened within one."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from capplan.workload.metrics.replica_metrics import ReplicaMetrics

FEWEST_REQUESTS = 200
FEWEST_SCRAPES = 20
"""Of a window; one with fewer is joined to the next."""
_GAP = 5.0
"""Times the usual distance of scrapes from which on a replica was not watched."""
SATURATED = 0.25
"""Waiting over running requests from which on a window is saturated."""
FULL = 0.9
"""Share of KV that running requests hold from which on it is."""


class Span(NamedTuple):
    """Scrapes of a replica from one to another."""

    first: int
    last: int


@dataclass(frozen=True, eq=False)
class Observed:
    """Values that a histogram took up within a window."""

    bounds: np.ndarray  # upper ones, the last infinite, (k,)
    counts: np.ndarray  # in each bucket, (k,)
    total: float  # of the values

    @property
    def count(self) -> float:
        """Values."""
        return float(self.counts.sum())

    @property
    def mean(self) -> float:
        """Mean; NaN of none."""
        return self.total / self.count if self.count else float("nan")

    def quantile(self, share: float) -> float:
        """Return a quantile, even within its bucket; NaN of none."""
        up_to = np.cumsum(self.counts)
        if not self.count:
            return float("nan")
        at = int(np.searchsorted(up_to, share * self.count))
        low = self.bounds[at - 1] if at else 0.0
        high = self.bounds[at] if np.isfinite(self.bounds[at]) else low
        before = up_to[at - 1] if at else 0.0
        part = (share * self.count - before) / max(self.counts[at], 1e-300)
        return float(low + part * (high - low))


@dataclass(frozen=True, eq=False)
class Window:
    """A replica from one scrape to another."""

    of: ReplicaMetrics
    span: Span

    @property
    def first_s(self) -> float:
        """Time of its first scrape. [s]"""
        return float(self.of.at_s[self.span.first])

    @property
    def last_s(self) -> float:
        """Time of its last scrape. [s]"""
        return float(self.of.at_s[self.span.last])

    @property
    def lasts_s(self) -> float:
        """Its length. [s]"""
        return self.last_s - self.first_s

    def count(self, quantity: str) -> float:
        """Return by how much a counter went up; NaN where it is not stated."""
        values = self.of.counters.get(quantity)
        if values is None:
            return float("nan")
        return float(values[self.span.last] - np.nan_to_num(values[self.span.first]))

    def observed(self, quantity: str) -> Observed | None:
        """Return what a histogram took up; None where it is not stated."""
        of, (first, last) = self.of.histograms.get(quantity), self.span
        if of is None:
            return None
        up_to = of.counts[last] - np.nan_to_num(of.counts[first])
        total = of.sums[last] - np.nan_to_num(of.sums[first])
        if not np.isfinite(total):
            return None
        return Observed(of.bounds, np.diff(up_to, prepend=0.0), float(total))

    def mean(self, quantity: str) -> float:
        """Return the mean of a histogram's values; NaN where there are none."""
        found = self.observed(quantity)
        return float("nan") if found is None else found.mean

    def gauge(self, quantity: str) -> np.ndarray:
        """Return the values of a gauge, those of the first scrape apart."""
        values = self.of.gauges.get(quantity)
        if values is None:
            return np.full(1, np.nan)
        part = values[self.span.first + 1 : self.span.last + 1]
        return part[np.isfinite(part)] if np.isfinite(part).any() else part[:1]

    @property
    def running(self) -> float:
        """Mean requests that run."""
        return float(self.gauge("running").mean())

    @property
    def waiting(self) -> float:
        """Mean requests that wait."""
        return float(self.gauge("waiting").mean())

    @property
    def is_saturated(self) -> bool:
        """Whether more than a quarter as many wait as run, or KV is full."""
        is_full = float(self.gauge("kv_use").mean()) > FULL
        return is_full or self.waiting > SATURATED * self.running

    @property
    def itl_s(self) -> float:
        """Mean time between tokens, of all tokens; NaN where it is not stated. [s]"""
        found = self.observed("itl_s")
        if found is not None and found.count:
            return found.mean
        decode, output = self.observed("decode_s"), self.observed("output_tokens")
        if decode is None or output is None:
            return self.mean("tpot_s")
        return decode.total / max(output.total - output.count, 1.0)

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens from caches, by source; NaN where not stated."""
        hits = [self.count("hit"), self.count("external_hit")]
        if not np.isfinite(hits).any():
            prompt, computed = map(self.observed, ("prompt_tokens", "computed_tokens"))
            if prompt is None or computed is None or not prompt.total:
                return float("nan")
            return 1.0 - computed.total / prompt.total
        return float(np.nansum(hits) / max(self.count("prompt"), 1.0))


def spans(metrics: ReplicaMetrics) -> Iterator[Span]:
    """Yield the parts of a replica's time in which its engine ran and was watched.

    It began anew where a counter fell.
    """
    cut = np.zeros(max(len(metrics.at_s) - 1, 0), bool)
    counted = [*metrics.counters.values()]
    counted += [each.sums for each in metrics.histograms.values()]
    for values in counted:
        known = np.flatnonzero(np.isfinite(values))
        cut[known[1:][np.diff(values[known]) < 0] - 1] = True
    gaps_s = np.diff(metrics.at_s)
    cut |= gaps_s > _GAP * np.median(gaps_s)
    ends = [*np.flatnonzero(cut), len(metrics.at_s) - 1]
    first = 0
    for end in ends:
        if end > first:
            yield Span(first, int(end))
        first = int(end) + 1


def windows(
    metrics: ReplicaMetrics, span: Span, width_s: float
) -> tuple[list[Window], list[Span]]:
    """Return the windows of a span, and scrapes that are too few to judge.

    One of fewer requests or scrapes than can be judged is joined to the next, the last
    to the one before.
    """
    if metrics.is_summary:
        return [Window(metrics, span)], []
    at_s = metrics.at_s[span.first : span.last + 1]
    edges_s = np.arange(at_s[0] + width_s, at_s[-1] + 0.01 * width_s, width_s)
    edges = np.unique(np.searchsorted(at_s, edges_s * (1 - 1e-12)) + span.first)
    found: list[Window] = []
    first = span.first
    for edge in [*edges[edges < span.last], span.last]:
        window = Window(metrics, Span(first, int(edge)))
        if _is_enough(window):
            found.append(window)
            first = int(edge)
    if first == span.last:
        return found, []
    if not found:
        return [], [Span(first, span.last)]
    return [*found[:-1], Window(metrics, Span(found[-1].span.first, span.last))], []


def _is_enough(window: Window) -> bool:
    scrapes = window.span.last - window.span.first
    return scrapes >= FEWEST_SCRAPES and window.count("ended") >= FEWEST_REQUESTS
