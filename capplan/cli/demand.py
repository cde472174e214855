"""``capplan demand``: replicas against the arrival rate, and the law through them."""

from pathlib import Path
from typing import Annotated, Any

import typer

from capplan.cli.notices import say_if_compiling
from capplan.cli.options import with_settings
from capplan.cli.scenario import settings_from
from capplan.errors import InputError
from capplan.planning.settings import PlanSettings


@with_settings(PlanSettings, without=("rate",))
def demand_command(
    scenario: Annotated[
        Path | None,
        typer.Argument(
            metavar="SCENARIO.yaml",
            help="Any of the settings of capplan plan in a file; flags override it.",
            show_default=False,
        ),
    ] = None,
    rates: Annotated[
        str,
        typer.Option(
            metavar="R,R,R,R", help="Requests per second to simulate, four or more."
        ),
    ] = "",
    at: Annotated[
        str,
        typer.Option(metavar="R,R", help="Rates to extrapolate to, not simulated."),
    ] = "",
    **settings: Any,
) -> int:
    """Plan for several rates and fit Aladdin's Eq. 7: replicas = ⌈k5 · rate + c5⌉."""
    request = settings_from(PlanSettings, scenario, settings)
    simulated, extrapolated = _rates("--rates", rates), _rates("--at", at)
    say_if_compiling()
    from capplan.files import check_folder

    if request.out is not None:
        check_folder(request.out)
    from capplan.planning.demand import demand
    from capplan.report.terminal import console, progress
    from capplan.report.write_demand import print_demand, write_demand

    with progress() as show:
        found = demand(request, simulated, show)
    out = console()
    if request.out is not None:
        written = write_demand(found, extrapolated, request.out)
        out.print(f"written: {', '.join(map(str, written))}", soft_wrap=True)
    print_demand(found, extrapolated, out)
    return 0


def _rates(flag: str, text: str) -> list[float]:
    try:
        rates = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        rates = [-1.0]
    if any(not 0 < rate < float("inf") for rate in rates):
        raise InputError(f"{flag} is {text!r}; expected numbers more than 0, as 10,20")
    return rates
