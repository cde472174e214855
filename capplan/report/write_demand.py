"""Replicas against the arrival rate on the terminal and as JSON."""

from typing import Any

from rich.console import Console
from rich.table import Table

from capplan.placement.demand_law import DemandLaw, workers_interval
from capplan.planning.demand import Demand
from capplan.report.terminal import print_warnings
from capplan.report.write_json import plain, render

SCHEMA = "capplan.demand/1"
_FAR = 2.0


def print_demand(demand: Demand, out: Console) -> None:
    """Print the counts, the law with its intervals, and what it gives elsewhere."""
    table = Table(title=f"{demand.gpu} × TP {demand.tp}", title_justify="left")
    for heading in ("requests/s", "replicas", "GPUs", "at least", "attainment"):
        table.add_column(heading, justify="right")
    for rate, one in zip(demand.rates_per_s, demand.candidates, strict=True):
        table.add_row(
            f"{rate:g}",
            f"{one.replica_count}",
            f"{one.gpu_count}",
            f"{one.lower_bound_gpu_count}",
            f"{one.slo_attainment:.2%}",
        )
    out.print(table)
    law = demand.law
    if law is None:
        out.print(f"no law: {demand.no_law}", highlight=False)
    else:
        slope, fixed = law.workers_per_rate_interval, law.workers_fixed_interval
        out.print(
            f"replicas = ⌈{law.workers_per_rate:.4g} · rate "
            f"{law.workers_fixed:+.3g}⌉ from {law.linear_from_per_s:g} requests/s on "
            f"(Aladdin, Eq. 7; {law.confidence:.0%} intervals "
            f"{slope[0]:.4g} to {slope[1]:.4g} and {fixed[0]:.3g} to {fixed[1]:.3g}; "
            f"no count is further than {law.residual_workers:.2g} from the line)",
            soft_wrap=True,
        )
        for rate in demand.extrapolated_per_s:
            out.print(
                f"{rate:g} requests/s, not simulated: {demand.deployment_at(rate)}"
                f"; {_span(law, rate)}{_beyond(demand, rate)}",
                soft_wrap=True,
            )
    print_warnings(demand.warnings, out)


def _span(law: DemandLaw, rate: float) -> str:
    low, high = workers_interval(law, rate)
    return f"{low} to {high} replicas by the interval of the slope"


def _beyond(demand: Demand, rate: float) -> str:
    """Return a caution where a rate is far from those simulated."""
    times = rate / demand.rates_per_s[-1]
    if times <= _FAR:
        return ""
    return f", {times:.3g} times the highest rate simulated: simulate it"


def demand_json(demand: Demand) -> str:
    """Return the counts and the law as JSON."""
    return render(plain(_values(demand))) + "\n"


def _values(demand: Demand) -> dict[str, Any]:
    law = demand.law
    points = [
        {
            "rate_per_s": rate,
            "replica_count": one.replica_count,
            "gpu_count": one.gpu_count,
            "lower_bound_gpu_count": one.lower_bound_gpu_count,
            "slo_attainment": one.slo_attainment,
        }
        for rate, one in zip(demand.rates_per_s, demand.candidates, strict=True)
    ]
    return {
        "schema": SCHEMA,
        "gpu": demand.gpu,
        "tp": demand.tp,
        "points": points,
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
                "gpus": str(demand.deployment_at(rate)),
            }
            for rate in demand.extrapolated_per_s
            if law is not None
        ],
        "warnings": demand.warnings,
    }
