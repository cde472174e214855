"""``capplan simulate``: latencies and attainment of one given deployment."""

from typing import Any

from capplan.cli.answer import is_quiet, show
from capplan.cli.interruption import INTERRUPTED, interruptible
from capplan.cli.notices import announce_compilation
from capplan.cli.options import with_settings
from capplan.cli.scenario import Scenario, settings_from
from capplan.planning.settings.plan import SimulateSettings


@with_settings(SimulateSettings)
def simulate_command(scenario: Scenario = None, **flags: Any) -> int:
    """Simulate one given deployment: latencies, attainment, use over time.

    With an SLO, it simulates the same requests as `capplan plan`. Ctrl-C stops the
    simulation and reports the requests finished by then; exit code 130.
    """
    settings = settings_from(SimulateSettings, scenario, flags)
    announce_compilation([settings.scheduler])
    from capplan.report.console import request_progress
    from capplan.report.pages.run import run_page
    from capplan.report.to_files import simulate

    with request_progress(quiet=is_quiet()) as progress, interruptible() as stopped:
        run, written = simulate(settings, progress, stopped)
        interrupted = stopped()
    show(run_page(run), written)
    return INTERRUPTED if interrupted else 0
