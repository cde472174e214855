"""A kind of names that settings take, and the columns of most lists."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from capplan.report.columns import Column
from capplan.report.fields import fields


@dataclass(frozen=True)
class Kind:
    """A kind of names that settings take."""

    flag: str  # that takes such a name
    meaning: str
    names: Iterable[str] | Callable[[], Iterable[str]]
    rows: Callable[[], list[Any]]
    columns: tuple[Column, ...]


NAMED = fields("list_named")
"""Columns that most lists have."""


def summary(text: str | None) -> str:
    """Return the first sentence of a docstring, without its verb and unit."""
    first = " ".join((text or "").partition("\n\n")[0].split())
    plain = re.sub(r"^Return | \[[^\]]*\]$|``", "", first)
    return plain[:1].upper() + plain[1:] if first.startswith("Return ") else plain
