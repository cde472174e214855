"""``capplan check-scheduler``: laws that every scheduler obeys, on random cases."""

from typing import Annotated

import typer

from capplan.cli.answer import show
from capplan.cli.notices import announce_compilation
from capplan.cli.outputs import say
from capplan.cli.parameters import operand

BROKEN = 1


def check_scheduler_command(
    scheduler: Annotated[
        str,
        operand(
            "NAME|FILE.py",
            "Scheduler, with settings: orca:max_len=64 or ./mine.py:key=value.",
        ),
    ],
    cases: Annotated[int, typer.Option(help="Random cases to try.", min=1)] = 200,
    seed: Annotated[
        int, typer.Option(help="Number of the first case; each draws its own.", min=0)
    ] = 0,
) -> int:
    """Run laws on a scheduler: small random cases whose KV is short.

    Exit code 0: all laws hold; 1: broken, one line each; 2: wrong input.
    """
    announce_compilation([scheduler])
    from capplan.report.pages.checked import laws_page
    from capplan.simulator.laws.checking import check_laws

    checked = check_laws(scheduler, cases, seed)
    for line in checked.broken:
        say(f"{checked.scheduler}: {line}")
    refused = f", {checked.refused} refused whole" if checked.refused else ""
    held = (
        f"{checked.scheduler}: all laws hold: {checked.cases:,} cases{refused}, "
        f"{checked.requests:,} requests, {checked.iterations:,} iterations, "
        f"{checked.preemptions:,} preemptions, {checked.swaps:,} swaps"
    )
    show(laws_page(checked), told=lambda: [] if checked.broken else [held])
    return BROKEN if checked.broken else 0
