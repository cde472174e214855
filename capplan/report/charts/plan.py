"""Charts of a plan: latencies, attainment against replicas, the fleet over time."""

from typing import Any

import numpy as np

from capplan.planning.evaluate.classes import TAIL, ClassResult, own_targets
from capplan.planning.evaluate.judgement import LEVELS
from capplan.planning.evaluate.probe import Probe
from capplan.planning.evaluate.run import Run
from capplan.planning.plan.result import Plan
from capplan.report.charts.fleet import TITLES, Curve, fleet_figures, latency_figures
from capplan.report.charts.svg_chart import Axis, Line, Rule, figure
from capplan.report.columns import format_share
from capplan.report.page import Figure
from capplan.report.pages.classes import shown
from capplan.report.sentences import judged, plural
from capplan.units import format_duration

_COMPARED = 4
"""Candidates whose latencies are drawn; more lines hide each other."""
_CLASSES_DRAWN = 4
"""Classes whose attainment is drawn."""


def figures(plan: Plan) -> list[Figure]:
    """Return the charts that a plan has data for, in reading order."""
    curves = [run_curve(str(row), row.run) for row in plan.candidates if row.run]
    attainment = attainment_figure(plan)
    run = None if plan.best is None else plan.best.run
    own = run is not None and own_targets(run.judgement.classes)
    target = None if own else plan.attainment
    return [
        *latency_figures(curves[:_COMPARED], target, plan.slo_limits_s),
        *(() if run is None else tail_figures(run, plan.slo_limits_s)),
        *filter(None, [attainment]),
        *(() if run is None else fleet_figures(run.simulation.series)),
    ]


def tail_figures(run: Run, limits_s: dict[str, float]) -> list[Figure]:
    """Return the slowest tenth of each latency that is limited, by class.

    Each line ends where a single request would decide.
    """
    judgement = run.judgement
    drawn = shown(judgement.classes)[:_CLASSES_DRAWN]
    rows = [(x.class_name, TAIL, x.tails_s, x.limits_s) for x in drawn if x.tails_s]
    if not rows:
        count, found_s = judgement.counted_request_count, judgement.quantiles_s
        rest = (1 - LEVELS) * count
        told = (rest >= 1) & (rest <= (1 - TAIL[0]) * count)
        known = [name for name in limits_s if found_s.get(f"{name}_s") is not None]
        values_s = {name: found_s[f"{name}_s"][told] for name in known}
        rows = [(str(run.configuration), LEVELS[told], values_s, limits_s)]
    found = (_tail(metric, title, rows) for metric, title in TITLES.items())
    return [figure for figure in found if figure is not None]


def _tail(metric: str, title: str, rows: list[Any]) -> Figure | None:
    """Return the tail of a latency; None where no class limits it."""
    lines: list[Line] = []
    limits: dict[float, list[str]] = {}
    for label, levels, values_s, limits_s in rows:
        at_s = np.asarray(values_s.get(metric, ()), dtype=float)
        if metric not in limits_s or not at_s.size:
            continue
        known = np.isfinite(at_s) & (at_s > 0)
        if known.sum() > 1:
            nines = -np.log10(1 - np.asarray(levels)[known])
            lines.append(Line(label, at_s[known], nines))
            limits.setdefault(limits_s[metric], []).append(label)
    if not lines:
        return None
    ends = np.concatenate([line.x for line in lines] + [np.array(list(limits))])
    named = {s: f"{' and '.join(of)} {format_duration(s)}" for s, of in limits.items()}
    rules = [Rule(name if rows[1:] else "SLO", x=s) for s, name in named.items()]
    return figure(
        f"{title}: the slowest tenth",
        Axis.around(title.lower(), format_duration, ends),
        Axis("share within, %", _of_nines, 1, 4, ticks=(1.0, 2.0, 3.0, 4.0)),
        lines,
        rules,
        caption="Each line ends where only one request is slower.",
    )


def _of_nines(nines: float) -> str:
    return format_share(1 - 10**-nines).removesuffix(" %")


def run_curve(label: str, run: Run) -> Curve:
    """Return the latency distributions of a run."""
    quantiles_s = {name: run.judgement.quantiles_s[f"{name}_s"] for name in TITLES}
    return Curve(label, LEVELS, quantiles_s)


def attainment_figure(plan: Plan) -> Figure | None:
    """Return the attainment of the best candidate at each simulated replica count.

    None of two pools, whose counts are no line.
    Of each class where classes have targets of their own, of all requests else.
    """
    best = plan.best
    if best is None or best.run is None or best.pools or not best.probes:
        return None
    probes, classes = best.probes, best.run.judgement.classes
    counts = np.array([probe.replica_count for probe in probes], dtype=float)
    met = tuple(probe.meets is True for probe in probes)
    if own_targets(classes):
        drawn = shown(classes)[:_CLASSES_DRAWN]
        lines = [_class_line(row, probes, counts) for row in drawn]
        # The legend says which rule is whose: labels would lie on each other.
        rules = [Rule("", y=y) for y in sorted({row.attainment for row in drawn})]
        meets = "hold the target of the class"
    else:
        shares = [(p.slo_attainment, *p.slo_attainment_interval) for p in probes]
        lines = [_line(str(best), counts, shares, met)]
        rules = [Rule(f"asked {format_share(plan.attainment)}", y=plan.attainment)]
        meets = "hold"
    # Few counts get a tick each, many get those of a linear axis.
    ticks = tuple(counts) if len(counts) <= 8 else ()
    # Show the lowest interval and the target, but not the empty part below them.
    ends = [line.y if line.low is None else line.low for line in lines]
    lowest = float(np.nanmin(np.concatenate(ends)))
    floor = min(0.95 * lowest, *(rule.y - 0.02 for rule in rules if rule.y is not None))
    of = f"replicas of {plural(best.gpus_per_replica or best.tp, 'GPU')}"
    low, high = float(counts.min()) - 0.5, float(counts.max()) + 0.5
    return figure(
        "In time against replicas",
        Axis(of, "{:,.0f}".format, low, high, ticks=ticks),
        Axis(f"{judged(best.run)} in time", format_share, max(0.0, floor), 1.0),
        lines,
        rules,
        caption=f"{best}. Filled points {meets}, hollow ones miss; bars are "
        "95 % intervals.",
    )


def _line(
    label: str,
    counts: np.ndarray,
    shares: list[tuple[float, float, float]],  # each with the ends of its interval
    met: tuple[bool, ...],
) -> Line:
    y, low, high = np.array(shares, dtype=float).T
    return Line(label, counts, y, low, high, markers=True, filled=met)


def _class_line(
    result: ClassResult, probes: tuple[Probe, ...], counts: np.ndarray
) -> Line:
    """Return the line of a class; points are filled where it attains its target."""
    of = result.class_name
    rows = [{row.class_name: row for row in probe.classes}.get(of) for probe in probes]
    unknown = (float("nan"),) * 3
    shares = [
        unknown if row is None else (row.slo_attainment, *row.slo_attainment_interval)
        for row in rows
    ]
    met = tuple(of not in probe.missing for probe in probes)
    label = f"{of}, asked {format_share(result.attainment)}"
    return _line(label, counts, shares, met)
