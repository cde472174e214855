"""Columns of the tables of a budget."""

from typing import Any

import numpy as np

from capplan.planning.budget.result import Budget, Month
from capplan.planning.load.demand_curve import hour_name
from capplan.report.columns import (
    Column,
    column,
    format_count,
    format_fine_usd,
    format_share,
    starred,
)
from capplan.units import format_usd


def starred_usd(budget: Budget, amount: float) -> str:
    """Return dollars, starred where they rest on assumed prices or counts."""
    return format_usd(amount) + ("*" if any(map(_is_starred, budget.months)) else "")


def _is_starred(month: Month) -> bool:
    return month.is_doubtful or month.is_estimated


def _estimated_usd(name: str, heading: str) -> Column:
    return column(name, heading, told=starred("is_estimated", name))


def _starred(count: float) -> str:
    return f"{format_count(count)}*"


def _usd_of(month: Month) -> str:
    return format_usd(month.bill.usd) + ("*" if _is_starred(month) else "")


def _in_bill(name: str, heading: str = "", show: Any = str, **layout: Any) -> Column:
    return column(name, heading, show, path=f"bill.{name}", **layout)


MONTHS = (
    column("month", "month", format_count),
    column("work_factor", "traffic", "{:.3g}×".format, leaves=5),
    column("busiest_per_s", "peak /s", format_count),
    column("mean_per_s", "mean /s", format_count, leaves=1),
    column("replicas", "replicas", told=starred("is_estimated", "replicas", str)),
    column("known_by"),
    _in_bill("nodes", "nodes", format_count),
    _in_bill("node_hours", "node-h", format_count, leaves=2),
    _in_bill("committed_nodes", "committed", format_count),
    _in_bill("on_demand_node_hours"),
    _in_bill("spot_node_hours"),
    _in_bill("usd_committed", "$ committed", format_usd, leaves=6),
    _in_bill("usd_on_demand", "$ on demand", format_usd, leaves=6),
    _in_bill("usd_spot", "$ spot", format_usd, leaves=4),
    _in_bill("usd_beside", "$ other sizes", format_usd, leaves=4),
    _in_bill("usd_to_minimum"),
    column("usd", "$", path="bill.usd", told=_usd_of),
    _in_bill("usd_paid"),
    column("commitment_utilisation", "used", format_share, path="bill.utilisation"),
    column("commitment_coverage", "covered", format_share, path="bill.coverage"),
    _in_bill("usd_unused"),
    _in_bill("usd_owed", "owed", format_usd),
    column("kwh", "kWh", _starred, leaves=3),
    column("t_co2e", "t CO2e", _starred, leaves=3),
    column("usd_per_million_total_tokens"),
    column("wh_per_thousand_output_tokens"),
)

COMMITMENTS = (
    column("name", "commitment", justify="left", path="held.name"),
    column("nodes", "nodes", format_count, path="held.nodes"),
    column("first_month", "from month", format_count, path="held.first_month"),
    column("last_month", "to month", format_count, path="held.last_month"),
    column(
        "usd_per_node_h",
        "$/node-h",
        str,
        path="held.usd_per_node_h",
        told=starred("held.is_assumed", "held.usd_per_node_h"),
    ),
    column("upfront_share", path="held.upfront_share"),
    column("is_assumed", path="held.is_assumed"),
    column("is_contract", path="held.is_contract"),
    column("firm_month", path="held.firm_month"),
    column("utilisation", "used", format_share),
    column("break_even", "pays from", format_share),
    column("coverage", "covers", format_share),
    column("usd", "$ in all", format_usd),
    column("usd_unused", "$ unused", format_usd),
    column("usd_owed_after", "owed after", format_usd),
    column("usd_prepaid_after"),
)

ALTERNATIVES = (
    column("name", "way to pay", justify="left"),
    column("usd", "$ in all", str, told=starred("is_estimated", "usd")),
    column("usd_first_month", "$ month 1", format_usd),
    column("usd_last_month", "$ last month", format_usd),
    column("usd_owed_after", "owed after", format_usd),
    column("is_estimated"),
    column("note", "", justify="left"),
)

