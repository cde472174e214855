"""Requests of a fleet, simulated as they came."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import Deployment
from capplan.simulator.results.request_times import RequestTimes
from capplan.simulator.results.scraped import scraped
from capplan.simulator.simulate import simulate
from capplan.workload.metrics.names import vllm_bounds
from capplan.workload.metrics.replica_metrics import ReplicaMetrics
from capplan.workload.metrics.requests import ServedRequests
from capplan.workload.metrics.windows import Span, Window, spans, windows
from capplan.workload.trace import Trace

SCRAPED_S = 15.0
FLEET = "fleet"
_UNSEEN = ("queue_s", "prefill_s", "inference_s", "computed_tokens")
"""What only an engine knows."""
_SEEN = ("ended", "prompt", "generation")
_RESAMPLES = 400


@dataclass(frozen=True, eq=False)
class ReplayedRequests:
    """Requests as they came, whatever becomes of the answers, on all replicas."""

    served: ServedRequests
    deployment: Deployment
    windows: Sequence[Window]
    seed: int = 0

    @property
    def mix(self) -> Trace:
        """Requests that arrive."""
        return self.served.trace

    def simulated(self, factor: float) -> list[Window]:
        """Return the windows, simulated with a factor on iteration times."""
        shown = shown_by(self.table(factor), self.deployment, self.windows[0].of.at_s)
        return [Window(shown, each.span) for each in self.windows]

    def table(self, factor: float, times: float = 1.0) -> RequestTimes:
        """Return each request under a factor on iteration times."""
        pool = self.deployment.pool
        slowed = replace(pool, configuration=pool.configuration.slowed(factor))
        fleet = replace(self.deployment, pools=(slowed,))
        found = simulate(faster(self.served.trace, times), fleet, seed=self.seed).table
        seen = np.isfinite(self.served.first_token_s)  # the others were not streamed
        return replace(
            found, first_token_s=np.where(seen, found.first_token_s, found.arrival_s)
        )

    def decoded(self, factor: float, times: float) -> tuple[float, float]:
        """Return how long answers took after their first tokens, and later tokens."""
        return decoded(self.table(factor, times))

    def log_error(self, factor: float) -> float:
        """Return the bootstrap error over conversations, or over requests."""
        table, trace = self.table(factor), self.served.trace
        session = trace.session
        alone = session.max() + 1 + np.arange(len(trace))
        unit = np.unique(np.where(session >= 0, session, alone), return_inverse=True)[1]
        count = int(unit.max()) + 1
        of = _measured(self.served)
        measured_s = of.finish_s - of.first_token_s
        measured = np.bincount(unit, measured_s, count)
        simulated = np.bincount(unit, table.finish_s - table.first_token_s, count)
        rng = np.random.default_rng(self.seed)
        rows = rng.integers(0, count, (_RESAMPLES, count))
        ratios = measured[rows].sum(axis=1) / np.maximum(
            simulated[rows].sum(axis=1), 1e-12
        )
        return float(np.log(ratios).std(ddof=1))


def replayed_requests(
    served: ServedRequests, deployment: Deployment, width_s: float, seed: int
) -> ReplayedRequests:
    """Return requests with the windows that they are judged in, one at least."""
    measured = _measured(served)
    first_s, last_s = measured.arrival_s.min(), measured.finish_s.max()
    at_s = np.arange(first_s, last_s + SCRAPED_S, SCRAPED_S)
    shown = shown_by(measured, deployment, at_s)
    whole = Span(0, len(at_s) - 1)
    found = [each for span in spans(shown) for each in windows(shown, span, width_s)[0]]
    return ReplayedRequests(served, deployment, found or [Window(shown, whole)], seed)


def shown_by(
    times: RequestTimes, deployment: Deployment, at_s: np.ndarray
) -> ReplicaMetrics:
    """Return what all replicas of a fleet show of requests."""
    configuration: Configuration = deployment.pool.configuration
    longest = int((times.prompt_tokens + times.output_tokens).max())
    bounds = vllm_bounds(longest)
    for name in _UNSEEN:
        del bounds[name]
    shown = scraped(times, configuration, at_s, bounds, FLEET)
    counters = {name: shown.counters[name] for name in _SEEN}
    return replace(shown, gauges={}, counters=counters, configuration={})


def _measured(served: ServedRequests) -> RequestTimes:
    """Return requests as they were measured; when they were scheduled is not known."""
    trace, n = served.trace, len(served.trace)
    assert trace.arrival_s is not None
    first_s = np.where(
        np.isfinite(served.first_token_s), served.first_token_s, trace.arrival_s
    )
    known = {
        "arrival_s": trace.arrival_s,
        "scheduled_s": trace.arrival_s,
        "first_token_s": first_s,
        "finish_s": served.finish_s,
        "prompt_tokens": trace.prompt_tokens,
        "output_tokens": trace.output_tokens,
    }
    unknown = {field.name: np.zeros(n, np.int64) for field in fields(RequestTimes)}
    return RequestTimes(**unknown | known)


def decoded(times: RequestTimes) -> tuple[float, float]:
    """Return how long answers took after first tokens, and later tokens. [s, tokens]"""
    spent_s = (times.finish_s - times.first_token_s).sum()
    return float(spent_s), float((times.output_tokens - 1).sum())


def faster(trace: Trace, times: float) -> Trace:
    """Return requests that arrive at ``times`` the rate."""
    assert trace.arrival_s is not None
    return trace if times == 1 else trace.changed(arrival_s=trace.arrival_s / times)
