"""``capplan fleet``: several LLMs on shared nodes."""

from pathlib import Path
from typing import Annotated, Any

import typer

from capplan.cli.answer import show
from capplan.cli.options import with_settings
from capplan.cli.scenario import settings_from
from capplan.planning.shared_fleet.settings import SharedFleetSettings


@with_settings(SharedFleetSettings)
def fleet_command(
    plans: Annotated[
        list[Path],
        typer.Argument(metavar="PLAN...", help="plan.json, or a folder with one."),
    ],
    **flags: Any,
) -> int:
    """Put the LLMs of several plans on shared nodes, and share the bill.

    Nodes by the hour, packed so that each LLM of two replicas or more outlives any one
    node; spares for all; what each LLM uses, and what is idle.
    """
    settings = settings_from(SharedFleetSettings, None, flags)
    from capplan.report.pages.shared_fleet import shared_fleet_page
    from capplan.report.to_files import share_nodes

    fleet, written = share_nodes(plans, settings)
    show(shared_fleet_page(fleet), written)
    return 0
