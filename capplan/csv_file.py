"""Read CSV files: a header whose names stand once, and rows no longer than it.

Small tables are read here whole; traces are parsed in bulk by
``workload.readers.table``, which asks here for the header and for the lines.
"""

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from statistics import median_low

from capplan.errors import InputError
from capplan.input_file import opened, read_text
from capplan.units import number_in

Row = tuple[int, dict[str, str]]
"""Line of a row in its file, and its cells by column; a missing cell is empty."""

_MAX_FIELD_CHARACTERS = 1_000_000
_LARGEST = 1e9
"""Measured number in its own unit: products of two still fit 64 bits."""
_MOST_APART = 1e5
"""Times the median beyond which a number of a column is taken for a mistake."""


def header(path: str | Path) -> list[str]:
    """Return the column names of a CSV."""
    return _names(path, next(_records(path, [_first_line(path)]), (1, []))[1])


def texts(path: str | Path) -> Iterator[dict[str, str]]:
    """Yield the rows of a CSV until one is malformed."""
    names = header(path)
    with opened(path) as file, suppress(InputError):
        for _, fields in islice(_records(path, _lines(file)), 1, None):
            yield dict(zip(names, map(str.strip, fields), strict=False))


def separator(path: str | Path) -> str:
    """Return what separates the cells of a CSV."""
    return _separator(_first_line(path))


def _first_line(path: str | Path) -> str:
    with opened(path) as file:
        lines = iter(lambda: file.readline(2 * _MAX_FIELD_CHARACTERS), b"")
        return next(filter(bytes.strip, lines), b"").decode("utf-8-sig", "replace")


def _separator(first_line: str) -> str:
    """Return the comma, unless another one separates more names outside quotes."""
    return max(",;\t|", key=re.sub('"[^"]*"', "", first_line).count)


def read_rows(
    path: Path, columns: Sequence[str] = (), text: str | None = None
) -> tuple[list[str], list[Row]]:
    """Return the column names and the rows of a CSV, plain or gzipped.

    It must have ``columns``. ``text`` is its content where that was read already.
    """
    lines = io.StringIO(read_text(path) if text is None else text, newline="")
    records = _records(path, lines)
    line, first = next(records, (1, []))
    names = _names(path, first)
    missing = [name for name in columns if name not in names]
    if missing:
        raise InputError(
            f"{path}:{line}: column {', '.join(missing)} is missing; expected "
            f"{', '.join(columns)}, found {', '.join(names) or 'nothing'}"
        )
    rows = []
    for line, fields in records:
        if len(fields) > len(names):
            raise InputError(too_long(path, line, fields, names))
        cells = [field.strip() for field in fields]
        cells += [""] * (len(names) - len(cells))
        rows.append((line, dict(zip(names, cells, strict=True))))
    if not rows:
        raise InputError(f"{path}: no rows under the header; expected some")
    return names, rows


def read_cells(path: Path) -> list[tuple[int, list[str]]]:
    """Return the line and the cells of each row of a CSV, whatever its header."""
    lines = io.StringIO(read_text(path), newline="")
    rows = _records(path, lines)
    return [(line, [field.strip() for field in fields]) for line, fields in rows]


def cell(path: str | Path, row: int, column: str) -> tuple[int, str]:
    """Return the line and the text of a cell; rows count from 0 below the header."""
    with opened(path) as file:
        records = _records(path, _lines(file))
        _, names = next(records)
        line, fields = next(islice(records, row, None))
    index = [name.strip() for name in names].index(column)
    return line, fields[index] if index < len(fields) else ""


def longer_than_header(path: str | Path) -> str:
    """Return what is wrong with the first row that is longer; empty without one."""
    with opened(path) as file:
        records = _records(path, _lines(file))
        _, names = next(records, (1, []))
        for line, fields in records:
            if len(fields) > len(names):
                return too_long(path, line, fields, names)
    return ""


def too_long(
    path: str | Path, line: int, fields: Sequence[str], names: Sequence[str]
) -> str:
    """Return the message about a row that is longer than the header."""
    return (
        f"{path}:{line}: {len(fields)} fields; expected {len(names)} as in the header"
    )


def cell_number(path: Path, line: int, name: str, cell: str) -> float:
    """Return the number in a cell."""
    if cell == "":
        raise InputError(f"{path}:{line}: {name} is empty; expected a number")
    value = number_in(cell)
    if not math.isfinite(value):
        raise InputError(f"{path}:{line}: {name} is {cell[:40]!r}; expected a number")
    if abs(value) > _LARGEST:
        raise InputError(
            f"{path}:{line}: {name} is {value:g}; expected at most {_LARGEST:g}"
        )
    return value


def refuse_outliers(name: str, values: Iterable[tuple[str, float]]) -> None:
    """Refuse a positive number, with its place, far from the others of its column."""
    placed = [(place, value) for place, value in values if value > 0]
    if not placed:
        return
    middle = median_low(value for _, value in placed)
    for place, value in placed:
        if not middle / _MOST_APART <= value <= middle * _MOST_APART:
            raise InputError(
                f"{place}: {name} is {value:g}, where the middle one is {middle:g}; "
                "expected numbers of one unit"
            )


def _names(path: str | Path, fields: list[str]) -> list[str]:
    names = [name.strip() for name in fields]
    twice = {name for name in names if name and names.count(name) > 1}
    if twice:
        raise InputError(
            f"{path}:1: column {sorted(twice)[0]} appears twice; expected each once"
        )
    return names


def _lines(file: Iterable[bytes]) -> Iterator[str]:
    """Yield the lines of a file, without its byte order mark."""
    for number, line in enumerate(file):
        yield line.decode("utf-8-sig" if number == 0 else "utf-8", errors="replace")


def _records(path: str | Path, lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of its last line and the fields of each record not blank."""
    csv.field_size_limit(_MAX_FIELD_CHARACTERS)
    lines, begun = iter(lines), [""]
    while not begun[-1].strip() and (line := next(lines, None)) is not None:
        begun.append(line)
    rows = csv.reader(
        chain(begun[1:], lines),
        delimiter=_separator(begun[-1]),
        skipinitialspace=True,
        strict=True,
    )
    try:
        for fields in rows:
            if fields:
                yield rows.line_num, fields
    except csv.Error as error:
        if "new-line" in str(error):
            raise InputError(
                f"{path}:{rows.line_num + 1}: a lone carriage return ends its lines; "
                "expected LF or CRLF"
            ) from None
        raise InputError(
            f"{path}:{rows.line_num}: {error}; expected at most "
            f"{_MAX_FIELD_CHARACTERS:,} characters, and quotes that are closed"
        ) from None
