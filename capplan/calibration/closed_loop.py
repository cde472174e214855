"""A closed loop: a fixed number of users, each with one request at a time.

A load test at a fixed concurrency is one. A user asks again when answered, so the
requests run as if all arrived at once at an engine with one seat per user; a request's
TTFT counts from the finish that freed its seat.
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


class SweepPoint(NamedTuple):
    """Means of one load test of one engine; None where the test did not state one."""

    isl: int  # longest prompt [tokens]
    osl: int  # longest output [tokens]
    concurrency: int  # users
    tpot_s: float | None = None
    ttft_s: float | None = None
    output_tokens_per_s: float | None = None  # of the engine
    least_share: float = 1.0  # lengths are uniform from this share of the longest
    median: bool = False  # times are medians over the requests
    # of the whole test; 10 for each user where None. As many as users: all at once
    requests: int | None = None

    @property
    def mean_isl(self) -> float:
        """Mean prompt. [tokens]"""
        return self.isl * (1 + self.least_share) / 2

    @property
    def is_burst(self) -> bool:
        """Whether all requests ask at once, so that no user asks twice."""
        return self.requests is not None and self.requests <= self.concurrency

    @property
    def mean_osl(self) -> float:
        """Mean output. [tokens]"""
        return self.osl * (1 + self.least_share) / 2


class ClosedLoop(NamedTuple):
    """What the users of a closed loop see."""

    ttft_s: float
    tpot_s: float
    output_tokens_per_s: float

    def slower(self, point: SweepPoint) -> float:
        """Return the simulated time over the measured one.

        Of TPOT where the point has one, else of throughput, else of TTFT.
        """
        if point.tpot_s is not None:
            return self.tpot_s / point.tpot_s
        if point.output_tokens_per_s is not None:
            return point.output_tokens_per_s / self.output_tokens_per_s
        assert point.ttft_s is not None
        return self.ttft_s / point.ttft_s


def closed_loop(
    tables: LatencyTables, engine: EngineSettings, point: SweepPoint, seed: int = 0
) -> ClosedLoop:
    """Simulate a load test on an engine, with a seat for each user but no more seats.

    Times are means, or medians where the point's are.
    """
    users = point.concurrency
    count = point.requests or max(REQUESTS_PER_USER * users, FEWEST_REQUESTS)
    count = min(count, max(MOST_REQUESTS, 3 * users))
    draw = np.random.default_rng(seed)
    prompt, output = (
        draw.integers(max(1, int(longest * point.least_share)), longest + 1, count)
        for longest in (point.isl, point.osl)
    )
    engine = replace(engine, max_num_seqs=min(users, engine.max_num_seqs))
    trace = Trace(prompt, output, np.zeros(count), source="closed loop")
    if oversized(trace, engine).any():
        raise InputError(
            f"{point.isl:,} + {point.osl:,} tokens do not fit the KV cache of "
            f"{engine.kv_capacity_tokens:,}"
        )
    # A user waits in front of the engine, a seat does not.
    loop = tables._replace(request_s=0.0, prompt_token_s=0.0)
    times = simulate(trace, Deployment.of(Configuration(engine, loop), 1)).table
    freed_s = np.sort(times.finish_s)
    asked_s = np.concatenate([np.zeros(users), freed_s])[:count]
    # Seats are taken in the order of arrival, so the k-th first token answers the k-th
    # question but for requests that were preempted.
    ttft_s = np.sort(times.first_token_s) - asked_s + tables.request_s
    ttft_s = ttft_s + tables.prompt_token_s * prompt
    stays_s = times.finish_s - times.first_token_s
    tpot_s = (stays_s / np.maximum(output - 1, 1))[output > 1]
    middle = np.median if point.median else np.mean
    return ClosedLoop(
        ttft_s=float(middle(ttft_s)),
        tpot_s=float(middle(tpot_s)) if len(tpot_s) else 0.0,
        output_tokens_per_s=float(output.sum() / freed_s[-1]),
    )
