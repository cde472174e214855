"""The figures that are printed, from ``fields.csv``: a row declares one.

Its columns are the table; the key in JSON and CSV, empty where people alone read it;
the path in a row of the result, by default the key; the heading, empty where people do
not; the form, of ``FORMS``; and words of the layout, of ``_laid_out``. Rows stand in
the order of the JSON. A path ``best:candidate`` is that of the same key of a candidate,
of what lies at ``best``; a key ``*run`` stands for all rows of the table ``run``, and
the path ``=`` for a function of the page.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from capplan.report.columns import (
    CSV,
    JSON,
    Column,
    at,
    format_cents,
    format_count,
    format_fine_usd,
    format_interval,
    format_ms,
    format_share,
    record,
    starred,
)
from capplan.shipped import table_rows
from capplan.units import format_bytes, format_duration, format_usd

FILE = Path(__file__).with_name("fields.csv")

FORMS: Mapping[str, Callable[[Any], str]] = {
    "": str,
    "bytes": format_bytes,
    "cents": format_cents,
    "share_change": lambda value: f"{100 * value:+.1f} %",
    "count": format_count,
    "count*": lambda value: f"{format_count(value)}*",
    "duration": format_duration,
    "fine_usd": format_fine_usd,
    "interval": format_interval,
    "ms": format_ms,
    "pays_from": lambda share: format_share(share) if share <= 1 else "never",
    "quantity": lambda value: f"{value:,.0f}" if value >= 100 else f"{value:.3g}",
    "share": format_share,
    "usd": format_usd,
    "yes_no": lambda value: "yes" if value else "no",
}

Function = Callable[[Any], Any]


class Declared(NamedTuple):
    """A row of ``fields.csv``."""

    table: str
    name: str
    path: str
    heading: str
    form: str
    layout: str

    @property
    def ends(self) -> tuple[str, ...]:
        """Names of the columns of the two ends of an interval; none of one value."""
        if not {"range", "ends"} & {*self.layout.split()}:
            return ()
        name = self.name.removesuffix("_range").removesuffix("_interval")
        return f"{name}_low", f"{name}_high"


@cache
def declared() -> Mapping[str, list[Declared]]:
    """Return the rows of all tables."""
    tables: dict[str, list[Declared]] = {}
    for row in table_rows(FILE, Declared):
        tables.setdefault(row.table, []).append(row)
    return tables


def fields(table: str, **functions: Function) -> tuple[Column, ...]:
    """Return the figures of a table, in the order of the JSON.

    ``functions`` are those of the page, of a row: by its key, or else its heading, a
    value where the path is ``=``, and else what people read; and forms by their name.
    """
    rows = _of(table)
    return tuple(each for row in rows for each in _laid_out(row, functions))


def _of(table: str, within: str = "") -> Iterator[Declared]:
    """Yield the rows of a table with the paths that lead from what it lies within."""
    assert table in declared(), f"{FILE.name} has no rows of table {table!r}"
    for row in declared()[table]:
        if row.name.startswith("*"):
            prefix = f"{within}{row.path}." if row.path else within
            yield from _of(row.name[1:], prefix)
            continue
        path, _, other = row.path.partition(":")
        if other:
            path += "." + next(x.path for x in _of(other) if x.name == row.name)
        if path != "=":
            path = within + (path or row.name)
        yield row._replace(path=path)


def _value(
    path: str, words: Mapping[str, str], functions: Mapping[str, Function]
) -> Function:
    """Return what gives the value of a row of the result."""
    if table := words.get("as"):
        columns = fields(table, **functions)

        def recorded(row: Any) -> Any:
            part = at(row, path)
            if isinstance(part, list | tuple):
                return [record(columns, each) for each in part]
            return None if part is None else record(columns, part)

        return recorded
    if "null" in words:
        return lambda row: at(row, path) or None
    if "cents" in words:
        return lambda row: None if (cents := at(row, path)) is None else cents / 100
    return partial(at, path=path)


def _laid_out(row: Declared, functions: Mapping[str, Function]) -> Iterator[Column]:
    """Yield the columns of a row: of a range a key of the JSON, and both ends.

    ``left``, ``wide`` and ``leaves=1`` are of tables for people; with ``star=path`` a
    value has a star where that is true. ``json`` and ``csv`` leave it out of the other;
    ``after=name`` is where tables have it, which JSON has further on. ``as=table`` is
    what lies there by the rows of a table, ``null`` is for nothing where it is empty,
    and ``cents`` are told in dollars.
    """
    words = dict(word.partition("=")[::2] for word in row.layout.split())
    path, told = row.path, functions.get(row.name or row.heading)
    if "{" in row.form:
        show: Function = row.form.format
    else:
        assert row.form in {*FORMS, *functions}, f"{FILE.name}: no form as in {row}"
        show = FORMS.get(row.form) or functions[row.form]
    value = _value(path, words, functions)
    if path == "=":
        assert told is not None, row
        value, told = told, None
    if "star" in words:
        told, show = starred(words["star"], path, show), str
    only = JSON if "json" in words else CSV if "csv" in words else ""
    column = Column(
        row.name,
        value,
        row.heading,
        show,
        "left" if "left" in words else "right",
        "wide" in words,
        int(words.get("leaves", 0)),
        told,
        JSON if "range" in words else only,
        words.get("after", ""),
    )
    if "ends" not in words:
        yield column
    for index, end in enumerate(row.ends):
        yield column._replace(
            name=end,
            value=partial(at, path=f"{path}.{index}"),
            only=CSV if "range" in words else only,
            after=row.ends[0] if index and column.after else column.after,
        )
