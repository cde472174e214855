"""A load test: users who ask again when answered, or requests at a rate.

The requests of users, a closed loop, run as if all arrived at once at an engine with
one seat per user; TTFT counts from the finish that freed the seat. At a rate with a cap
(``--max-concurrency``) it counts from the later of that and arrival.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment
from capplan.errors import InputError
from capplan.latency.contract import LatencyTables
from capplan.simulator.checks import oversized
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace

REQUESTS_PER_USER = 10
FEWEST_REQUESTS = 40
MOST_REQUESTS = 20_000
"""Requests of a test that are simulated, or three for each of many users."""
REQUESTS_AT_A_RATE = 1000
"""Requests of a test at a rate that does not say how many it had."""
_DRAWN = 2000  # arrivals; shorter tests are repeated until so many were drawn


class SweepPoint(NamedTuple):
    """Means of one load test of one engine; None where the test did not state one."""

    isl: int  # longest prompt [tokens]
    osl: int  # longest output [tokens]
    concurrency: int | None  # users; with a rate, the most requests at once
    tpot_s: float | None = None
    ttft_s: float | None = None
    output_tokens_per_s: float | None = None  # of the engine
    least_share: float = 1.0  # lengths are uniform from this share of the longest
    median: bool = False  # times are medians over the requests
    # of the whole test; 10 for each user where None. As many as users: all at once
    requests: int | None = None
    rate_per_s: float | None = None  # at which requests arrive; None: of users
    burstiness: float = 1.0  # gamma shape of the gaps: 1 Poisson, inf constant

    @property
    def load(self) -> tuple[float, float, float]:
        """Rate, users (0: none) and burstiness: what tells a sweep's tests apart."""
        return self.rate_per_s or 0.0, self.concurrency or 0.0, self.burstiness

    @property
    def curve(self) -> tuple[float, ...]:
        """Lengths and, at a rate, cap and burstiness: those of one curve over loads."""
        at_a_rate = self.load[1:] if self.rate_per_s is not None else ()
        return (self.isl, self.osl, *at_a_rate)

    @property
    def mean_isl(self) -> float:
        """Mean prompt. [tokens]"""
        return self.isl * (1 + self.least_share) / 2

    @property
    def is_burst(self) -> bool:
        """Whether all requests ask at once, so that no user asks twice."""
        return (
            self.rate_per_s is None
            and self.requests is not None
            and self.requests <= (self.concurrency or 0)
        )

    @property
    def mean_osl(self) -> float:
        """Mean output. [tokens]"""
        return self.osl * (1 + self.least_share) / 2


class LoadTest(NamedTuple):
    """What those who ask see."""

    ttft_s: float
    tpot_s: float
    output_tokens_per_s: float

    def slower(self, point: SweepPoint) -> float:
        """Return the simulated time over the measured one.

        Of TPOT where the point has one, else of throughput, which says nothing at a
        rate, else of TTFT.
        """
        if point.tpot_s is not None:
            return self.tpot_s / point.tpot_s
        if point.output_tokens_per_s is not None and point.rate_per_s is None:
            return point.output_tokens_per_s / self.output_tokens_per_s
        assert point.ttft_s is not None
        return self.ttft_s / point.ttft_s


def load_test(
    tables: LatencyTables, engine: EngineSettings, point: SweepPoint, seed: int = 0
) -> LoadTest:
    """Simulate a load test on an engine; see :func:`replica_tested`."""
    return replica_tested(Configuration(engine, tables), point, seed)


def replica_tested(
    replica: Configuration,
    point: SweepPoint,
    seed: int = 0,
    requests: Trace | None = None,
    drawn: int = _DRAWN,
) -> LoadTest:
    """Simulate a load test of a replica, with a seat for each user but no more seats.

    Times are means, or medians where the point's are. Where arrivals are drawn, a short
    test is run several times, until so many are ``drawn`` that its mean depends little
    on them. ``requests`` are sent in any order; by default their lengths are drawn too.
    """
    if point.rate_per_s is None or np.isinf(point.burstiness):
        return _run(replica, point, seed, requests)
    runs = max(1, drawn // _count(point))
    seen = [_run(replica, point, seed + number, requests) for number in range(runs)]
    return LoadTest(*np.mean(seen, axis=0).tolist())


def _run(
    replica: Configuration, point: SweepPoint, seed: int, requests: Trace | None
) -> LoadTest:
    users, draw = point.concurrency, np.random.default_rng(seed)
    count, tables, engine = _count(point), replica.tables, replica.engine
    if requests is None:
        prompt, output = (
            draw.integers(max(1, int(longest * point.least_share)), longest + 1, count)
            for longest in (point.isl, point.osl)
        )
        trace = Trace(prompt, output, source="load test")
    else:
        trace = requests.rows_of(np.resize(draw.permutation(len(requests)), count))
    arrival_s = _arrivals_s(point, count, draw)
    trace = trace.changed(arrival_s=arrival_s)
    prompt, output = trace.prompt_tokens, trace.output_tokens
    engine = replace(
        engine, max_num_seqs=min(users or engine.max_num_seqs, engine.max_num_seqs)
    )
    if oversized(trace, engine).any():
        raise InputError(
            f"{point.isl:,} + {point.osl:,} tokens do not fit the KV cache of "
            f"{engine.kv_capacity_tokens:,}"
        )
    # A user waits in front of the engine, a seat does not.
    loop = tables._replace(request_s=0.0, prompt_token_s=0.0)
    alone = replace(replica, engine=engine, tables=loop)
    times = simulate(trace, Deployment.of(alone, 1)).table
    freed_s = np.sort(times.finish_s)
    free = count if users is None else min(users, count)
    asked_s = np.maximum(
        arrival_s, np.concatenate([np.zeros(free), freed_s[: count - free]])
    )
    # Seats are taken in the order of arrival, so the k-th first token answers the k-th
    # question but for requests that were preempted.
    ttft_s = np.sort(times.first_token_s) - asked_s + tables.request_s
    ttft_s = ttft_s + tables.prompt_token_s * prompt
    stays_s = times.finish_s - times.first_token_s
    tpot_s = (stays_s / np.maximum(output - 1, 1))[output > 1]
    middle = np.median if point.median else np.mean
    return LoadTest(
        ttft_s=float(middle(ttft_s)),
        tpot_s=float(middle(tpot_s)) if len(tpot_s) else 0.0,
        output_tokens_per_s=float(output.sum() / freed_s[-1]),
    )


def _count(point: SweepPoint) -> int:
    if point.rate_per_s is not None:
        return min(point.requests or REQUESTS_AT_A_RATE, MOST_REQUESTS)
    users = point.concurrency or 1
    count = point.requests or max(REQUESTS_PER_USER * users, FEWEST_REQUESTS)
    return min(count, max(MOST_REQUESTS, 3 * users))


def _arrivals_s(point: SweepPoint, count: int, draw: np.random.Generator) -> np.ndarray:
    """Return when requests are sent, (count,); gaps are scaled to the exact rate."""
    if point.rate_per_s is None:
        return np.zeros(count)
    shape = point.burstiness
    gaps = np.ones(count) if np.isinf(shape) else draw.gamma(shape, 1 / shape, count)
    return np.cumsum(gaps) * (count / gaps.sum() / point.rate_per_s)
