"""``capplan explain``: why and how, of a result that was written."""

from pathlib import Path
from typing import Annotated

import typer

from capplan.cli.answer import checked_topic, show


def explain_command(
    document: Annotated[
        Path,
        typer.Argument(
            metavar="plan.json",
            help="What a command wrote with --out (plan.json, capacity.json …), or the "
            "folder of a plan.",
        ),
    ],
    topic: Annotated[
        str,
        typer.Argument(
            metavar="[TOPIC]",
            help="count, peak, price, sure, run, candidates, assumptions or next "
            "(default: all).",
            show_default=False,
        ),
    ] = "all",
) -> None:
    """Say why and how, as --explain did, without computing it again.

    Reads explained.json beside the document, whose digest it states.
    """
    from capplan.report.received.explained import explained_page

    show(explained_page(document), topic=checked_topic(topic))
