"""Counts by window of time of a simulation that keeps no table of requests.

Windows are as wide as a power of two of seconds and begin with the first arrival; when
the trace outgrows them, neighbours are joined. So the counts do not depend on the
chunks in which the requests came, and memory does not grow.
"""

import numpy as np

from capplan.simulator.results.histogram import BINS, Histogram, bin_of
from capplan.simulator.results.request_times import METRICS, RequestTimes
from capplan.workload.slo import LIMITS

WINDOWS = 240
"""Windows at most; at least half of them are in use in a long run."""

FIRST_WIDTH_S = 2.0**-6
"""Width of windows at first. [s]"""
_COLUMNS: tuple[str, ...] = ("preemptions", "completed", "counted", "attained")
_COLUMNS += (*LIMITS, *METRICS)
_COLUMNS += ("prompt_tokens", "output_tokens", "cached_tokens")


def window_index(
    arrival_s: np.ndarray, first_s: float, last_s: float
) -> tuple[np.ndarray, int]:
    """Return the window of each arrival, and how many are in use.

    Those of a simulation whose arrivals go from ``first_s`` to ``last_s``.
    """
    width_s = FIRST_WIDTH_S * widening(last_s - first_s, FIRST_WIDTH_S)
    last = int((last_s - first_s) / width_s)
    index = np.clip((arrival_s - first_s) / width_s, 0, last).astype(np.int64)
    return index, last + 1


def widening(span_s: float, width_s: float) -> int:
    """Return how many windows are joined into one to reach beyond a time."""
    factor = 1
    while span_s >= WINDOWS * width_s * factor:
        factor *= 2
    return factor


def joined(array: np.ndarray, factor: int) -> np.ndarray:
    """Return rows summed by runs of ``factor``, with zeros behind them."""
    sums = np.add.reduceat(array, np.arange(0, len(array), factor), axis=0)
    longer = np.zeros_like(array)
    longer[: len(sums)] = sums
    return longer


class Windows:
    """Counts and sums by window of arrival; ``preemptions`` by that of the last token.

    Windows begin at ``start_s``, the first arrival; attainment and latencies leave out
    requests that arrive before ``counted_from_s``.
    """

    def __init__(self, start_s: float, counted_from_s: float = -np.inf) -> None:
        self.start_s = start_s
        self.counted_from_s = counted_from_s
        self.width_s = FIRST_WIDTH_S
        self.columns = {name: np.zeros(WINDOWS) for name in _COLUMNS}
        self.histograms = np.zeros((len(METRICS), WINDOWS, BINS), np.int64)
        self.by_class = np.zeros((WINDOWS, 1, 2))
        self._bins_used = (BINS, 0)

    @property
    def end_s(self) -> float:
        """Where the last window ends. [s]"""
        return self.start_s + WINDOWS * self.width_s

    @property
    def edges_s(self) -> np.ndarray:
        """Start of each window, shape (WINDOWS,). [s]"""
        return self.start_s + self.width_s * np.arange(WINDOWS)

    def index(self, moments_s: np.ndarray | float) -> np.ndarray:
        """Return the window of each moment, the first or last for those beyond."""
        index = (np.asarray(moments_s) - self.start_s) / self.width_s
        return np.clip(index, 0, WINDOWS - 1).astype(np.int64)

    def reach(self, moment_s: float) -> int:
        """Join windows until they reach beyond a moment; return how many into one."""
        factor = widening(moment_s - self.start_s, self.width_s)
        if factor == 1:
            return 1
        self.width_s *= factor
        for name, column in self.columns.items():
            self.columns[name] = joined(column, factor)
        self.by_class = joined(self.by_class, factor)
        low, high = self._bins_used
        for metric in range(len(METRICS)):
            used = self.histograms[metric, :, low:high]
            used[:] = joined(used, factor)
        return factor

    def finish(self, times: RequestTimes, limits_s: tuple[np.ndarray, ...]) -> None:
        """Count finished requests; an SLO's LIMITS, (n,) each. [s]"""
        self._add("preemptions", self.index(times.finish_s), times.preemptions)
        index = self.index(times.arrival_s)
        self._add("completed", index)
        for name in ("prompt_tokens", "output_tokens", "cached_tokens"):
            self._add(name, index, getattr(times, name))
        counted = times.arrival_s >= self.counted_from_s
        if not counted.all():
            times = times.select(counted)
            index = index[counted]
            limits_s = tuple(limit_s[counted] for limit_s in limits_s)
        if not len(times):
            return
        self._add("counted", index)
        met = times.met(limits_s)
        for name, hits in zip(LIMITS, met, strict=True):
            self._add(name, index, hits)
        attained = np.logical_and.reduce(met)
        self._add("attained", index, attained)
        self._finish_classes(index, times.request_class, attained)
        for metric, name in enumerate(METRICS):
            self._distribute(metric, name, index, getattr(times, name))

    def histogram(self, name: str, used: int) -> Histogram:
        """Return the distribution of one of METRICS over the first windows."""
        low, high = self._bins_used
        counts = np.zeros(BINS, np.int64)
        rows = self.histograms[METRICS.index(name), :used, low:high]
        counts[low:high] = rows.sum(axis=0)
        return Histogram(counts, float(self.columns[name][:used].sum()))

    def _add(
        self, name: str, index: np.ndarray, amounts: np.ndarray | None = None
    ) -> None:
        self.columns[name] += np.bincount(index, amounts, WINDOWS)

    def _finish_classes(
        self, index: np.ndarray, request_class: np.ndarray, attained: np.ndarray
    ) -> None:
        classes = max(self.by_class.shape[1], int(request_class.max()) + 1)
        if classes > self.by_class.shape[1]:
            more = classes - self.by_class.shape[1]
            self.by_class = np.pad(self.by_class, ((0, 0), (0, more), (0, 0)))
        cell = index * classes + request_class
        for kind, amounts in enumerate((None, attained)):
            counts = np.bincount(cell, amounts, WINDOWS * classes)
            self.by_class[:, :, kind] += counts.reshape(WINDOWS, classes)

    def _distribute(
        self, metric: int, name: str, index: np.ndarray, values_s: np.ndarray
    ) -> None:
        if name == "tpot_s":  # one token has no time between tokens
            known = ~np.isnan(values_s)
            index, values_s = index[known], values_s[known]
            if not index.size:
                return
        self._add(name, index, values_s)
        bins = bin_of(values_s)
        low, high = self._bins_used
        self._bins_used = (
            min(low, int(bins.min())),
            max(high, int(bins.max()) + 1),
        )
        np.add.at(self.histograms[metric].reshape(-1), index * BINS + bins, 1)
