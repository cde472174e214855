"""The page of the replicas that several arrival rates need."""

from functools import partial
from typing import Any

from capplan.placement.demand_law import DemandLaw, workers_interval
from capplan.planning.money.cost import usd_per_month
from capplan.planning.plan.demand import Demand
from capplan.report.columns import at, record
from capplan.report.fields import fields
from capplan.report.page import Fact, Page, Section, Table
from capplan.units import format_usd

SCHEMA = "capplan.demand/2"

_POINT = fields("demand_point")
_FAR = 2.0
"""Times the highest simulated rate beyond which an extrapolation is doubtful."""


def demand_page(demand: Demand) -> Page:
    """Return the simulated counts, the line through them and its extrapolations."""
    points = list(zip(demand.rates_per_s, demand.candidates, strict=True))
    facts: list[Fact] = [("no line through these counts", demand.no_law)]
    if demand.law is not None:
        facts.append(("Aladdin, Eq. 7", _line(demand.law)))
        for rate in demand.extrapolated_per_s:
            fact = _extrapolated(demand, demand.law, rate)
            facts.append((f"{rate:g} requests/s, extrapolated", fact))
    table = Table(_POINT, points)
    return Page(
        "demand",
        f"Replicas against requests/s: {demand.configuration}",
        f"scheduler {at(demand, 'candidates.0.configuration.engine.scheduler')}",
        [Section("Simulated rates", facts, [table])],
        values=partial(demand_values, demand),
        csv={"demand.csv": table},
        warnings=demand.warnings,
    )


def _line(law: DemandLaw) -> str:
    slope, fixed = law.workers_per_rate_interval, law.workers_fixed_interval
    return (
        f"replicas = ⌈{law.workers_per_rate:.4g} · rate {law.workers_fixed:+.3g}⌉ from "
        f"{law.linear_from_per_s:g} requests/s on; {100 * law.confidence:.0f} % "
        f"intervals: slope {slope[0]:.4g} to {slope[1]:.4g}, constant {fixed[0]:.3g} "
        f"to {fixed[1]:.3g}; largest residual {law.residual_workers:.2g} replicas"
    )


def _extrapolated(demand: Demand, law: DemandLaw, rate: float) -> str:
    low, high = workers_interval(law, rate)
    times = rate / demand.rates_per_s[-1]
    caution = f"; {times:.3g} times the highest simulated rate: simulate this rate too"
    usd = usd_per_month([demand.pool_at(rate)])
    price = "" if usd is None else f", {format_usd(usd)} per month"
    return (
        f"{demand.pool_at(rate)}{price}; {low} to {high} replicas within the interval "
        f"of the slope{caution if times > _FAR else ''}"
    )


def demand_values(demand: Demand) -> dict[str, Any]:
    """Return the counts, the line and its extrapolations by their keys."""
    points = zip(demand.rates_per_s, demand.candidates, strict=True)
    columns = fields(
        "demand",
        points=lambda of: [record(_POINT, point) for point in points],
        extrapolated=_extrapolations,
    )
    return {"schema": SCHEMA, **record(columns, demand)}


def _extrapolations(demand: Demand) -> list[dict[str, Any]]:
    law = demand.law
    return [
        {
            "rate_per_s": rate,
            "replica_count": law.workers(rate),
            "replica_count_interval": workers_interval(law, rate),
            "gpus": str(demand.pool_at(rate)),
            "usd_per_month": usd_per_month([demand.pool_at(rate)]),
        }
        for rate in demand.extrapolated_per_s
        if law is not None
    ]
