"""``capplan backtest``: a fleet that runs, held against its simulation."""

from pathlib import Path
from typing import Annotated, Any

from capplan.cli.asked import INFEASIBLE, answered
from capplan.cli.options import with_settings
from capplan.cli.parameters import COMMON, flag
from capplan.cli.scenario import settings_of_source
from capplan.planning.backtest.settings import BacktestSettings
from capplan.planning.settings.groups import CHOICES

OUTSIDE = 1
"""Exit code where a replica carries other than the profile's range says."""


@with_settings(BacktestSettings)
def backtest_command(
    deployment: Annotated[
        Path | None,
        flag(
            "SCENARIO.yaml|PLAN.json",
            "What runs: a scenario, or a plan. Flags override it.",
            rich_help_panel=CHOICES,
        ),
        COMMON,
    ] = None,
    **flags: Any,
) -> int:
    """Was capplan right about the fleet that runs? By how much its times are off.

    Of its metrics, of its requests, or both: φ, the factor on the time of every
    iteration, with its interval, and what that does to the load of a replica; `capplan
    plan --backtest` plans with it. Exit code 0: within the range that the profile
    states; 1: outside; 2: wrong input.
    """
    settings = settings_of_source(BacktestSettings, deployment, flags)
    code = answered("backtest", settings)
    return OUTSIDE if code == INFEASIBLE else code
