"""``capplan list``: the names that settings take."""

from typing import Annotated

import typer

from capplan.cli.answer import show
from capplan.cli.completion import complete_kind


def list_command(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND",
            help="llms, gpus, nodes, workloads, schedulers …; left out: all kinds.",
            show_default=False,
            autocompletion=complete_kind,
        ),
    ] = None,
) -> None:
    """List the names that settings take, with what they stand for; none is cut."""
    from capplan.report.pages.kinds import kind_page, kinds_page

    show(kinds_page() if kind is None else kind_page(kind))
