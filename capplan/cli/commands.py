"""The commands, as ``commands.csv`` lists them."""

from pathlib import Path
from typing import NamedTuple

from capplan.shipped import table_rows


class Command(NamedTuple):
    """A command, or one below another, which has an example alone."""

    name: str
    module: str  # in capplan.cli
    function: str  # or app; of ``asked`` a row of ``QUESTIONS``
    summary: str  # in the list of commands
    example: str  # command lines to copy


_ROWS = table_rows(Path(__file__).with_suffix(".csv"), Command)
COMMANDS = {row.name: row for row in _ROWS if row.module}
EXAMPLES = {row.name: row.example for row in _ROWS if row.example}
