"""``capplan demand``: replicas against the arrival rate, and a line through them."""

from typing import Any

from capplan.cli.answer import progress, show
from capplan.cli.notices import announce_compilation
from capplan.cli.options import with_settings
from capplan.cli.scenario import Scenario, settings_from
from capplan.planning.settings.plan import DemandSettings


@with_settings(DemandSettings)
def demand_command(scenario: Scenario = None, **flags: Any) -> int:
    """Plan at several arrival rates and fit replicas = ⌈k5 · rate + c5⌉ (Aladdin)."""
    settings = settings_from(DemandSettings, scenario, flags)
    announce_compilation([settings.scheduler])
    from capplan.report.pages.demand import demand_page
    from capplan.report.to_files import demand

    with progress() as step:
        result, written = demand(settings, step)
    show(demand_page(result), written)
    return 0
