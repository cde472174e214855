"""The load test that settles a plan: of one replica, at parts of what it carries."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capplan.calibration.load_test import SweepPoint
from capplan.calibration.planned_test import PlannedLoad, PlannedTest
from capplan.errors import InputError
from capplan.planning.prove.proof import replica_of
from capplan.planning.settings.plan import PlanSettings
from capplan.report.exports.plan_file import infeasible_reason
from capplan.report.received.allowed import received
from capplan.report.received.plan_document import plan_path, read_plan, refuse_changed
from capplan.workload.trace import Trace

SHARES = (0.5, 0.8, 1.0)
"""Loads of the test, of what a replica carries within the SLO."""
_LASTS_S = 600.0
_LEAST, _MOST = 300, 20_000
"""Requests of a load; between the two as many as come in ten minutes."""


class TestedPlan(NamedTuple):
    """A plan with the load test of its replica."""

    path: Path
    document: Mapping[str, Any]
    settings: PlanSettings  # of the plan, with the files that they name
    test: PlannedTest
    given: Mapping[str, str]  # files that the user names in place of the plan's

    @property
    def which(self) -> str:
        """GPU, LLM and layout, as ``capplan fit --onto`` names them."""
        replica = self.test.replica
        llm = self.given.get("llm", self.settings.llm)
        return f"{replica.gpu}/{llm}/{replica.layout}"


def load_test_of(path: Path, given: Mapping[str, str] | None) -> TestedPlan:
    """Return the load test of a plan; refuse one whose replica no such test is of.

    ``given`` are files that the user names in place of the plan's.
    """
    path = plan_path(path)
    document = read_plan(path)
    if (reason := infeasible_reason(document)) is not None:
        raise InputError(f"{path}: no replica to test: {reason}")
    refuse_changed(path, document)
    mix = document.get("mix")
    if document["best"].get("pools") or (mix and mix.get("offered")):
        raise InputError(
            f"{path}: its replicas are of several kinds; a load test is of one: plan "
            "without --mix and --disaggregated, or with one --gpu"
        )
    settings, _ = received(document, path, PlanSettings, given)
    inputs, replica = replica_of({**document, "settings": settings})
    if replica.profile is None:
        raise InputError(f"{path}: its times were given, and are no engine's to test")
    if replica.engine.speculation is not None:
        raise InputError(
            f"{path}: drafts tokens, which texts of made-up words do not show: no load "
            "test is exported"
        )
    base = inputs.load.base
    if base.has_turns or base.image_tokens.any() or (base.adapter >= 0).any():
        raise InputError(
            f"{path}: its requests are turns of conversations, have images or adapters,"
            " which the datasets of load tests cannot say; measure the fleet with "
            "`capplan backtest`"
        )
    load = document.get("replica_load") or {
        "rate_per_s": document["rate_per_s"] / document["best"]["replica_count"]
    }
    loads = tuple(_loads(base, float(load["rate_per_s"]), inputs.settings.seed))
    test = PlannedTest(str(path), replica.profile, replica, loads)
    return TestedPlan(path, document, PlanSettings(**settings), test, given or {})


def _loads(base: Trace, rate_per_s: float, seed: int) -> "list[PlannedLoad]":
    """Return the loads, each of requests of its own while there are enough."""
    draw, found, first = np.random.default_rng(seed), [], 0
    rates_per_s = [float(f"{share * rate_per_s:.3g}") for share in SHARES]
    counts = [min(max(math.ceil(x * _LASTS_S), _LEAST), _MOST) for x in rates_per_s]
    rows = np.resize(draw.permutation(len(base)), sum(counts))
    free = base.changed(arrival_s=None)
    for share, at_per_s, count in zip(SHARES, rates_per_s, counts, strict=True):
        sent = free.rows_of(rows[first : (first := first + count)])
        lengths = sent.prompt_tokens, sent.output_tokens
        isl, osl = (max(1, round(float(each.mean()))) for each in lengths)
        point = SweepPoint(isl, osl, None, requests=count, rate_per_s=at_per_s)
        found.append(PlannedLoad(share, point, sent))
    return found
