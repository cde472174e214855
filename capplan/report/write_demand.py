"""Write replicas against the arrival rate, on the terminal and as JSON."""

from rich.console import Console
from rich.text import Text

from capplan.placement.demand_law import DemandLaw, workers_interval
from capplan.planning.demand import Demand
from capplan.report.columns import COLUMNS
from capplan.report.tables import plain_table
from capplan.report.terminal import print_warnings
from capplan.report.write_json import plain, render

SCHEMA = "capplan.demand/1"

_POINT = ("replica_count", "gpu_count", "lower_bound_gpu_count", "slo_attainment")
_FAR = 2.0
"""Times the highest simulated rate beyond which an extrapolation is doubtful."""


def print_demand(demand: Demand, out: Console) -> None:
    """Print the simulated counts, the line through them and its extrapolations."""
    scheduler = demand.candidates[0].scheduler
    headline = f"{demand.gpu} × TP {demand.tp}, scheduler {scheduler}"
    out.print(Text(headline, style="bold"))
    shown = [column for column in COLUMNS if column.name in _POINT]
    headings = ("requests/s", *(column.heading for column in shown))
    table = plain_table((heading, "right") for heading in headings)
    for rate, candidate in zip(demand.rates_per_s, demand.candidates, strict=True):
        table.add_row(f"{rate:g}", *(column.text(candidate) for column in shown))
    out.print(table)
    if demand.law is None:
        out.print(f"no line through these counts: {demand.no_law}", soft_wrap=True)
    else:
        out.print(_line(demand.law), soft_wrap=True)
        for rate in demand.extrapolated_per_s:
            out.print(_extrapolated(demand, demand.law, rate), soft_wrap=True)
    print_warnings(demand.warnings, out)


def _line(law: DemandLaw) -> str:
    slope, fixed = law.workers_per_rate_interval, law.workers_fixed_interval
    return (
        f"replicas = ⌈{law.workers_per_rate:.4g} · rate {law.workers_fixed:+.3g}⌉ from "
        f"{law.linear_from_per_s:g} requests/s on (Aladdin, Eq. 7); "
        f"{law.confidence:.0%} intervals: slope {slope[0]:.4g} to {slope[1]:.4g}, "
        f"constant {fixed[0]:.3g} to {fixed[1]:.3g}; largest residual "
        f"{law.residual_workers:.2g} replicas"
    )


def _extrapolated(demand: Demand, law: DemandLaw, rate: float) -> str:
    low, high = workers_interval(law, rate)
    times = rate / demand.rates_per_s[-1]
    caution = f"; {times:.3g} times the highest simulated rate: simulate this rate too"
    return (
        f"{rate:g} requests/s, extrapolated: {demand.pool_at(rate)}; {low} to "
        f"{high} replicas within the interval of the slope"
        f"{caution if times > _FAR else ''}"
    )


def demand_json(demand: Demand) -> str:
    """Return the counts, the line and its extrapolations as JSON."""
    law = demand.law
    values = {
        "schema": SCHEMA,
        "gpu": demand.gpu,
        "tp": demand.tp,
        "scheduler": demand.candidates[0].scheduler,
        "points": [
            {"rate_per_s": rate} | {name: getattr(candidate, name) for name in _POINT}
            for rate, candidate in zip(
                demand.rates_per_s, demand.candidates, strict=True
            )
        ],
        "workers_per_rate": law and law.workers_per_rate,
        "workers_per_rate_interval": law and law.workers_per_rate_interval,
        "workers_fixed": law and law.workers_fixed,
        "workers_fixed_interval": law and law.workers_fixed_interval,
        "linear_from_per_s": law and law.linear_from_per_s,
        "no_law": demand.no_law or None,
        "extrapolated": [
            {
                "rate_per_s": rate,
                "replica_count": law.workers(rate),
                "replica_count_interval": workers_interval(law, rate),
                "gpus": str(demand.pool_at(rate)),
            }
            for rate in demand.extrapolated_per_s
            if law is not None
        ],
        "warnings": demand.warnings,
    }
    return render(plain(values)) + "\n"
