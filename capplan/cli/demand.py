"""``capplan demand``: replicas against the arrival rate, and the line through them."""

from typing import Any

from capplan.cli.notices import say_if_compiling
from capplan.cli.options import with_settings
from capplan.cli.scenario import Scenario, settings_from
from capplan.planning.settings import DemandSettings


@with_settings(DemandSettings)
def demand_command(scenario: Scenario = None, **flags: Any) -> int:
    """Plan for several rates and fit Aladdin's Eq. 7: replicas = ⌈k5 · rate + c5⌉."""
    settings = settings_from(DemandSettings, scenario, flags)
    say_if_compiling()
    from capplan.report.terminal import console, print_written, progress
    from capplan.report.to_files import demand
    from capplan.report.write_demand import print_demand

    with progress() as show:
        result, written = demand(settings, show)
    out = console()
    print_written(written, out)
    print_demand(result, out)
    return 0
