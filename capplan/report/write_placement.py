"""A placement on the terminal and as JSON, CSV and HTML."""

import csv
import io
import math
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from capplan.errors import InputError
from capplan.files import check_folder, write_texts
from capplan.placement.load import ReplicaLoad, replica_loads
from capplan.placement.lp_export import write_model
from capplan.placement.problem import PlacementProblem, kv_over_iterations
from capplan.placement.result import Placement, Status
from capplan.placement.snapshot import write_snapshot
from capplan.planning.place_settings import PlaceSettings
from capplan.report.columns import format_count, format_share
from capplan.report.fleet_charts import Figure
from capplan.report.page import render_page
from capplan.report.svg_chart import COLOURS, Axis, Line, Rule, chart
from capplan.report.write_json import plain, render
from capplan.units import format_duration

SCHEMA = "capplan.placement/1"

HEADINGS = ("replica", "requests", "new", "decode SLO (b)", "prefill (c, d)", "KV (e)")

_ROWS = 40
"""Replicas shown on the terminal; the files have all."""

_PER_CHART = len(COLOURS)


def _replicas(count: int) -> str:
    return f"{count} replica{'' if count == 1 else 's'}"


def headline(placement: Placement) -> str:
    """Return the result in one sentence."""
    if placement.status == Status.INFEASIBLE:
        return "No placement: " + " and ".join(placement.conflict) + " exclude it."
    if placement.replica_count is None:
        return (
            f"No placement found in {format_duration(placement.runtime_s)}; at least "
            f"{_replicas(placement.lower_bound)} needed."
        )
    if placement.status == Status.OPTIMAL:
        return f"{_replicas(placement.replica_count)}, and no fewer are possible."
    return (
        f"{_replicas(placement.replica_count)}; at least {placement.lower_bound} "
        f"needed (gap {format_share(placement.gap)}, not proven optimal)."
    )


def facts(problem: PlacementProblem, placement: Placement) -> list[tuple[str, str]]:
    """Return the facts below the headline: inputs, method, bound."""
    new = int((problem.generated_tokens == 0).sum())
    held = int((problem.replica >= 0).sum())
    rows = [
        ("requests", f"{len(problem)}: {new} new, {held} that keep their replica"),
        ("gamma, theta", f"{problem.gamma:g}, {problem.theta:g}"),
        ("found by", placement.found_by),
        ("bound", f"{_replicas(placement.lower_bound)}, {placement.bound_source}"),
        ("units", placement.scale),
        ("time", format_duration(placement.runtime_s)),
    ]
    if placement.heuristic_counts:
        counts = [f"{name} {n}" for name, n in placement.heuristic_counts.items()]
        rows.insert(3, ("replicas by heuristic", ", ".join(counts)))
    return rows


def load_row(load: ReplicaLoad) -> tuple[str, ...]:
    """Return the loads of a replica as text, in the order of ``HEADINGS``."""

    def of(share: float, load: str, limit: float, show: Any) -> str:
        if not math.isfinite(limit):
            return "–"
        return f"{format_share(share)} ({load} of {show(limit)})"

    return (
        str(load.replica),
        str(load.requests),
        str(load.new_requests),
        of(
            load.context_share,
            format_count(round(load.context_tokens)),
            load.context_limit_tokens,
            lambda limit: format_count(round(limit)),
        ),
        of(
            load.prefill_share,
            format_duration(load.prefill_s),
            load.prefill_limit_s,
            format_duration,
        ),
        of(
            load.kv_share,
            format_count(load.kv_peak_tokens),
            load.kv_capacity_tokens,
            format_count,
        ),
    )


def print_placement(
    problem: PlacementProblem, placement: Placement, console: Console
) -> None:
    """Print the result, then the load of each replica."""
    console.print(headline(placement), style="bold", soft_wrap=True)
    for name, value in facts(problem, placement):
        console.print(f"  {name}: {value}", soft_wrap=True)
    if placement.assignment is None:
        return
    table = Table(box=None, pad_edge=False)
    for heading in HEADINGS:
        table.add_column(heading, justify="right")
    loads = replica_loads(problem, placement.assignment)
    for load in loads[:_ROWS]:
        table.add_row(*load_row(load))
    console.print(table)
    if len(loads) > _ROWS:
        console.print(f"… and {len(loads) - _ROWS} more; --out writes all.")


