"""The page of a placement: the count, what binds, and who goes where."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from capplan.placement.load import ReplicaLoad, replica_loads
from capplan.placement.problem import PlacementProblem, kv_over_iterations
from capplan.placement.result import Placement, Status
from capplan.planning.plan.placing import Placed
from capplan.report.charts.svg_chart import MOST_LINES, Axis, Line, Rule, figure
from capplan.report.columns import DASH, column, format_count, format_share, record
from capplan.report.fields import fields
from capplan.report.page import Fact, Figure, Page, Section, Table
from capplan.report.sentences import plural
from capplan.units import format_duration

SCHEMA = "capplan.placement/2"


def headline(placement: Placement) -> str:
    """Return the result in one sentence."""
    if placement.status == Status.INFEASIBLE:
        return "No placement: " + " and ".join(placement.conflict) + " exclude it."
    if placement.replica_count is None:
        return (
            f"No placement found in {format_duration(placement.runtime_s)}; at least "
            f"{plural(placement.lower_bound, 'replica')} needed."
        )
    replicas = plural(placement.replica_count, "replica")
    if placement.status == Status.OPTIMAL:
        return f"{replicas}, and no fewer are possible."
    return (
        f"{replicas}; at least {placement.lower_bound} needed "
        f"(gap {format_share(placement.gap)}, not proven optimal)."
    )


def facts(problem: PlacementProblem, placement: Placement) -> list[Fact]:
    """Return the facts below the headline: inputs, method, bound."""
    new = int((problem.generated_tokens == 0).sum())
    held = int((problem.replica >= 0).sum())
    rows = [
        ("of", problem.source),
        ("requests", f"{len(problem)}: {new} new, {held} that keep their replica"),
        ("gamma, theta", f"{problem.gamma:g}, {problem.theta:g}"),
        ("found by", placement.found_by),
        (
            "bound",
            f"{plural(placement.lower_bound, 'replica')}, {placement.bound_source}",
        ),
        ("units", placement.scale),
        ("time", format_duration(placement.runtime_s)),
    ]
    if placement.heuristic_counts:
        counts = [f"{name} {n}" for name, n in placement.heuristic_counts.items()]
        rows.insert(3, ("replicas by heuristic", ", ".join(counts)))
    return rows


def _share(load: str, limit: str, show: Callable[[float], str]) -> Callable[[Any], str]:
    """Return what shows a load of a replica against its limit."""

    def text(row: ReplicaLoad) -> str:
        most, held = getattr(row, limit), getattr(row, load)
        if not math.isfinite(most):
            return DASH
        return f"{format_share(held / most)} ({show(held)} of {show(most)})"

    return text


def _whole(tokens: float) -> str:
    return format_count(round(tokens))


_LOADS = fields(
    "load",
    **{
        "decode SLO (b)": _share("context_tokens", "context_limit_tokens", _whole),
        "prefill (c, d)": _share("prefill_s", "prefill_limit_s", format_duration),
        "KV (e)": _share("kv_peak_tokens", "kv_capacity_tokens", _whole),
    },
)
_TOKENS = ("prompt_tokens", "predicted_output_tokens", "generated_tokens")
_REQUESTS = tuple(map(column, ("name", "replica", *_TOKENS)))


def placement_page(placed: Placed) -> Page:
    """Return the page of a placement."""
    problem, placement = placed
    loads = Table(_LOADS, _loads(problem, placement))
    return Page(
        "placement",
        headline(placement),
        "one moment, placed",
        [
            Section("How sure it is", facts=facts(problem, placement)),
            Section("How full each replica is", tables=[loads]),
            Section(
                "KV over future iterations",
                figures=partial(kv_figures, problem, placement),
            ),
        ],
        values=partial(placement_values, problem, placement),
        csv={"placement.csv": Table(_REQUESTS, _requests(problem, placement))},
        is_failure=placement.assignment is None,
    )


def placement_values(problem: PlacementProblem, placement: Placement) -> dict[str, Any]:
    """Return the placement by the keys of ``placement.json``."""
    columns = fields(
        "placement",
        gap=lambda of: None if of.placement.assignment is None else of.placement.gap,
        replicas=lambda of: _loads(*of),
        requests=lambda of: _requests(*of),
    )
    return {"schema": SCHEMA, **record(columns, Placed(problem, placement))}


def _loads(problem: PlacementProblem, placement: Placement) -> list[ReplicaLoad]:
    if placement.assignment is None:
        return []
    return replica_loads(problem, placement.assignment)


def _requests(problem: PlacementProblem, placement: Placement) -> list[dict[str, Any]]:
    if placement.assignment is None:
        return []
    tokens = {name: getattr(problem, name).astype(int).tolist() for name in _TOKENS}
    replicas = placement.assignment.tolist()
    columns = {"name": problem.names, "replica": replicas, **tokens}
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def kv_figures(problem: PlacementProblem, placement: Placement) -> list[Figure]:
    """Return charts of the KV of every replica over future iterations."""
    if placement.assignment is None:
        return []
    capacity = problem.template.kv_capacity_tokens
    replicas = np.unique(placement.assignment).tolist()
    remaining = problem.remaining_tokens
    x = Axis("iterations ahead", format_count, 0.0, float(max(remaining.max(), 1)))
    y = Axis("KV [tokens]", format_count, 0.0, 1.08 * capacity)
    figures = []
    for start in range(0, len(replicas), MOST_LINES):
        group = replicas[start : start + MOST_LINES]
        lines = []
        for replica in group:
            rows = np.flatnonzero(placement.assignment == replica)
            kv = kv_over_iterations(problem, rows)
            lines.append(Line(f"replica {replica}", *_sawtooth(*kv)))
        figures.append(
            figure(
                f"KV of replicas {group[0]} to {group[-1]}",
                x,
                y,
                lines,
                [Rule("capacity", y=float(capacity))],
                "Just before each completion, as predicted.",
            )
        )
    return figures


def _sawtooth(
    iterations: np.ndarray, tokens: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the points of a line that drops to 0 at the last completion."""
    end = iterations[-1:]
    return (
        np.concatenate([iterations, end]).astype(float),
        np.concatenate([tokens, [0]]).astype(float),
    )
