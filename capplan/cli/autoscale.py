"""``capplan autoscale``: autoscalers against fleets of a fixed size."""

from typing import Any

from capplan.cli.answer import progress, show
from capplan.cli.interruption import INTERRUPTED, interruptible
from capplan.cli.notices import announce_compilation
from capplan.cli.options import with_settings
from capplan.cli.plan import INFEASIBLE
from capplan.cli.scenario import Scenario, settings_from
from capplan.planning.autoscale.settings import AutoscaleSettings


@with_settings(AutoscaleSettings)
def autoscale_command(scenario: Scenario = None, **flags: Any) -> int:
    """Compare autoscalers with fleets of a fixed size, and with a lower bound.

    Each policy against the smallest fixed fleet that attains as much, and against one
    that knows the arrivals to come; what an outage, an update or lost spot replicas
    do, and how many spares keep the SLO. Exit code 3: no fixed fleet attains the
    target; 130: Ctrl-C, which answers with what is known so far.
    """
    settings = settings_from(AutoscaleSettings, scenario, flags)
    announce_compilation([settings.scheduler])
    from capplan.report.pages.autoscale import autoscale_page
    from capplan.report.to_files import autoscale

    with progress() as step, interruptible() as stopped:
        result, written = autoscale(settings, step, stopped)
    show(autoscale_page(result), written)
    if result.interrupted:
        return INTERRUPTED
    return 0 if result.fixed is not None else INFEASIBLE