def check_placement_files(settings: PlaceSettings) -> None:
    """Refuse files that cannot be written, before the work is done."""
    if settings.out is not None:
        check_folder(settings.out)
    if settings.export is not None and not Path(settings.export).parent.is_dir():
        folder = Path(settings.export).parent
        raise InputError(f"{settings.export}: {folder} is not a folder")


def write_placement_files(
    problem: PlacementProblem, placement: Placement, settings: PlaceSettings
) -> tuple[Path, ...]:
    """Write the export and the folder of results; return the files of the folder."""
    if settings.export is not None:
        path = Path(settings.export)
        write = write_model if path.suffix in (".lp", ".mps") else write_snapshot
        write(problem, path)
    if settings.out is None:
        return ()
    texts = {
        "placement.json": placement_json(problem, placement),
        "placement.csv": placement_csv(problem, placement),
        "report.html": placement_html(problem, placement),
    }
    return write_texts(texts, settings.out)


def placement_json(problem: PlacementProblem, placement: Placement) -> str:
    """Return the placement as JSON, with null for numbers that are not finite."""
    document = {
        "schema": SCHEMA,
        "status": str(placement.status),
        "replica_count": placement.replica_count,
        "lower_bound": placement.lower_bound,
        "gap": None if placement.assignment is None else placement.gap,
        "bound_source": placement.bound_source,
        "conflict": list(placement.conflict),
        "found_by": placement.found_by,
        "solver": placement.solver,
        "scale": placement.scale,
        "gamma": problem.gamma,
        "theta": problem.theta,
        "heuristic_counts": placement.heuristic_counts,
        "replicas": [
            {"replica": load.replica} | _load_values(load)
            for load in _loads(problem, placement)
        ],
        "requests": _requests(problem, placement),
    }
    return render(plain(document)) + "\n"


def _loads(problem: PlacementProblem, placement: Placement) -> list[ReplicaLoad]:
    if placement.assignment is None:
        return []
    return replica_loads(problem, placement.assignment)


def _load_values(load: ReplicaLoad) -> dict[str, Any]:
    return {name: getattr(load, name) for name in load.__dataclass_fields__}


def _requests(problem: PlacementProblem, placement: Placement) -> list[dict[str, Any]]:
    if placement.assignment is None:
        return []
    return [
        {
            "name": problem.names[row],
            "replica": int(placement.assignment[row]),
            "prompt_tokens": int(problem.prompt_tokens[row]),
            "predicted_output_tokens": int(problem.predicted_output_tokens[row]),
            "generated_tokens": int(problem.generated_tokens[row]),
        }
        for row in range(len(problem))
    ]


def placement_csv(problem: PlacementProblem, placement: Placement) -> str:
    """Return the replica of each request as CSV."""
    text = io.StringIO()
    names: tuple[str, ...] = ("name", "replica", "prompt_tokens")
    names += ("predicted_output_tokens", "generated_tokens")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in _requests(problem, placement):
        writer.writerow([row[name] for name in names])
    return text.getvalue()


def placement_html(problem: PlacementProblem, placement: Placement) -> str:
    """Return the placement as a self-contained page; every text is escaped."""
    return render_page(
        "placement.html.j2",
        title=headline(placement),
        source=problem.source,
        facts=facts(problem, placement),
        headings=HEADINGS,
        rows=[load_row(load) for load in _loads(problem, placement)],
        figures=kv_figures(problem, placement),
    )


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
    for start in range(0, len(replicas), _PER_CHART):
        group = replicas[start : start + _PER_CHART]
        lines = []
        for replica in group:
            rows = np.flatnonzero(placement.assignment == replica)
            kv = kv_over_iterations(problem, rows)
            lines.append(Line(f"replica {replica}", *_sawtooth(*kv)))
        figures.append(
            Figure(
                f"KV of replicas {group[0]} to {group[-1]}",
                chart(x, y, lines, [Rule("capacity", y=float(capacity))]),
                tuple((line.label, c) for line, c in zip(lines, COLOURS, strict=False)),
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
