"""``capplan capacity``: the highest rate and the most users that a fleet serves."""

from typing import Any

from capplan.cli.answer import progress, show
from capplan.cli.interruption import INTERRUPTED, interruptible
from capplan.cli.notices import announce_compilation
from capplan.cli.options import with_settings
from capplan.cli.plan import INFEASIBLE
from capplan.cli.scenario import Scenario, settings_from
from capplan.planning.settings.plan import CapacitySettings


@with_settings(CapacitySettings)
def capacity_command(scenario: Scenario = None, **flags: Any) -> int:
    """Find the highest rate and the most users that given fleets serve.

    The inverse of `capplan plan`: of --replicas N, of the replicas that --max-gpus
    hold, or of those that --max-usd-per-month pays. Ctrl-C answers with the fleets
    that are done; exit code 130. Exit code 3: the first one serves nothing.
    """
    settings = settings_from(CapacitySettings, scenario, flags)
    announce_compilation([settings.scheduler])
    from capplan.report.pages.capacity import capacity_page
    from capplan.report.to_files import capacity

    with progress() as step, interruptible() as stopped:
        result, written = capacity(settings, step, stopped)
        interrupted = stopped()
    show(capacity_page(result), written)
    if interrupted:
        return INTERRUPTED
    return INFEASIBLE if result.best.max_rate_per_s is None else 0
