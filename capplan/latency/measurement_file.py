"""Rows of one configuration in a table of measurements, and fields of JSON."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from capplan.csv_file import read_rows
from capplan.errors import InputError
from capplan.records import records

_CONFIGURATION = "system gpu hardware backend version model llm tp tensor_parallel"
"""Columns that tell one configuration of a table from another."""


def table_rows(
    path: Path, columns: Sequence[str], where: Mapping[str, str]
) -> list[tuple[int, dict[str, str]]]:
    """Return line number and cells of the rows of one configuration in a CSV table.

    It must have ``columns``; only rows with the values of ``where`` are returned.
    """
    names, cells = read_rows(path, (*columns, *where))
    rows = [
        (line, row)
        for line, row in cells
        if all(row[name] == value for name, value in where.items())
    ]
    if not rows:
        raise InputError(f"{path}: no row{f' with {dict(where)}' if where else ''}")
    keys = [name for name in _CONFIGURATION.split() if name in names]
    configurations = {tuple(row[name] for name in keys) for _, row in rows}
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


def one_run(
    path: Path, wrappers: Sequence[str], where: Mapping[str, str]
) -> dict[str, Any]:
    """Return the fields of the last run in a file, or of ``index=N`` from 1."""
    runs = [fields for _, fields in records(path, wrappers=wrappers)]
    index = str(where.get("index", len(runs)))
    if not index.isdigit() or not 1 <= int(index) <= len(runs):
        raise InputError(
            f"{path}: benchmark {index} is not there; expected 1 to {len(runs)}"
        )
    return runs[int(index) - 1]


@contextmanager
def as_written(path: Path, tool: str) -> Iterator[None]:
    """Say of what fails in a file's content that its tool does not write it so."""
    wrong = (TypeError, LookupError, AttributeError, ValueError, ArithmeticError)
    try:
        yield
    except wrong as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path}: is not as {tool} writes it: {reason}") from error


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
