"""``capplan plan``: the fewest GPUs that serve a workload within its SLOs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capplan.cli.answer import progress, show
from capplan.cli.interruption import INTERRUPTED, interruptible
from capplan.cli.notices import announce_compilation
from capplan.cli.options import with_settings
from capplan.cli.scenario import Scenario, settings_from
from capplan.planning.settings.plan import PlanSettings

if TYPE_CHECKING:
    from capplan.planning.what_if.what_if import WhatIf

INFEASIBLE = 3


@with_settings(PlanSettings)
def plan_command(scenario: Scenario = None, **flags: Any) -> int:
    """Find the fewest GPUs, and the cheapest, that serve a trace within its SLOs.

    Of several LLMs (--llm A,B) a plan of each, side by side: with --out, a folder for
    each. Exit code 0: a feasible plan; 2: wrong input; 3: no configuration meets the
    SLO; 130: Ctrl-C, which answers with what is known so far.
    """
    settings = settings_from(PlanSettings, scenario, flags)
    announce_compilation([settings.scheduler])
    if len(settings.llms) > 1:
        from capplan.report.to_files import plan_each

        with progress() as step, interruptible() as stopped:
            plans, written = plan_each(settings, step, stopped)
        return show_what_if(plans, written)
    from capplan.report.pages.plan import plan_page
    from capplan.report.to_files import plan

    with progress() as step, interruptible() as stopped:
        result, written = plan(settings, step, stopped)
    show(plan_page(result), written)
    if result.interrupted:
        return INTERRUPTED
    return 0 if result.best is not None else INFEASIBLE


def show_what_if(result: "WhatIf", written: Sequence[Path]) -> int:
    """Print plans side by side; return the exit code."""
    from capplan.report.pages.what_if import what_if_page

    show(what_if_page(result), written)
    if result.interrupted:
        return INTERRUPTED
    return 0 if any(cell.best for cell in result.cells) else INFEASIBLE
