"""Read files of measurements: text, CSV tables and JSON, with errors of one line."""

import csv
import gzip
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from capplan.errors import InputError

_CONFIGURATION = "system gpu hardware backend version model llm tp tensor_parallel"
"""Columns that tell one configuration of a table from another."""

_MAX_FIELD_CHARACTERS = 2**17
"""Set at each reading: the limit is the process's, and traces raise it."""


def read_text(path: Path, characters: int = -1) -> str:
    """Return the text of a file (gzip or plain), or its first characters."""
    try:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8") as file:
            return file.read(characters)
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error


def table_rows(
    path: Path, columns: Sequence[str], where: Mapping[str, str]
) -> list[tuple[int, dict[str, str]]]:
    """Return line number and cells of the rows of one configuration in a CSV table.

    It must have ``columns``; only rows with the values of ``where`` are returned.
    """
    csv.field_size_limit(_MAX_FIELD_CHARACTERS)
    reader = csv.DictReader(io.StringIO(read_text(path)))
    try:
        names = list(reader.fieldnames or ())
        cells = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise InputError(f"{path}: cannot be read as CSV: {error}") from None
    missing = [name for name in (*columns, *where) if name not in names]
    if missing:
        raise InputError(
            f"{path}:1: column {', '.join(missing)} is missing; expected "
            f"{', '.join(columns)}, found {', '.join(names) or 'nothing'}"
        )
    rows = [
        (line, row)
        for line, row in cells
        if all(row[name] == value for name, value in where.items())
    ]
    if not rows:
        raise InputError(f"{path}: no row{f' with {dict(where)}' if where else ''}")
    keys = [name for name in _CONFIGURATION.split() if name in names]
    configurations = {tuple(row[name] or "" for name in keys) for _, row in rows}
    if len(configurations) > 1:
        first, second = sorted(configurations)[:2]
        differs = ", ".join(
            f"{name}={a} and {b}"
            for name, a, b in zip(keys, first, second, strict=True)
            if a != b
        )
        raise InputError(
            f"{path}: holds {len(configurations)} configurations ({differs}, ...); "
            "choose one with --where COLUMN=VALUE"
        )
    return rows


def cell_number(path: Path, line: int, name: str, cell: str | None) -> float:
    """Return the number in a cell."""
    if cell is None or cell == "":
        raise InputError(f"{path}:{line}: {name} is empty; expected a number")
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{path}:{line}: {name} is {cell[:40]!r}; expected a number")
    return value


def parse_json(path: Path, text: str, line: int = 0) -> Any:
    """Return the value of a JSON text; ``line`` is its line when it is one of many."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = line or error.lineno
        raise InputError(f"{path}:{line}: is not JSON: {error.msg}") from error
    except RecursionError:
        raise InputError(f"{path}: is not JSON: nested too deeply") from None


def json_lines(path: Path, text: str) -> Iterator[tuple[Path, Any]]:
    """Yield the value of each line that is not blank, with ``path:line``."""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield Path(f"{path}:{number}"), parse_json(path, line, number)


def need(path: Path, content: Any, *names: str) -> list[Any]:
    """Return the values of names in a JSON object."""
    if not isinstance(content, dict):
        raise InputError(
            f"{path}: holds a {type(content).__name__}; expected an object"
        )
    missing = [name for name in names if name not in content]
    if missing:
        raise InputError(f"{path}: {', '.join(missing)} is missing")
    return [content[name] for name in names]
