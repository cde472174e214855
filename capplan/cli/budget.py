"""``capplan budget``: nodes by hour and month, commitments, and other ways to pay."""

from pathlib import Path
from typing import Annotated, Any

import typer

from capplan.cli.answer import progress, show
from capplan.cli.notices import announce_compilation
from capplan.cli.options import with_settings
from capplan.cli.plan import INFEASIBLE
from capplan.cli.scenario import settings_from
from capplan.planning.budget_settings import BudgetSettings


@with_settings(BudgetSettings)
def budget_command(
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="PLAN.json|SCENARIO.yaml",
            help="Plan that `capplan plan` wrote, or YAML file of the settings below; "
            "flags override both.",
            show_default=False,
        ),
    ] = None,
    **flags: Any,
) -> int:
    """Budget the nodes of 12 to 36 months, and the commitments worth buying.

    Demand by the hour, of a trace or a typical week, grows month by month; replicas
    are simulated at some months' peaks. The ladder of commitments, spot, on demand and
    owned nodes are set side by side. Exit code 3: the quotas are too small.
    """
    scenario, planned = source, None
    if source is not None and source.suffix == ".json":
        from capplan.report.planned_settings import planned_settings

        scenario, planned = None, planned_settings(source, BudgetSettings)
    settings = settings_from(BudgetSettings, scenario, flags, planned)
    announce_compilation([settings.scheduler])
    from capplan.report.pages.budget import budget_page
    from capplan.report.to_files import budget

    with progress() as step:
        result, written = budget(settings, step)
    show(budget_page(result), written)
    return INFEASIBLE if result.infeasible_reason else 0
