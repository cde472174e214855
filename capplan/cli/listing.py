"""``capplan list``: the names that settings take."""

from typing import Annotated

from capplan.cli.answer import show
from capplan.cli.completion import complete_kind
from capplan.cli.parameters import operand


def list_command(
    kind: Annotated[
        str | None,
        operand(
            "KIND",
            "llms, gpus, nodes, workloads, schedulers …; left out: all kinds.",
            autocompletion=complete_kind,
        ),
    ] = None,
) -> None:
    """List the names that settings take, with what they stand for; none is cut."""
    from capplan.report.pages.kinds import kind_page, kinds_page

    show(kinds_page() if kind is None else kind_page(kind))
