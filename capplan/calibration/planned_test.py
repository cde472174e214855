"""The load test of a plan's replica: what is sent, and what the plan expects."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import optimize

from capplan.calibration.load_test import LoadTest, SweepPoint, replica_tested
from capplan.deployment.configuration import Configuration
from capplan.errors import InputError
from capplan.latency.profile import LOAD_TESTS, Profile
from capplan.latency.with_engine import calibrated
from capplan.workload.trace import Trace

_SAME_RATE = 0.02
"""Relative difference of rates within which a test is one of the plan's."""
_OTHER_LENGTHS = 0.1, 64
"""Difference of mean lengths from which on others were sent: a share, and tokens."""
_FACTORS = 0.1, 10.0
"""Between which an engine's times are sought, over those planned."""
_PRECISION = 1e-3
_OTHER_TTFT = 0.2  # difference of logarithms
_DRAWN = 60_000  # requests, of which an expected mean is


class PlannedLoad(NamedTuple):
    """A load of the test: its share of a replica's, and the requests sent."""

    share: float
    point: SweepPoint
    requests: Trace

    def is_of(self, point: SweepPoint) -> bool:
        """Return whether a test was at this load."""
        at_per_s = self.point.rate_per_s or 0.0
        return abs((point.rate_per_s or 0.0) / at_per_s - 1) <= _SAME_RATE


@dataclass(frozen=True, eq=False)
class PlannedTest:
    """The load test of a plan's replica, at loads that grow."""

    plan: str  # its file
    profile: Profile  # of the times that it is planned with
    replica: Configuration
    loads: tuple[PlannedLoad, ...]

    def expected(
        self, factor: float = 1.0, loads: Sequence[PlannedLoad] | None = None
    ) -> list[LoadTest]:
        """Return what each load shows, with a factor on the time of iterations."""
        replica = self.replica.slowed(factor)
        return [
            replica_tested(replica, of.point, requests=of.requests, drawn=_DRAWN)
            for of in (self.loads if loads is None else loads)
        ]

    def tested(self, points: Sequence[SweepPoint]) -> list[PlannedLoad]:
        """Return the load of each point; refuse where one is at none, or of others."""
        found = []
        for point in points:
            load = next((each for each in self.loads if each.is_of(point)), None)
            if load is None:
                raise InputError(
                    f"a load test at {_load(point)}; expected those of {self.plan}: "
                    f"{', '.join(_load(each.point) for each in self.loads)}, as "
                    "`capplan export --to loadtest` writes them"
                )
            self._check_lengths(point, load.point)
            found.append(load)
        return found

    def _check_lengths(self, point: SweepPoint, planned: SweepPoint) -> None:
        """Refuse requests of other lengths than the plan's."""
        share, tokens = _OTHER_LENGTHS
        pairs = (point.isl, planned.isl), (point.osl, planned.osl)
        if all(abs(one - other) <= max(share * other, tokens) for one, other in pairs):
            return
        raise InputError(
            f"a load test of {point.isl:,} + {point.osl:,} tokens; expected the "
            f"requests of {self.plan}, {planned.isl:,} + {planned.osl:,} on average"
        )

    def slower(self, points: Sequence[SweepPoint]) -> np.ndarray:
        """Return by which factor iterations are slower than planned, of each point."""
        pairs = zip(points, self.tested(points), strict=True)
        return np.array([self._slower(point, load) for point, load in pairs])

    def _slower(self, point: SweepPoint, load: PlannedLoad) -> float:
        if point.tpot_s is None:
            raise InputError("a load test without TPOT; expected it of each load")
        wanted = math.log(point.tpot_s)

        def later(log: float) -> float:
            """Return how much slower it is with a factor than measured, as a log."""
            return math.log(self.expected(math.exp(log), [load])[0].tpot_s) - wanted

        low, high = map(math.log, _FACTORS)
        if later(low) >= 0 or later(high) <= 0:
            raise InputError(
                f"a load test at {_load(point)} with a TPOT of "
                f"{1e3 * point.tpot_s:.3g} ms, which no engine near the plan's has; is "
                "its unit ms?"
            )
        return math.exp(optimize.brentq(later, low, high, xtol=_PRECISION))

    def measured(
        self, points: Sequence[SweepPoint], slower: np.ndarray, source: str
    ) -> Profile:
        """Return its profile with times as measured, of tests in order of their rates.

        Iterations have the median of the factors by which the loads are ``slower``;
        where TTFT is another at the lowest, requests wait before their first iteration.
        """
        first, load = points[0], self.tested(points[:1])
        time = self.replica.own_time(float(np.median(slower)), source)
        (shown,) = self.expected(float(slower[0]), load)
        if first.ttft_s is not None and is_other_ttft(first.ttft_s, shown.ttft_s):
            late_s = time.request_s + first.ttft_s - shown.ttft_s
            time = time.model_copy(update={"request_s": max(0.0, late_s)})
        return calibrated(self.profile, time, **{LOAD_TESTS: len(points)})


def is_other_ttft(measured_s: float, expected_s: float) -> bool:
    """Return whether a mean TTFT is another than expected, and not by chance."""
    return abs(math.log(measured_s / expected_s)) > _OTHER_TTFT


def _load(point: SweepPoint) -> str:
    if point.rate_per_s is None:
        return f"{point.concurrency} users"
    return f"{point.rate_per_s:g} requests/s"
