"""The commands, as ``commands.csv`` lists them."""

import csv
import io
from pathlib import Path
from typing import NamedTuple


class Command(NamedTuple):
    """A command, or one below another, which has an example alone."""

    name: str
    module: str  # in capplan.cli
    function: str  # or app; of ``asked`` a row of ``QUESTIONS``
    summary: str  # in the list of commands
    example: str  # command lines to copy


def _listed() -> list[Command]:
    text = Path(__file__).with_suffix(".csv").read_text(encoding="utf-8")
    return [Command(**row) for row in csv.DictReader(io.StringIO(text, newline=""))]


COMMANDS = {row.name: row for row in _listed() if row.module}
EXAMPLES = {row.name: row.example for row in _listed() if row.example}
