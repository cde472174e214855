"""``capplan place``: put the requests of one moment on the fewest replicas."""

from pathlib import Path
from typing import Annotated, Any

import typer

from capplan.cli.answer import show
from capplan.cli.asked import INFEASIBLE
from capplan.cli.options import with_settings
from capplan.cli.scenario import settings_from
from capplan.planning.settings.place import PlaceSettings


@with_settings(PlaceSettings)
def place_command(
    snapshot: Annotated[
        Path | None,
        typer.Argument(
            metavar="SNAPSHOT",
            help="State of a fleet, .json or .csv; or give --trace or --workload.",
            show_default=False,
        ),
    ] = None,
    **flags: Any,
) -> int:
    """Place the requests of one moment: fewest replicas, who goes where, what binds.

    Exit code 0: placed; 2: wrong input; 3: no placement within --max-replicas.
    """
    settings = settings_from(PlaceSettings, None, {**flags, "snapshot": snapshot})
    from capplan.report.pages.placement import placement_page
    from capplan.report.to_files import place

    placed, written = place(settings)
    show(placement_page(*placed), written)
    return 0 if placed[1].assignment is not None else INFEASIBLE
