"""Kinds of names that settings take, as ``kinds.csv`` lists them."""

from pathlib import Path
from typing import NamedTuple

from capplan.shipped import table_rows


class KindRow(NamedTuple):
    """A kind of names, which the commands list and the shell completes."""

    kind: str
    flag: str  # that takes such a name
    meaning: str
    settings: str  # that the shell completes by such names


_ROWS = table_rows(Path(__file__).with_name("kinds.csv"), KindRow)
KIND_ROWS = {row.kind: row for row in _ROWS}
"""In the order in which a user meets their flags."""
KIND_OF = {setting: row.kind for row in _ROWS for setting in row.settings.split()}
"""Kind of names that a setting takes."""
