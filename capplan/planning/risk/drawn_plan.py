"""What one draw needs: the fewest replicas that meet the SLO, by simulation."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from capplan.deployment.pools import Deployment, Pool
from capplan.errors import HostFullError
from capplan.planning.count_ladder import fewest_near
from capplan.planning.evaluate.inputs import PlanInputs
from capplan.planning.evaluate.judging import BUDGET_REQUESTS
from capplan.planning.evaluate.run import judged_run
from capplan.planning.load.load import Load
from capplan.planning.money import cost
from capplan.planning.risk.draws import Draw, Draws
from capplan.planning.risk.result import DrawnPlan

_MOST_TIMES, _MORE = 4, 8
"""Counts looked at, in times of the one expected."""


class Shared(NamedTuple):
    """What all draws share."""

    inputs: PlanInputs
    draws: Draws
    deployment: Deployment  # as planned


def drawn_plan(shared: Shared, draw: Draw) -> tuple[DrawnPlan, int]:
    """Return what a draw needs, and how many fleets were simulated for it."""
    inputs, draws, deployment = shared
    base = draws.base_of(draw)
    load = draws.load_of(draw, base)
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
    tokens = float((base.prompt_tokens + base.output_tokens).mean())
    busiest = draws.busiest_per_s(base)
    row = DrawnPlan(draw, count, attainment, meets, usd, busiest, tokens)
    return row, len(known)


def _attains(
    inputs: PlanInputs, load: Load, deployment: Deployment
) -> tuple[bool, float]:
    """Return whether a fleet meets the SLO, and what it attains."""
    try:
        run = judged_run(
            load,
            inputs.slo,
            deployment,
            inputs.judging(metrics=(), budget_requests=BUDGET_REQUESTS),
        )
    except HostFullError:
        return False, 0.0
    attainment = run.judgement.attainment
    return run.judgement.holds, 0.0 if attainment is None else attainment.share


def _usd_per_month(deployment: Deployment, offer: int | None) -> float | None:
    """Return what a fleet costs in a month, at the planned price or at an offer. [$]"""
    pools: Sequence[Pool] = deployment.pools
    price = deployment.pool.configuration.price if offer is not None else None
    if price is not None and offer is not None:
        pools = cost.of_provider(pools, price.providers[offer])
    return cost.usd_per_month(pools)
