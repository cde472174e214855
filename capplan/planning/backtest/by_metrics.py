"""The load of a replica from its metrics, simulated on such a replica."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import Deployment
from capplan.errors import warn
from capplan.planning.backtest.by_requests import decoded, faster
from capplan.simulator.results.request_times import RequestTimes
from capplan.simulator.results.scraped import scraped
from capplan.simulator.simulate import simulate
from capplan.workload.metrics.lengths import (
    USUAL_CORRELATION,
    Lengths,
    drawn,
    identified,
)
from capplan.workload.metrics.replica_metrics import ReplicaMetrics
from capplan.workload.metrics.windows import Span, Window
from capplan.workload.trace import Trace

_NO_HITS = 0.01
"""Share of prompt tokens from caches below which they are left out."""
_STAYS = 3.0
_MOST_WARMUP_S = 1800.0
_PRIMED_S = 3600.0
_LONGER = 4
"""Times the requests of a benchmark that are drawn where users ask."""
_HELD = 0.7
"""KV of a running request over its prompt below which the KV stated is doubted."""
_DRAWS = 4
"""Other draws that show how sure the factor of one window is."""


@dataclass(frozen=True, eq=False)
class ReplayedReplica:
    """Scrapes of a replica from one to another, and requests as they tell of them.

    As many arrive between two scrapes as ended and were there more; prompts and answers
    are drawn from the histograms of each window. What caches gave is taken as it was:
    prompts share a text as long as that.
    """

    metrics: ReplicaMetrics
    span: Span
    windows: Sequence[Window]
    configuration: Configuration
    seed: int = 0
    turns: int = 1  # replicas among which a router evens arrivals out
    _traces: dict[int, tuple[Trace, int]] = field(default_factory=dict, repr=False)

    @cached_property
    def at_s(self) -> np.ndarray:
        """Times of the scrapes from the first of them. [s]"""
        at_s = self.metrics.at_s[self.span.first : self.span.last + 1]
        return np.asarray(at_s - at_s[0])

    @cached_property
    def is_shared(self) -> bool:
        """Whether caches gave so much of the prompts that it matters."""
        rates = [window.hit_rate for window in self.windows]
        return bool(np.nan_to_num(rates).max(initial=0.0) > _NO_HITS)

    @cached_property
    def correlation(self) -> tuple[float, bool]:
        """Correlation of prompts and answers, and whether KV in use tells it."""
        window, kv_tokens = self.windows[0], self.metrics.kv_tokens
        use = float(np.mean(self.metrics.gauges.get("kv_use", np.nan)))
        if self.is_shared or kv_tokens is None or not use > 0 or not window.running > 0:
            return USUAL_CORRELATION, False
        contexts = [each.gauge("kv_use").mean() * kv_tokens for each in self.windows]
        running = [each.running for each in self.windows]
        found = sum(contexts) / max(sum(running), 1e-9)
        return identified(*self._lengths(window)[:2], found)

    @property
    def _room_tokens(self) -> int:
        """Tokens that a request has at most. [tokens]"""
        engine = self.configuration.engine
        return min(engine.max_model_len, engine.kv_capacity_tokens - 2)

    def _lengths(self, window: Window) -> tuple[Lengths, Lengths, Lengths | None]:
        """Return prompts, answers, and what was computed of prompts."""
        most = self._room_tokens
        of = [
            window.observed(name)
            for name in ("prompt_tokens", "output_tokens", "computed_tokens")
        ]
        prompt, output = of[0], of[1]
        assert prompt is not None
        assert output is not None
        computed = Lengths(of[2], most) if of[2] and self.is_shared else None
        return Lengths(prompt, most), Lengths(output, most), computed

    def _arrivals(self, window: Window, rng: np.random.Generator) -> np.ndarray:
        """Return when requests arrived in a window, from the first scrape. [s]"""
        first, last = window.span.first, window.span.last
        gauges, ended = self.metrics.gauges, self.metrics.counters["ended"]
        there = gauges.get("running", 0.0) + gauges.get("waiting", 0.0)
        begun = ended + np.nan_to_num(there)
        up_to = np.maximum.accumulate(np.nan_to_num(begun[first : last + 1]))
        counts = np.rint(np.diff(up_to)).astype(np.int64)
        at_s = self.at_s[first - self.span.first : last - self.span.first + 1]
        between = np.repeat(np.arange(len(counts)), counts * self.turns)
        inside = rng.random(len(between))
        of_all = np.sort(at_s[between] + inside * np.diff(at_s)[between])
        return of_all[rng.integers(self.turns) :: self.turns]

    def _requests(self, seed: int) -> tuple[Trace, int]:
        """Return the requests, and how many of them came before and do not count."""
        if seed in self._traces:
            return self._traces[seed]
        rng, columns = np.random.default_rng((seed, 11)), []
        before_s = self._warmup_s()
        for at, window in enumerate(self.windows):
            arrival_s = self._arrivals(window, rng)
            if self._is_closed:
                arrival_s = np.sort(np.tile(arrival_s, _LONGER))
            if at == 0 and before_s:
                count = int(len(arrival_s) * before_s / window.lasts_s)
                earlier = -before_s * np.sort(rng.random(count))[::-1]
                arrival_s = np.concatenate([earlier, arrival_s])
            drawn_of = self._drawn(window, len(arrival_s), int(rng.integers(2**31)))
            columns.append((arrival_s, *drawn_of))
        arrival_s, prompt, output, cached = map(
            np.concatenate, zip(*columns, strict=True)
        )
        primed = int(self.is_shared)
        if primed:  # the text that prompts share is there before
            most = int(cached.max())
            arrival_s = np.insert(arrival_s, 0, arrival_s[0] - _PRIMED_S)
            prompt, output = np.insert(prompt, 0, most + 1), np.insert(output, 0, 1)
            cached = np.insert(cached, 0, most)
        trace = Trace(prompt, output, arrival_s, source=self.metrics.replica)
        if primed:
            group = np.where(cached > 0, 0, -1)
            trace = trace.changed(prefix_group=group, prefix_tokens=cached)
        self._traces[seed] = trace, primed
        return self._traces[seed]

    def _warmup_s(self) -> float:
        """Return how long such requests came before, if some were there. [s]"""
        first = self.span.first
        there = sum(
            float(
                np.nan_to_num(self.metrics.gauges.get(name, np.zeros(first + 1))[first])
            )
            for name in ("running", "waiting")
        )
        if self.metrics.is_summary or there < 1:
            return 0.0
        stay_s = float(np.nan_to_num(self.windows[0].mean("e2e_s"), nan=60.0))
        return min(_STAYS * stay_s, _MOST_WARMUP_S)

    def _drawn(
        self, window: Window, count: int, seed: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return prompts, answers and cached tokens of as many requests. [tokens]"""
        prompt, output, computed = self._lengths(window)
        p, o, rank = drawn(prompt, output, count, self.correlation[0], seed)
        room = self._room_tokens
        p = np.minimum(p, room - np.minimum(o, room // 2))
        o = np.minimum(o, room // 2)
        cached = np.zeros(count, np.int64)
        if computed is not None:
            cached = np.clip(p - computed.quantiles(rank), 0, p - 1)
        return p, o, cached

    @property
    def mix(self) -> Trace:
        """Requests that arrive, with what their prompts share."""
        trace, primed = self._requests(self.seed)
        return trace.select(slice(primed, None))

    def simulated(self, factor: float) -> list[Window]:
        """Return the windows, simulated with a factor on iteration times."""
        table = self._table(factor)
        bounds = {name: of.bounds for name, of in self.metrics.histograms.items()}
        at_s = self.at_s
        if self.metrics.is_summary:
            at_s = np.array([table.arrival_s.min(), table.finish_s.max()])
        shown = scraped(table, self.configuration, at_s, bounds)
        if self.metrics.is_summary:
            shown = _summed_up(shown)
        first = self.span.first
        return [
            Window(shown, Span(each.span.first - first, each.span.last - first))
            for each in self.windows
        ]

    def decoded(self, factor: float, times: float) -> tuple[float, float]:
        """Return how long answers took after their first tokens, and later tokens."""
        return decoded(self._table(factor, times=times))

    def log_error(self, factor: float) -> float:
        """Return the spread of the time between tokens over other draws."""
        paces = [
            spent_s / max(tokens, 1.0)
            for seed in range(_DRAWS)
            for spent_s, tokens in [decoded(self._table(factor, self.seed + 1 + seed))]
        ]
        return float(np.log(paces).std(ddof=1))

    def _table(
        self, factor: float, seed: int | None = None, times: float = 1.0
    ) -> RequestTimes:
        trace, primed = self._requests(self.seed if seed is None else seed)
        engine = replace(self.configuration.engine, prefix_caching=self.is_shared)
        configuration = replace(self.configuration, engine=engine).slowed(factor)
        fleet = Deployment.of(configuration, 1)
        given = self._asked(trace, times) if self._is_closed else faster(trace, times)
        table = simulate(given, fleet, seed=self.seed).table
        return table.select(slice(primed, None))

    @property
    def _is_closed(self) -> bool:
        """Whether users ask, of whom a benchmark's summary tells the most at once."""
        return self.metrics.is_summary and "most_running" in self.metrics.gauges

    def _asked(self, trace: Trace, times: float) -> Trace:
        """Return requests asked by users, who think as long as Little's law says.

        Of a saturated window as many run as ran: users do not think.
        """
        window, rng = self.windows[0], np.random.default_rng(self.seed)
        full, most = window.is_saturated, float(self.metrics.gauges["most_running"][0])
        rate_per_s = window.count("ended") / window.lasts_s
        stay_s = np.nan_to_num(window.mean("e2e_s"))
        think_s = 0.0 if full else max(most / rate_per_s - stay_s, 0.0)
        most = window.running if full else most
        users = min(max(round(times * most), 1), len(trace))
        thinks_s = rng.exponential(1.0, len(trace)) * think_s
        thinks_s[1:users] += _PRIMED_S * self.is_shared
        return trace.changed(arrival_s=None, users=users, think_s=thinks_s)


def _summed_up(shown: ReplicaMetrics) -> ReplicaMetrics:
    """Return metrics of one window with the means of gauges, by Little's law."""
    lasts_s = float(shown.at_s[-1] - shown.at_s[0])
    sums = {name: of.sums[-1] for name, of in shown.histograms.items()}
    means = {
        "running": sums.get("inference_s", np.nan) / lasts_s,
        "waiting": sums.get("queue_s", np.nan) / lasts_s,
    }
    gauges = {name: np.full(2, mean) for name, mean in means.items()}
    return replace(shown, gauges={**gauges}, is_summary=True)


def warn_of_kv(window: Window) -> None:
    """Warn where running requests hold less KV than their prompts have.

    Of some attention backends vLLM tells blocks of other tokens than they have.
    """
    kv_tokens, prompt = window.of.kv_tokens, window.mean("prompt_tokens")
    if kv_tokens is None or not window.running > 0:
        return
    held = float(window.gauge("kv_use").mean()) * kv_tokens / window.running
    if held < _HELD * prompt and window.hit_rate > _NO_HITS:
        warn(
            f"{window.of.replica}: {held:,.0f} KV tokens a running request, and "
            f"prompts have {prompt:,.0f}: it may have more than the {kv_tokens:,} that "
            "it states; give --kv-blocks"
        )


def with_stated_kv(
    configuration: Configuration, metrics: ReplicaMetrics
) -> Configuration:
    """Return a configuration with as much KV as a replica says that it has."""
    stated, engine = metrics.kv_tokens, configuration.engine
    if stated is None:
        return configuration
    assumed = engine.kv_capacity_tokens
    if abs(stated / assumed - 1) > 0.05:
        warn(
            f"{metrics.replica} has {stated:,} KV tokens and the deployment "
            f"{assumed:,}: simulated with what it has"
        )
    blocks = max(stated // engine.block_size, 2)
    return replace(configuration, engine=replace(engine, kv_blocks=blocks))
