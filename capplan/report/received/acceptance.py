"""Whether a load test bears out the plan that it is of, and what to rent if not."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from capplan.calibration.load_test import LoadTest, SweepPoint
from capplan.calibration.settings import FitSettings
from capplan.calibration.sweep_profile import SweepProfile
from capplan.errors import InputError
from capplan.latency.catalog import full_gpu_name, parse_which
from capplan.llm.catalog import llm as find_llm
from capplan.planning.plan.plan import plan
from capplan.planning.plan.result import Plan
from capplan.planning.settings.layouts import LayoutSettings
from capplan.report.columns import plural
from capplan.report.first_screen import dollars, is_plain
from capplan.report.received.tested_plan import TestedPlan, load_test_of

REPEATS = 0.03
"""Factor on times within which two load tests of an engine differ."""
_OTHER_TTFT = 0.2
"""Difference of logarithms from which on a TTFT is another than planned."""
TTFT = "TTFT [ms]"
_FILES = ("llm", "trace", "profiles", "prices")
"""Settings of a fit that name files of the plan, where these do not lie beside it."""


class Compared(NamedTuple):
    """A mean of a load, as the plan expects it and as it was measured."""

    rate_per_s: float
    what: str  # with its unit
    expected: float
    measured: float


@dataclass(frozen=True, eq=False)
class Acceptance:
    """What a load test makes of a plan."""

    tested: TestedPlan
    slower: np.ndarray  # measured times of iterations over planned, of each load
    rows: tuple[Compared, ...]
    again: Plan | None  # with the measured times; None: the plan stands

    @property
    def factor(self) -> float:
        """Times of iterations over those planned, of all loads."""
        return float(np.exp(np.log(self.slower).mean()))

    @property
    def passed(self) -> bool:
        """Whether the planned replicas are enough, at times that are as planned."""
        if self.again is None:
            return True
        best = self.again.best
        if best is None or self.factor > 1 + REPEATS:
            return False
        planned: int = self.tested.document["best"]["replica_count"]
        return (best.replica_count or 0) <= planned

    def __str__(self) -> str:
        """Return the verdict, the new count and the new bill in a line."""
        verdict = "passed" if self.passed else "failed"
        ends = f"{min(self.slower):.2f} to {max(self.slower):.2f}"
        loads = plural(len(self.slower), "load")
        said = (
            f"{verdict}: iterations take {self.factor:.2f} × what the plan assumes "
            f"({ends} at {loads})"
        )
        if self.again is not None and self.again.best is None:
            return f"{said}, so no count holds: {self.again.infeasible_reason}"
        return f"{said}: {self._rented()}"

    def _rented(self) -> str:
        """Return what is to be rented with its bill, and before where that differs."""
        planned = self.tested.document["best"]
        before = planned["gpu_count"], planned.get("usd_per_month")
        now = before
        if self.again is not None and (best := self.again.best) is not None:
            usd = None if best.cost is None else best.cost.usd_per_month
            now = best.gpu_count, usd
        of = f"{planned['gpu']} GPU"
        new, old = (
            f"{plural(count, of)}{'' if usd is None else f', {dollars(usd)} a month'}"
            for count, usd in (now, before)
        )
        return f"{new}, as planned" if new == old else f"{new}, in place of {old}"


def load_test_named(settings: FitSettings) -> TestedPlan | None:
    """Return the load test of the plan that a fit names; None where it names none."""
    if settings.plan is None:
        return None
    given = {name: str(value) for name in _FILES if (value := getattr(settings, name))}
    found = load_test_of(settings.plan, given)
    replica = found.test.replica
    if not is_plain(replica.layout):
        raise InputError(
            f"{found.path}: its replicas are {replica.layout}, onto which load tests "
            "are not fitted; expected a plan of TP alone"
        )
    if settings.onto is None:
        raise InputError(f"--plan {found.path}: give --onto {found.which} too")
    gpu, llm, tp = parse_which(settings.onto)
    same_llm = find_llm(llm).name == find_llm(str(found.settings.llm)).name
    if not same_llm or (full_gpu_name(gpu), tp) != (replica.gpu, replica.tp):
        raise InputError(
            f"--onto {settings.onto}: the plan {found.path} is of {found.which}"
        )
    return found


def accepted(tested: TestedPlan, fitted: SweepProfile, profile: Path) -> Acceptance:
    """Return what a fit to a plan's load test makes of it; its profile was written."""
    test = tested.test
    points = sorted(fitted.points, key=lambda point: point.rate_per_s or 0.0)
    slower = test.slower(points)
    expected = test.expected(loads=test.tested(points))
    pairs = zip(points, expected, strict=True)
    rows = tuple(row for point, of in pairs for row in _compared(point, of))
    stands = abs(np.log(slower).mean()) <= np.log(1 + REPEATS) and not any(
        row.what == TTFT and abs(np.log(row.measured / row.expected)) > _OTHER_TTFT
        for row in rows
    )
    again = None if stands else planned_again(tested, profile)
    return Acceptance(tested, slower, rows, again)


def _compared(point: SweepPoint, expected: LoadTest) -> Iterator[Compared]:
    rate_per_s = point.rate_per_s or 0.0
    for what, scale, of, seen in (
        ("TPOT [ms]", 1e3, expected.tpot_s, point.tpot_s),
        (TTFT, 1e3, expected.ttft_s, point.ttft_s),
        ("tokens/s", 1, expected.output_tokens_per_s, point.output_tokens_per_s),
    ):
        if seen is not None:
            yield Compared(rate_per_s, what, scale * of, scale * seen)


def planned_again(tested: TestedPlan, profile: Path) -> Plan:
    """Return the plan of the tested GPU and layout, with a profile for its times."""
    replica, settings = tested.test.replica, tested.settings
    prices = {
        k: v for k, v in settings.price.items() if full_gpu_name(k) == replica.gpu
    }
    measured = {"profiles": str(profile.absolute()), "price": prices, "mix": False}
    # Of the times before, that the measured ones take the place of.
    before = dict.fromkeys(("latency_quantile", "backtest", "engine_overhead"))
    only = {"gpu": (replica.gpu,), **LayoutSettings.of(replica.layout)}
    return plan(settings.model_copy(update={**measured, **before, **only}))
