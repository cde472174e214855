"""A kind of names that settings take, and the columns of most lists."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from capplan.report.columns import Column
from capplan.report.fields import fields


class Kind(NamedTuple):
    """What lists a kind of names."""

    names: Iterable[str] | Callable[[], Iterable[str]]
    rows: Callable[[], list[Any]]
    columns: tuple[Column, ...]


NAMED = fields("list_named")
"""Columns that most lists have."""


def named_rows(
    table: Mapping[str, Any], **values: Callable[[Any], Any]
) -> Callable[[], list[dict[str, Any]]]:
    """Return what lists the names of a table, each with values of its row."""
    return lambda: [
        {"name": name} | {key: of(row) for key, of in values.items()}
        for name, row in table.items()
    ]


def summary(text: str | None) -> str:
    """Return the first sentence of a docstring, without its verb and unit."""
    first = " ".join((text or "").partition("\n\n")[0].split())
    plain = re.sub(r"^Return | \[[^\]]*\]$|``", "", first)
    return plain[:1].upper() + plain[1:] if first.startswith("Return ") else plain
