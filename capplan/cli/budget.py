"""``capplan budget``: nodes by hour and month, commitments, and other ways to pay."""

from typing import Any

from capplan.cli.answer import progress, show
from capplan.cli.notices import announce_compilation
from capplan.cli.options import with_settings
from capplan.cli.plan import INFEASIBLE
from capplan.cli.scenario import Source, settings_of_source
from capplan.planning.budget.settings import BudgetSettings


@with_settings(BudgetSettings)
def budget_command(
    source: Source = None,
    **flags: Any,
) -> int:
    """Budget the nodes of 12 to 36 months, and the commitments worth buying.

    Demand by the hour, of a trace or a typical week, grows month by month; replicas
    are simulated at some months' peaks. The ladder of commitments, spot, on demand and
    owned nodes are set side by side. Exit code 3: the quotas are too small.
    """
    settings = settings_of_source(BudgetSettings, source, flags)
    announce_compilation([settings.scheduler])
    from capplan.report.pages.budget import budget_page
    from capplan.report.to_files import budget

    with progress() as step:
        result, written = budget(settings, step)
    show(budget_page(result), written)
    return INFEASIBLE if result.infeasible_reason else 0
