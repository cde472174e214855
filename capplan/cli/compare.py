"""``capplan compare``: serving systems on the same requests."""

from typing import Any

from capplan.cli.answer import progress, show
from capplan.cli.interruption import INTERRUPTED, interruptible
from capplan.cli.notices import announce_compilation
from capplan.cli.options import with_settings
from capplan.cli.plan import INFEASIBLE
from capplan.cli.scenario import Scenario, settings_from
from capplan.planning.compare.settings import CompareSettings
from capplan.planning.compare.systems import SYSTEMS


@with_settings(CompareSettings)
def compare_command(scenario: Scenario = None, **flags: Any) -> int:
    """Compare serving systems: fewest GPUs and cost, and all on equal hardware.

    A system is a scheduler with the router, the predictor and the engine settings that
    it was published with; what the scenario gives wins. Exit code 0: at least one
    system ran; 2: wrong input; 3: none meets the SLO; 130: Ctrl-C, which answers with
    what is known so far.
    """
    settings = settings_from(CompareSettings, scenario, flags)
    announce_compilation(
        SYSTEMS[name].scheduler if name in SYSTEMS else name
        for name in settings.systems or SYSTEMS
    )
    from capplan.report.pages.comparison import comparison_page
    from capplan.report.to_files import compare

    with progress() as step, interruptible() as stopped:
        result, written = compare(settings, step, stopped)
    show(comparison_page(result), written)
    if result.interrupted:
        return INTERRUPTED
    ran = any(row.candidate or row.served for row in result.systems)
    return 0 if ran else INFEASIBLE
