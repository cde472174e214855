"""How many replicas other days, engines and lengths take: a plan's distribution."""

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from capplan.deployment.pools import Deployment
from capplan.errors import warn
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.executors import Interrupted, executor
from capplan.planning.evaluate.inputs import PlanInputs, Progress
from capplan.planning.money.cost import node_count, nodes_of
from capplan.planning.risk.drawn_plan import Shared, drawn_plan
from capplan.planning.risk.draws import FULL_WEEK, draws_of
from capplan.planning.risk.result import CountShare, DrawnPlan, Risk, RiskLevel
from capplan.planning.risk.swings import swings, worth_of_knowing

LEVELS = (0.5, 0.9, 0.99)
"""Quantiles that are told beside the one asked for."""
FEW_DAYS = (
    "give more days: three services that need 20 replicas by 14 days got 9 to 24, 13 "
    "to 21 and 11 to 27 by one day (ServeGen's curves, resampled)"
)
"""What few days do to a plan; computed for three curves of ServeGen's traces."""
_WAVE = 32
"""Draws between two looks at whether to stop."""


def risk_of(
    inputs: PlanInputs, candidate: Candidate, progress: Progress
) -> Risk | None:
    """Return the distribution of a candidate's replicas; None where interrupted.

    Each draw is simulated: the planned fleet, and the counts around the fewest that
    meet its SLO. Draws are independent of how many there are and of their order.
    """
    settings, run = inputs.settings, candidate.run
    assert settings.draws is not None
    assert run is not None
    assert inputs.load.is_open  # settings refuse users
    configuration = run.configuration
    draws = draws_of(settings, settings.seed, inputs.load, configuration)
    shared = Shared(inputs, draws, run.deployment)
    found: list[tuple[DrawnPlan, int]] = []
    names = ", ".join(draws.drawn_names) or "nothing"
    if not draws.drawn_names:
        warn(
            "--draws: nothing varies, so that one draw stands for all: "
            + "; ".join(f"{each.name}: {each.how}" for each in draws.inputs)
        )
    elif not is_told(settings.quantile, settings.draws):
        warn(
            f"--quantile {settings.quantile:g} of {settings.draws:,} draws is the "
            f"largest of them; {math.ceil(1 / (1 - settings.quantile) - 1e-9):,} draws "
            "or more tell it"
        )
    asked = settings.draws if draws.drawn_names else 1
    try:
        with executor(settings.executor, settings.ray_address) as workers:
            for first in range(0, asked, _WAVE):
                progress(f"drawing {names} ({asked:,} times)", first / asked)
                wave = range(first, min(first + _WAVE, asked))
                each = [draws.draw(index) for index in wave]
                found += workers(drawn_plan, shared, each)
            rows = tuple(row for row, _ in found) * (settings.draws // asked)
            progress("changing one input at a time")
            told = swings(shared, rows, workers)
    except Interrupted:
        warn(
            f"interrupted after {len(found):,} of {settings.draws:,} draws: the "
            "distribution of replicas is left out"
        )
        return None
    risk = _risk(shared, rows, sum(runs for _, runs in found) + told[1])
    return replace(risk, swings=told[0], **worth_of_knowing(shared, rows))


def _risk(shared: Shared, rows: tuple[DrawnPlan, ...], run_count: int) -> Risk:
    inputs, draws, deployment = shared
    quantile = inputs.settings.quantile
    counts = Counter(row.replica_count for row in rows)
    unserved = counts.pop(None, 0)
    at_most, shares = 0, []
    for count in sorted(count for count in counts if count is not None):
        at_most += counts[count]
        shares.append(CountShare(count, counts[count], at_most / len(rows)))
    attained = sorted((row.planned_attainment for row in rows), reverse=True)
    load = draws.load
    days = None if load.process is not None else load.base.duration_s / load.day_s
    return Risk(
        len(rows),
        quantile,
        _level(deployment, rows, quantile),
        tuple(
            _level(deployment, rows, level)
            for level in LEVELS
            if is_told(level, len(rows))
        ),
        tuple(shares),
        unserved,
        deployment.replica_count,
        float(np.mean([row.planned_meets for row in rows])),
        attained[place(len(rows), quantile)],
        draws.inputs,
        days,
        run_count,
        caution=_caution(days),
        rows=rows,
    )


def _level(
    deployment: Deployment, rows: tuple[DrawnPlan, ...], quantile: float
) -> RiskLevel:
    """Return the fewest replicas, and the least $, that a share of the draws needs."""
    count = _quantile([row.replica_count for row in rows], quantile)
    usd = _quantile([row.usd_per_month for row in rows], quantile)
    if count is None:
        return RiskLevel(quantile, None, None, None, None)
    fleet = deployment.with_replicas(int(count))
    nodes = nodes_of([fleet.pool])
    counted = None if nodes is None else node_count(nodes)
    return RiskLevel(quantile, int(count), fleet.gpu_count, counted, usd)


def is_told(quantile: float, draw_count: int) -> bool:
    """Return whether one draw in so many is above a quantile, at least.

    Examples
    --------
    >>> is_told(0.99, 100), is_told(0.99, 99)
    (True, False)
    """
    return draw_count * (1 - quantile) >= 1 - 1e-9


def place(count: int, quantile: float) -> int:
    """Return the index of the least of sorted values that a share is not above.

    Examples
    --------
    >>> place(10, 0.9), place(10, 0.91), place(1, 0.5)
    (8, 9, 0)
    """
    # A hair below: 200 × 0.99 is 198 and a little.
    return min(count - 1, max(0, math.ceil(count * quantile - 1e-9) - 1))


def _quantile(values: list[Any], quantile: float) -> float | None:
    """Return the value that a share is not above; None ones are above all."""
    known = sorted(math.inf if value is None else value for value in values)
    found = known[place(len(known), quantile)]
    return None if math.isinf(found) else found


def _caution(days: float | None) -> str:
    """Return what so few days do to the plan; empty of a week and more."""
    if days is None or days >= FULL_WEEK * (1 - 1e-3):
        return ""
    lasts = f"{days:.2g} days" if days >= 1 else f"{24 * days:.2g} hours"
    lasts = {"1 days": "a day", "1 hours": "an hour"}.get(lasts, lasts)
    return f"the trace has {lasts}, less than a week: {FEW_DAYS}"
