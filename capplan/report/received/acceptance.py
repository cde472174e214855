"""Whether a load test bears out the plan that it is of, and what to rent if not."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from capplan.calibration.load_test import LoadTest, SweepPoint
from capplan.calibration.planned_test import is_other_ttft
from capplan.calibration.settings import FitSettings
from capplan.calibration.sweep_file import read_sweep
from capplan.calibration.target import Target
from capplan.errors import InputError, placed, warn
from capplan.latency.catalog import full_gpu_name, parse_which
from capplan.latency.profile import Profile
from capplan.llm.catalog import llm as find_llm
from capplan.planning.plan.plan import plan
from capplan.planning.plan.result import Plan
from capplan.planning.settings.layouts import LayoutSettings
from capplan.report.columns import plural
from capplan.report.first_screen import dollars, is_plain
from capplan.report.received.tested_plan import TestedPlan, load_test_of

REPEATS = 0.03
"""Factor on times within which two load tests of an engine differ."""
APART = 0.1
"""Difference between the factors of two loads from which on one says too little."""
_OF_A_PLAN = {"measurements", "out", "onto", "plan", "force", "where", "source"}
_OF_A_PLAN |= {"date", "plot", "report", "gpu_file"}
_FILES = ("llm", "trace", "profiles", "prices")
"""Settings of a fit that name files of the plan, where these do not lie beside it."""


class Results(NamedTuple):
    """A plan, and the load tests that were run of its replica."""

    tested: TestedPlan
    points: list[SweepPoint]  # in order of their rates
    slower: np.ndarray  # measured times of iterations over planned, of each load
    profile: Profile  # with times as measured
    notes: tuple[str, ...]  # what the files state, and what was left out


class Compared(NamedTuple):
    """A mean of a load, as the plan expects it and as it was measured."""

    rate_per_s: float
    what: str  # with its unit
    expected: float
    measured: float


@dataclass(frozen=True, eq=False)
class Acceptance:
    """What a load test makes of a plan."""

    results: Results
    rows: tuple[Compared, ...]
    again: Plan | None  # with the measured times; None: the plan stands

    @property
    def factor(self) -> float:
        """Times of iterations over those planned, the median of the loads."""
        return float(np.median(self.results.slower))

    @property
    def passed(self) -> bool:
        """Whether the planned replicas are enough, at times that are as planned."""
        if self.again is None:
            return True
        best = self.again.best
        if best is None or self.factor > 1 + REPEATS:
            return False
        planned: int = self.results.tested.document["best"]["replica_count"]
        return (best.replica_count or 0) <= planned

    def __str__(self) -> str:
        """Return the verdict, the new count and the new bill in a line."""
        verdict, slower = "passed" if self.passed else "failed", self.results.slower
        ends = f"{min(slower):.2f} to {max(slower):.2f}"
        loads = plural(len(slower), "load")
        said = (
            f"{verdict}: iterations take {self.factor:.2f} × what the plan assumes "
            f"({ends} at {loads})"
        )
        if self.again is not None and self.again.best is None:
            return f"{said}, so no count holds: {self.again.infeasible_reason}"
        return f"{said}: {self._rented()}"

    def _rented(self) -> str:
        """Return what is to be rented with its bill, and before where that differs."""
        planned = self.results.tested.document["best"]
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


def results_of(settings: FitSettings) -> Results | None:
    """Return what a plan's load test showed; None where no plan is named."""
    given = {name: str(value) for name in _FILES if (value := getattr(settings, name))}
    if settings.plan is None:
        for name in given.keys() - {"llm"}:
            raise InputError(f"--{name} is of a plan; give --plan too, or leave it out")
        return None
    settings.refuse(
        {*FitSettings.model_fields} - _OF_A_PLAN - {*_FILES},
        "has no effect with --plan, which says what was tested",
    )
    tested = load_test_of(settings.plan, given)
    replica = tested.test.replica
    if not is_plain(replica.layout):
        raise InputError(
            f"{tested.path}: its replicas are {replica.layout}, onto which load tests "
            "are not fitted; expected a plan of TP alone"
        )
    onto = settings.onto or tested.which
    gpu, name, tp = parse_which(onto)
    llm = find_llm(str(tested.settings.llm))
    is_it = (full_gpu_name(gpu), tp) == (replica.gpu, replica.tp)
    if not is_it or find_llm(name).name != llm.name:
        raise InputError(f"--onto {onto}: {tested.path} is of {tested.which}")
    target = Target(onto, llm, replica.gpu, tp, "", settings.force, is_planned=True)
    path = Path(settings.measurements)
    sweep = read_sweep(path, tp, settings.where, target)
    points = sorted(sweep.points, key=lambda point: point.rate_per_s or 0.0)
    with placed(path):
        slower = tested.test.slower(points)
        source = settings.source or str(path)
        profile = tested.test.measured(points, slower, source)
    named = {"llm": llm.name, "date": settings.date}
    profile = profile.model_copy(update=named)
    return Results(tested, points, slower, profile, sweep.notes)


def accepted(results: Results, profile: Path) -> Acceptance:
    """Return what a load test makes of its plan; ``profile`` is the file of its own."""
    test, points, slower = results.tested.test, results.points, results.slower
    if max(slower) > (1 + APART) * min(slower):
        warn(
            "loads differ in how much slower iterations are; their median stands for "
            "all: `capplan fit` without --plan fits more than one factor"
        )
    expected = test.expected(loads=test.tested(points))
    pairs = list(zip(points, expected, strict=True))
    stands = abs(np.log(np.median(slower))) <= np.log(1 + REPEATS) and not any(
        seen.ttft_s is not None and is_other_ttft(seen.ttft_s, of.ttft_s)
        for seen, of in pairs
    )
    rows = tuple(row for seen, of in pairs for row in _compared(seen, of))
    again = None if stands else planned_again(results.tested, profile)
    return Acceptance(results, rows, again)


def _compared(point: SweepPoint, expected: LoadTest) -> Iterator[Compared]:
    rate_per_s = point.rate_per_s or 0.0
    for what, scale, of, seen in (
        ("TPOT [ms]", 1e3, expected.tpot_s, point.tpot_s),
        ("TTFT [ms]", 1e3, expected.ttft_s, point.ttft_s),
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
