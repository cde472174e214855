"""``capplan place``: put the requests of one moment on the fewest replicas."""

from pathlib import Path
from typing import Annotated, Any

import typer

from capplan.cli.options import with_settings
from capplan.cli.scenario import settings_from
from capplan.planning.settings import PlanSettings

INFEASIBLE = 3
_PLACEMENT = "Placement"
_UNUSED = (
    "attainment",
    "extend",
    "drop_oversized",
    "price",
    "prices",
    "router",
    "solver",
    "out",
    "async_scheduling",
    "prefix_caching",
    "tune",
    "executor",
    "ray_address",
)


class _PlaceSettings(PlanSettings):
    unread = frozenset(_UNUSED)


@with_settings(_PlaceSettings)
def place_command(
    snapshot: Annotated[
        Path | None,
        typer.Argument(
            metavar="SNAPSHOT",
            help="State of a fleet, .json or .csv; or give --trace or --workload.",
            show_default=False,
        ),
    ] = None,
    at: Annotated[
        str,
        typer.Option(
            help="Moment of the trace: `peak`, or a time such as 3600s.",
            rich_help_panel=_PLACEMENT,
        ),
    ] = "peak",
    heartbeat: Annotated[
        str,
        typer.Option(
            help="Requests that arrive within it are placed together.",
            rich_help_panel=_PLACEMENT,
        ),
    ] = "1s",
    gamma: Annotated[
        float | None,
        typer.Option(
            help="Part of the answer that counts as context (default 0.5).",
            rich_help_panel=_PLACEMENT,
        ),
    ] = None,
    theta: Annotated[
        float | None,
        typer.Option(
            help="Share of the decode limits to use (default 0.9).",
            rich_help_panel=_PLACEMENT,
        ),
    ] = None,
    max_replicas: Annotated[
        int | None,
        typer.Option(help="Use no more than these.", rich_help_panel=_PLACEMENT),
    ] = None,
    solver: Annotated[
        str,
        typer.Option(
            help="cp-sat, scip, highs, or a heuristic such as best-fit.",
            rich_help_panel=_PLACEMENT,
        ),
    ] = "cp-sat",
    time_limit: Annotated[
        str,
        typer.Option(
            help="Stop the solver then; the gap is shown.", rich_help_panel=_PLACEMENT
        ),
    ] = "60s",
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            metavar="DIR",
            help="Write placement.json, placement.csv and report.html there.",
            rich_help_panel=_PLACEMENT,
        ),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the model (.lp, .mps) or the snapshot (.json, .csv).",
            rich_help_panel=_PLACEMENT,
        ),
    ] = None,
    **settings: Any,
) -> int:
    """Place the requests of one moment: fewest replicas, who goes where, what binds.

    Exit code 0: placed; 2: wrong input; 3: no placement within --max-replicas.
    """
    from capplan.files import check_folder
    from capplan.units import parse_duration_s

    if out is not None:
        check_folder(out)
    moment_s = None if at == "peak" else parse_duration_s(at)
    heartbeat_s, limit_s = parse_duration_s(heartbeat), parse_duration_s(time_limit)
    request = settings_from(PlanSettings, None, settings)
    from capplan.planning.placing import Moment, export_problem, placed, problem_at
    from capplan.report.terminal import console
    from capplan.report.write_placement import print_placement, write_placement

    knobs = {"gamma": gamma, "theta": theta, "max_replicas": max_replicas}
    problem = problem_at(request, Moment(snapshot, moment_s, heartbeat_s, knobs))
    if export is not None:
        export_problem(problem, export)
    placement = placed(problem, solver, limit_s, request.seed)
    shown = console()
    print_placement(problem, placement, shown)
    if out is not None:
        written = write_placement(problem, placement, out)
        shown.print(f"written: {', '.join(map(str, written))}", soft_wrap=True)
    return 0 if placement.assignment is not None else INFEASIBLE