SCENARIOS = (
    column("name", "scenario", justify="left"),
    column("changes", "with", justify="left", leaves=3),
    column("", "replicas of", justify="left", path="configuration", leaves=4),
    column("layout", path="configuration.key.1"),
    column("gpus_per_replica", path="configuration.gpus"),
    column("replicas", "replicas", format_count),
    column("replicas_last_month", "last month", format_count),
    column("nodes", "nodes", format_count),
    column("nodes_last_month", "last month", format_count),
    _estimated_usd("usd_first_month", "$ month 1"),
    _estimated_usd("usd_last_month", "$ last month"),
    column("usd_first_year", "$ year 1", format_usd, leaves=1),
    _estimated_usd("usd", "$ in all"),
    column("usd_owed_after", "owed after", format_usd, leaves=2),
    column("is_estimated"),
    column("infeasible_reason", "", justify="left"),
)

FLEETS = (
    column("name", "fleet", justify="left"),
    column("policy"),
    column("slo_attainment", "attainment", format_share),
    column("worst_hour_attainment", "worst hour", format_share),
    column("meets", "meets", lambda meets: "yes" if meets else "no"),
    column("peak_nodes", "peak nodes", format_count),
    column("mean_nodes", "mean nodes", format_count),
    column("usd_per_month", "$ a month", format_usd),
    column("static_nodes", "fixed, as good", format_count),
    column("static_usd_per_month", "its $", format_usd),
    column("of_static", "of its $", format_share),
)


def _pays_from(share: float) -> str:
    """Return a utilisation that is reached, or never."""
    return format_share(share) if share <= 1 else "never"


WAYS = (
    column("name", "way", justify="left"),
    column(
        "usd_per_gpu_h",
        "$/GPU-h",
        str,
        told=starred("is_assumed", "usd_per_gpu_h", format_fine_usd),
    ),
    column("is_assumed"),
    column("upfront_usd_per_gpu_h", "in present value", format_fine_usd),
    column("break_even", "pays from", _pays_from),
    column("base_quantile", "quantile", format_share),
    column("base_nodes", "base, month 1", format_count),
    column("base_nodes_last", "base, last month", format_count),
    column("owned_break_even", "owning pays from", _pays_from),
)

ASSUMPTIONS = (
    column("what", "what", justify="left"),
    column(
        "value",
        "value",
        justify="left",
        is_wide=True,
        told=lambda row: row.value + ("*" if row.how == "assumed" else ""),
    ),
    column("source", "source", justify="left", is_wide=True),
)


HOURS = (
    column("hour"),
    column("name", "hour", justify="left"),
    column("peak_per_s", "peak /s", format_count),
    column("mean_per_s", "mean /s", format_count),
    column("nodes_first_month", "nodes, month 1", format_count),
    column("nodes_last_month", "nodes, last month", format_count),
    column("committed_first_month", "committed, month 1", format_count),
    column("committed_last_month", "committed, last month", format_count),
)


def hour_rows(budget: Budget) -> list[dict[str, Any]]:
    """Return the hours of a budget, as they come again."""
    if not budget.months:
        return []
    first, last = budget.months[0], budget.months[-1]
    curve = budget.curve
    columns = (curve.peak_per_s, curve.mean_per_s, first.nodes, last.nodes)
    return [
        {
            "hour": hour,
            "name": hour_name(hour, of_week=curve.is_typical),
            "peak_per_s": float(peak),
            "mean_per_s": float(mean),
            "nodes_first_month": int(before),
            "nodes_last_month": int(after),
            "committed_first_month": first.bill.committed_nodes,
            "committed_last_month": last.bill.committed_nodes,
        }
        for hour, (peak, mean, before, after) in enumerate(
            zip(*map(np.asarray, columns), strict=True)
        )
    ]


def node_columns(budget: Budget) -> tuple[Column, ...]:
    """Return the columns of the nodes of each hour, one for each month."""

    def of(month: Month) -> Column:
        return Column(f"month_{month.month}", lambda row: int(month.nodes[row["hour"]]))

    return (column("hour"), *map(of, budget.months))
