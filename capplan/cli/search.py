"""``capplan search``: which GPU and TP degree serve most, without a simulation."""

from pathlib import Path
from typing import Annotated, Any

import typer

from capplan.cli.options import with_settings
from capplan.cli.plan import INFEASIBLE
from capplan.cli.scenario import settings_from
from capplan.planning.settings import PlanSettings

_WITHOUT = (
    "rate",
    "arrivals",
    "extend",
    "drop_oversized",
    "router",
    "solver",
    "tune",
    "executor",
    "ray_address",
    "predictor",
    "api_overhead_ms",
)


@with_settings(PlanSettings, without=_WITHOUT)
def search_command(
    scenario: Annotated[
        Path | None,
        typer.Argument(
            metavar="SCENARIO.yaml",
            help="Any of the settings of capplan plan in a file; flags override it.",
            show_default=False,
        ),
    ] = None,
    **settings: Any,
) -> int:
    """Compare TP degrees and GPUs by output tokens per second and GPU.

    Aladdin's Eq. 5 and 6: decode only, at the largest batch that KV and TPOT
    allow. Exit code 3 when none can serve.
    """
    request = settings_from(PlanSettings, scenario, settings)
    from capplan.files import check_folder

    if request.out is not None:
        check_folder(request.out)
    from capplan.planning.search import search
    from capplan.report.terminal import console
    from capplan.report.write_search import print_search, write_search

    result = search(request)
    written = () if request.out is None else write_search(result, request.out)
    out = console()
    print_search(result, out)
    if written:
        out.print(f"written: {', '.join(map(str, written))}", soft_wrap=True)
    return 0 if result.found.best is not None else INFEASIBLE
