"""``capplan plan``: the fewest GPUs that serve a workload within its SLOs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from capplan.cli.notices import say_if_compiling
from capplan.cli.options import with_settings
from capplan.cli.scenario import settings_from
from capplan.planning.settings import PlanSettings

INFEASIBLE = 3


@with_settings(PlanSettings)
def plan_command(
    scenario: Annotated[
        Path | None,
        typer.Argument(
            metavar="SCENARIO.yaml",
            help="Any of the settings below in a file; flags override it.",
            show_default=False,
        ),
    ] = None,
    **settings: Any,
) -> int:
    """Find the fewest GPUs, and the cheapest, that serve a trace within its SLOs.

    Exit code 0: there is an answer; 2: wrong input; 3: nothing can meet the SLO.
    """
    request = settings_from(PlanSettings, scenario, settings)
    say_if_compiling()
    from capplan.files import check_folder
    from capplan.report.files import write_plan

    if request.out is not None:
        check_folder(request.out)
    from capplan.planning.plan import plan
    from capplan.report.terminal import console, print_plan, progress

    with progress() as say:
        result = plan(request, say)
    written = () if request.out is None else write_plan(result, request.out)
    out = console()
    print_plan(result, out)
    if written:
        out.print(f"written: {', '.join(map(str, written))}", soft_wrap=True)
    return 0 if result.best is not None else INFEASIBLE
