"""Metrics that a simulated replica would show, at the times of scrapes."""

from collections.abc import Mapping

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import Deployment
from capplan.simulator.results.request_times import RequestTimes
from capplan.workload.metrics.replica_metrics import Histogram, ReplicaMetrics

Bounds = Mapping[str, np.ndarray]
"""Upper bounds of the buckets of each histogram, the last infinite."""


def scraped(
    times: RequestTimes,
    configuration: Configuration,
    at_s: np.ndarray,
    bounds: Bounds,
    name: str = "0",
) -> ReplicaMetrics:
    """Return what a replica that served these requests, and no others, shows.

    The tokens of an answer come evenly from its first to its last, and so the gaps
    between them are its mean one. KV in use is told where no request shares any; what
    an iteration computes is not.
    """
    of = _Scrapes(times, at_s)
    tables = configuration.tables
    front_s = tables.request_s + tables.prompt_token_s * times.prompt_tokens
    observed = {
        "prompt_tokens": (times.prompt_tokens, times.finish_s),
        "output_tokens": (times.output_tokens, times.finish_s),
        "computed_tokens": (_computed(times), times.finish_s),
        "ttft_s": (times.ttft_s, times.first_token_s),
        "tpot_s": (np.nan_to_num(times.tpot_s), times.finish_s),
        "e2e_s": (times.e2e_s, times.finish_s),
        "queue_s": (np.maximum(times.wait_s - front_s, 0.0), times.finish_s),
        "prefill_s": (times.first_token_s - times.scheduled_s, times.finish_s),
        "decode_s": (times.finish_s - times.first_token_s, times.finish_s),
        "inference_s": (times.finish_s - times.scheduled_s, times.finish_s),
    }
    histograms = {
        name: of.histogram(bounds[name], *values)
        for name, values in observed.items()
        if name in bounds
    }
    if "itl_s" in bounds:
        histograms["itl_s"] = of.gaps(bounds["itl_s"])
    queued_s = np.minimum(times.arrival_s + front_s, times.scheduled_s)
    gauges = {
        "running": of.up_to(times.scheduled_s) - of.up_to(times.finish_s),
        "waiting": of.up_to(queued_s) - of.up_to(times.scheduled_s),
    }
    if not times.cached_tokens.any():
        gauges["kv_use"] = of.kv_use(configuration)
    first, prompt = times.first_token_s, times.prompt_tokens
    counters = {
        "ended": of.up_to(times.finish_s),
        "prompt": of.up_to(first, prompt),
        "generation": of.up_to(first) + of.evenly(),
        "computed": of.up_to(first, _computed(times)),
        "hit": of.up_to(first, times.cached_tokens),
        "external_hit": np.zeros(len(at_s)),
        "preemptions": of.up_to(times.finish_s, times.preemptions),
    }
    engine = configuration.engine
    stated = {
        "num_gpu_blocks": str(engine.kv_blocks),
        "block_size": str(engine.block_size),
        "cache_dtype": configuration.kv_dtype or "auto",
        "enable_prefix_caching": str(engine.prefix_caching),
    }
    return ReplicaMetrics(name, at_s, gauges, counters, histograms, stated)


def _computed(times: RequestTimes) -> np.ndarray:
    return times.prompt_tokens - times.cached_tokens


class _Scrapes:
    """Sums over requests up to each scrape."""

    def __init__(self, times: RequestTimes, at_s: np.ndarray) -> None:
        self._times, self._at_s = times, at_s

    def up_to(
        self, moment_s: np.ndarray, weights: np.ndarray | None = None
    ) -> np.ndarray:
        """Return how many moments have come, or their weights, (scrapes,)."""
        seen = np.searchsorted(self._at_s, moment_s)
        room = len(self._at_s) + 1
        counted = np.bincount(seen, weights, room)[:-1]
        return np.asarray(np.cumsum(counted, dtype=np.float64))

    def histogram(
        self, bounds: np.ndarray, values: np.ndarray, moment_s: np.ndarray
    ) -> Histogram:
        """Return the histogram of values, each taken up at its moment."""
        bucket = np.searchsorted(bounds, values)
        counts = [self.up_to(moment_s[bucket == k]) for k in range(len(bounds))]
        up_to = np.cumsum(np.stack(counts, axis=1), axis=1)
        return Histogram(bounds, up_to, self.up_to(moment_s, values))

    def evenly(self, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Return the tokens that answers have had after their first, (scrapes,)."""
        times = self._times.select(rows)
        first, last = times.first_token_s, times.finish_s
        later = (times.output_tokens - 1).astype(np.float64)
        rate = later / np.maximum(last - first, 1e-12)
        return np.maximum(self._since(first, rate) - self._since(last, rate), 0.0)

    def _since(self, moment_s: np.ndarray, rate: np.ndarray) -> np.ndarray:
        """Return the sum of what grows at a rate from a moment on, (scrapes,)."""
        return self._at_s * self.up_to(moment_s, rate) - self.up_to(
            moment_s, rate * moment_s
        )

    def gaps(self, bounds: np.ndarray) -> Histogram:
        """Return the histogram of the gaps between tokens."""
        times = self._times
        bucket = np.searchsorted(bounds, np.nan_to_num(times.tpot_s))
        several = times.output_tokens > 1
        counts = np.stack(
            [
                self.evenly(np.flatnonzero(several & (bucket == k)))
                for k in range(len(bounds))
            ],
            axis=1,
        )
        first, last = times.first_token_s[several], times.finish_s[several]
        ones = np.ones(len(first))
        sums = self._since(first, ones) - self._since(last, ones)
        return Histogram(bounds, np.cumsum(counts, axis=1), sums)

    def kv_use(self, configuration: Configuration) -> np.ndarray:
        """Return the share of KV that contexts of running requests take."""
        times, engine = self._times, configuration.engine
        context = self.up_to(times.scheduled_s, times.prompt_tokens) + self.evenly()
        done = self.up_to(times.finish_s, times.prompt_tokens + times.output_tokens - 1)
        running = self.up_to(times.scheduled_s) - self.up_to(times.finish_s)
        used = context - done + 0.5 * engine.block_size * running
        return np.clip(used / engine.kv_capacity_tokens, 0.0, 1.0)


def lives(deployment: Deployment) -> list[tuple[int, float, float]]:
    """Return row, begin and end of each replica's lives, of those that die and come.

    The newest die; others take their rows. [s]
    """
    count = deployment.replica_count
    begun = dict.fromkeys(range(count), -np.inf)
    found: list[tuple[int, float, float]] = []
    for change in sorted(deployment.changes, key=lambda change: change.at_s):
        if change.kind == "up":
            rows = range(len(begun), len(begun) + change.count)
            begun |= dict.fromkeys(rows, change.at_s)
            continue
        for row in [*begun][::-1][: change.count]:
            found.append((row, begun.pop(row), change.at_s))
    found += [(row, since_s, np.inf) for row, since_s in begun.items()]
    return sorted(found)
