"""Charts of a plan: latencies, attainment against replicas, the fleet over time."""

import numpy as np

from capplan.planning.result import Plan
from capplan.report.answer import name
from capplan.report.columns import format_share
from capplan.report.fleet_charts import Curve, Figure, fleet_figures, latency_figures
from capplan.report.svg_chart import Axis, Line, Rule, chart

_COMPARED = 4
"""Candidates whose latencies are drawn; more lines hide each other."""


def figures(plan: Plan) -> list[Figure]:
    """Return the charts that a plan has data for, in reading order."""
    curves = [
        Curve(
            name(row),
            row.quantile_levels,
            {m: getattr(row, f"{m}_quantiles_s") for m in ("ttft", "tpot", "e2e")},
        )
        for row in plan.candidates
        if row.quantile_levels is not None
    ]
    attainment = attainment_figure(plan)
    best = plan.best
    return [
        *latency_figures(curves[:_COMPARED], plan.attainment, plan.slo_limits_s),
        *([] if attainment is None else [attainment]),
        *([] if best is None or best.series is None else fleet_figures(best.series)),
    ]


def attainment_figure(plan: Plan) -> Figure | None:
    """Return the attainment of the best candidate at each simulated replica count."""
    best = plan.best
    if best is None or not best.probes:
        return None
    probes = best.probes
    counts = np.array([probe.replica_count for probe in probes], dtype=float)
    low = np.array([probe.slo_attainment_interval[0] for probe in probes])
    high = np.array([probe.slo_attainment_interval[1] for probe in probes])
    line = Line(
        name(best),
        counts,
        np.array([probe.slo_attainment for probe in probes]),
        low,
        high,
        markers=True,
        filled=tuple(probe.meets is True for probe in probes),
    )
    # Few counts get a tick each, many get those of a linear axis.
    ticks = tuple(counts) if len(counts) <= 8 else ()
    # Show the lowest interval and the target, but not the empty part below them.
    floor = min(0.95 * float(np.nanmin(low)), plan.attainment - 0.02)
    return Figure(
        "Attainment against replicas",
        chart(
            Axis(
                f"replicas of {best.tp} GPU" + ("" if best.tp == 1 else "s"),
                lambda value: f"{value:,.0f}",
                float(counts.min()) - 0.5,
                float(counts.max()) + 0.5,
                ticks=ticks,
            ),
            Axis("attainment", format_share, max(0.0, floor), 1.0),
            [line],
            [Rule(f"asked {format_share(plan.attainment)}", y=plan.attainment)],
        ),
        caption=f"{name(best)}. Filled points meet the SLO, hollow ones miss it; "
        "bars are 95 % intervals.",
    )
