"""``capplan explain``: why and how, of a result that was written."""

from pathlib import Path
from typing import Annotated

from capplan.cli.answer import checked_topic, show
from capplan.cli.parameters import operand


def explain_command(
    document: Annotated[
        Path,
        operand(
            "plan.json",
            "What a command wrote with --out (plan.json, capacity.json …), or the "
            "folder of a plan.",
        ),
    ],
    topic: Annotated[
        str,
        operand(
            "[TOPIC]",
            "count, peak, price, sure, run, candidates, assumptions or next "
            "(default: all).",
        ),
    ] = "all",
) -> None:
    """Say why and how, as --explain did, without computing it again.

    Reads explained.json beside the document, whose digest it states.
    """
    from capplan.report.received.explained import explained

    show(explained(document).page, topic=checked_topic(topic))
