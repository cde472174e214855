"""How many replicas other days, engines and lengths take: a plan's distribution."""

import math
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from capplan.deployment.pools import Deployment, Pool
from capplan.errors import CapplanWarning, HostFullError
from capplan.planning.cost import HOURS_PER_MONTH, nodes_of, offers_of
from capplan.planning.count_ladder import fewest_near
from capplan.planning.draws import FULL_WEEK, Draws, draws_of
from capplan.planning.executors import executor
from capplan.planning.inputs import PlanInputs, Progress
from capplan.planning.load import OpenLoad
from capplan.planning.replications import Interrupted
from capplan.planning.result import Candidate
from capplan.planning.risk_result import CountShare, DrawnPlan, Risk, RiskLevel
from capplan.planning.run import BUDGET_REQUESTS, judged_run

LEVELS = (0.5, 0.9, 0.99)
"""Quantiles that are told beside the one asked for."""
FEW_DAYS = (
    "budgets from one day came to 9–24, 13–21 and 11–27 replicas where the 14 days of "
    "the same three services say 20 (ServeGen's curves, days resampled)"
)
"""What few days do to a plan; computed for three curves of ServeGen's traces."""
_MOST_TIMES, _MORE = 4, 8
"""Counts looked at, in times of the one expected."""
_WAVE = 32
"""Draws between two looks at whether to stop."""


class _Shared(NamedTuple):
    inputs: PlanInputs
    draws: Draws
    deployment: Deployment  # as planned


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
    assert isinstance(inputs.load, OpenLoad)  # settings refuse users
    configuration = run.configuration
    draws = draws_of(settings, settings.seed, inputs.load, configuration)
    shared = _Shared(inputs, draws, run.deployment)
    found: list[tuple[DrawnPlan, int]] = []
    names = ", ".join(draws.drawn_names) or "nothing"
    if not draws.drawn_names:
        warnings.warn(
            "--draws: nothing varies, so that one draw stands for all: "
            + "; ".join(f"{each.name}: {each.how}" for each in draws.inputs),
            CapplanWarning,
            stacklevel=2,
        )
    elif not is_told(settings.quantile, settings.draws):
        warnings.warn(
            f"--quantile {settings.quantile:g} of {settings.draws:,} draws is the "
            f"largest of them; {math.ceil(1 / (1 - settings.quantile) - 1e-9):,} draws "
            "or more tell it",
            CapplanWarning,
            stacklevel=2,
        )
    asked = settings.draws if draws.drawn_names else 1
    try:
        with executor(settings.executor, settings.ray_address) as workers:
            for first in range(0, asked, _WAVE):
                progress(f"drawing {names} ({asked:,} times)", first / asked)
                wave = range(first, min(first + _WAVE, asked))
                found += workers(_drawn, shared, wave)
    except Interrupted:
        warnings.warn(
            f"interrupted after {len(found):,} of {settings.draws:,} draws: the "
            "distribution of replicas is left out",
            CapplanWarning,
            stacklevel=2,
        )
        return None
    rows = tuple(row for row, _ in found) * (settings.draws // asked)
    return _risk(shared, rows, sum(runs for _, runs in found))


def _drawn(shared: _Shared, index: int) -> tuple[DrawnPlan, int]:
    """Return what a draw needs, and how many fleets were simulated for it."""
    inputs, draws, deployment = shared
    draw = draws.draw(index)
    load = draws.load_of(draw)
    known: dict[int, tuple[bool, float]] = {}

    def look(count: int) -> tuple[bool, float]:
        if count not in known:
            known[count] = _attains(inputs, load, deployment.with_replicas(count))
        return known[count]

    planned = deployment.replica_count
    about = math.ceil(planned * draw.load_ratio - 1e-9)
    meets, attainment = look(planned)
    count = fewest_near(
        lambda count: look(count)[0], about, _MOST_TIMES * max(about, planned) + _MORE
    )
    usd = None
    if count is not None:
        usd = _usd_per_month(deployment.with_replicas(count), draw.offer)
    return DrawnPlan(draw, count, attainment, meets, usd), len(known)


def _attains(
    inputs: PlanInputs, load: OpenLoad, deployment: Deployment
) -> tuple[bool, float]:
    """Return whether a fleet meets the SLO, and what it attains."""
    if inputs.is_stopped():
        raise Interrupted
    try:
        run = judged_run(
            load,
            inputs.slo,
            deployment,
            seed=inputs.settings.seed,
            metrics=(),
            budget_requests=BUDGET_REQUESTS,
            stopped=inputs.stopped,
        )
    except HostFullError:
        return False, 0.0
    if inputs.is_stopped():
        raise Interrupted
    attainment = run.judgement.attainment
    return run.judgement.holds, 0.0 if attainment is None else attainment.share


def _usd_per_month(deployment: Deployment, offer: int | None) -> float | None:
    """Return what a fleet costs in a month, at the planned price or at an offer. [$]"""
    pools: Sequence[Pool] = deployment.pools
    if offer is not None:
        pools = offers_of(deployment.pool)[offer]
    nodes = nodes_of(pools)
    return None if nodes is None else HOURS_PER_MONTH * sum(n.usd_per_h for n in nodes)


def _risk(shared: _Shared, rows: tuple[DrawnPlan, ...], run_count: int) -> Risk:
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
        _caution(days),
        rows,
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
    nodes = nodes_of(fleet.pools)
    numbers = None if nodes is None else [row.count for row in nodes]
    known = numbers is not None and None not in numbers
    return RiskLevel(
        quantile,
        int(count),
        fleet.gpu_count,
        sum(number or 0 for number in numbers or ()) if known else None,
        usd,
    )


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
    return f"the trace has {lasts}, less than a week: {FEW_DAYS}"
