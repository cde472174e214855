"""A plain CSV: ``arrival_s,prompt_tokens,output_tokens,class``.

The names of Vidur, etalon, length data sets and gateways are read too; see
``columns``. Arrivals stay as in the file, so that a replay keeps its clock; stamps
since 1970 and dates are shifted to start at 0.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from capplan.csv_file import header
from capplan.errors import InputError
from capplan.input_file import opened
from capplan.workload.readers.columns import (
    ARRIVAL_UNITS_S,
    NAMES,
    Columns,
    columns_among,
)
from capplan.workload.readers.options import ReadOptions
from capplan.workload.readers.ordering import Notes, answered, ordered_trace
from capplan.workload.readers.sessions import column_sessions
from capplan.workload.readers.table import (
    Table,
    first_names,
    is_numeric,
    parsed,
    read_table,
)
from capplan.workload.request_limits import limited_classes
from capplan.workload.slo import LIMITS
from capplan.workload.trace import MOST_ADAPTERS, MOST_EPOCH_S, Trace

if TYPE_CHECKING:
    import pandas as pd

EPOCH_S = 1e8
"""Arrivals beyond this are stamps since 1970. [s]"""

_DATE = "a date such as 2026-11-22T18:15:46.68Z"
_SECONDS = {1.0: "seconds", 1e-3: "milliseconds", 1e-6: "microseconds"}
_SECONDS |= {1e-9: "nanoseconds"}

_FAILED = (
    r"(?<!no[ _-])(?:fail|error|\berr\b|time.?out|cancel|abort|reject|denied"
    r"|unavailable|throttl)"
)
_NO = ("false", "no", "0", "0.0")
_FIRST_CODE_OF_FAILURE = 400
_MAX_CLASS_CHARACTERS = 200
_GUESSED_CLASSES = 20
"""Classes that a column may have of which nobody said that it holds them."""
_MAX_CLASSES = np.iinfo(np.int16).max
_CLEAN = {
    "arrival_s": r"\d{1,8}(?:\.\d+)?",
    "prompt_tokens": r"[1-9]\d{0,7}",
    "output_tokens": r"[1-9]\d{0,7}",
    "class": r"[A-Za-z][\w-]{0,99}",
}
"""Cells of a file that is read without pandas, which takes 0.3 s to import."""
_MOST_CLEAN_BYTES = 2**23


def sniff(head: bytes) -> bool:
    """Return whether the header names a prompt and an output column."""
    try:
        names = columns_among(first_names(head))
    except InputError:  # ambiguous: that is said when it is read
        return True
    return {"prompt_tokens", "output_tokens"} <= set(names.names)


def read(path: str | Path, options: ReadOptions) -> Trace:
    """Return the requests of a plain CSV."""
    columns = columns_of(path, options.columns)
    if (clean := _clean(path, columns)) is not None:
        return clean
    table, notes = read_table(path, wanted(columns)), Notes(path)
    refuse_sums(table, columns)
    table = table.select(answered(notes, *outcomes(table, columns)))
    if not _are_few(table, columns):
        columns = columns.without_guess("class")
    class_names, request_class = classes(table, columns)
    if columns.note:
        notes.add(columns.note)
    arrival_s, clock_s = arrivals(table, columns), None
    if arrival_s is not None and arrival_s.min() > EPOCH_S:
        notes.add("arrivals are stamps since 1970: the first is now 0 s", warn=False)
        first_s = float(arrival_s.min())
        arrival_s = arrival_s - first_s
        clock_s = first_s + table.zone_s(columns.names[columns.arrival or ""])
    if limited := limit_columns(columns):
        class_names, request_class = limited_classes(
            str(path), class_names, request_class, _limits(table, limited)
        )
    trace = ordered_trace(
        notes,
        arrival_s,
        class_names,
        request_class=request_class,
        **counts(table, columns),
    )
    return replace(trace, unread_columns=columns.unread, clock_s=clock_s)


def _clean(path: str | Path, columns: Columns) -> Trace | None:
    """Return the requests of a small file of nothing but clean rows, else None."""
    column_of = {name: column for column, name in columns.names.items()}
    kinds = [column_of.get(name, "") for name in header(path)]
    if columns.note or not set(kinds) <= set(_CLEAN):
        return None
    row = ",".join(_CLEAN[kind] for kind in kinds)
    with opened(path) as file:
        rows = file.read(_MOST_CLEAN_BYTES).partition(b"\n")[2]
        if file.read(1) or not re.fullmatch(f"(?:{row}\n)+".encode(), rows):
            return None
    cells = rows.decode().replace("\n", ",").split(",")
    of = {kind: cells[k : -1 : len(kinds)] for k, kind in enumerate(kinds)}
    names, index = np.unique(of.get("class", ["all"]), return_inverse=True)
    if len(names) > _MAX_CLASSES:
        return None
    return ordered_trace(
        Notes(path),
        np.array([*map(float, of["arrival_s"])]) if "arrival_s" in of else None,
        tuple(names.tolist()),
        request_class=index.astype(np.int16) if "class" in of else None,
        prompt_tokens=np.array([*map(int, of["prompt_tokens"])]),
        output_tokens=np.array([*map(int, of["output_tokens"])]),
    )


def refuse_sums(table: Table, columns: Columns) -> None:
    """Refuse rows that are the sum of several requests."""
    if (name := columns.names.get("requests")) is not None:
        expected = (
            "at most 1: the row is a sum of requests, whose own lengths and times it "
            "does not have; expected a row for each request"
        )
        counted = parsed(table.frame[name])
        table.require(~(counted > 1).to_numpy(), name, expected)


def outcomes(table: Table, columns: Columns) -> tuple[np.ndarray, np.ndarray]:
    """Return output tokens, 1 where not a number, and which rows failed, shape (n,).

    By a column of statuses: words of failure, codes from 400 on, or no success.
    """
    output = parsed(table.frame[columns.names["output_tokens"]]).fillna(1).to_numpy()
    if (name := columns.names.get("status")) is None:
        return output, np.zeros(len(table), bool)
    status = table.frame[name].astype(str).str.strip().str.lower()
    failed = status.str.contains(_FAILED) | (parsed(status) >= _FIRST_CODE_OF_FAILURE)
    if "succe" in name.lower():
        failed |= status.isin(_NO)
    return output, failed.to_numpy()


def columns_of(path: str | Path, given: Mapping[str, str] | None = None) -> Columns:
    """Return the columns of a file; see :func:`columns_among`."""
    header_names = header(path)
    columns = columns_among(header_names, given, str(path))
    for name in columns.unread:
        if name.startswith("slo_"):
            limits = ", ".join(filter(lambda column: column[:4] == "slo_", NAMES))
            raise InputError(f"{path}:1: no limit is called {name}; expected {limits}")
    for column in ("prompt_tokens", "output_tokens"):
        if column not in columns.names:
            raise InputError(
                f"{path}:1: no column {column}; expected one of "
                f"{', '.join(NAMES[column])}, or --columns {column}=NAME with one of "
                f"{', '.join(header_names)}"
            )
    return columns


def wanted(columns: Columns) -> dict[str, str | None]:
    """Return the columns to read and their dtypes."""
    return {
        name: "category"
        if column in ("class", "session", "adapter", "status")
        else None
        for column, name in columns.names.items()
    }


def arrivals(table: Table, columns: Columns) -> np.ndarray | None:
    """Return the arrivals, or None when the column is missing or empty. [s]"""
    if columns.arrival is None:
        return None
    name = columns.names[columns.arrival]
    values = table.frame[name]
    if values.isna().all():
        return None
    if not is_numeric(values) and _is_date(values):
        return table.stamps_ns(name, _DATE) / 1e9
    unit_s = ARRIVAL_UNITS_S[columns.arrival]
    arrival_s = table.numbers(name, _SECONDS[unit_s]) * unit_s
    late = np.abs(arrival_s) > MOST_EPOCH_S
    if late.any():
        row = int(np.argmax(late))
        table.refuse(row, name, _question(float(arrival_s[row]) / unit_s, name, unit_s))
    return arrival_s.astype(np.float64)


def _is_date(values: "pd.Series") -> bool:
    """Return whether the first value is a date."""
    import pandas as pd

    first = values.dropna().iloc[:1].astype(str)
    return bool(pd.to_datetime(first, format="ISO8601", errors="coerce").notna().all())


def _question(value: float, name: str, unit_s: float) -> str:
    """Return what was expected of a stamp since 1970 in another unit."""
    year = 1970 + value * unit_s / (365.25 * 86_400)
    shown = f"{year:,.0f}" if year < 1e9 else f"{year:.3g}"
    asked = ""
    for column, other_s in ARRIVAL_UNITS_S.items():
        if EPOCH_S < value * other_s < MOST_EPOCH_S:
            asked = (
                f": is it {_SECONDS[other_s]} since 1970? then --columns "
                f"{column}={name}"
            )
    return f"{_SECONDS[unit_s]}, by which it is the year {shown}{asked}"


def counts(
    table: Table,
    columns: Columns,
    sessions: dict[str, int] | None = None,
    adapters: dict[str, int] | None = None,
) -> dict[str, np.ndarray]:
    """Return the token columns, and those of what else is known of a request.

    ``sessions`` and ``adapters`` have the numbers of those in the rows before.
    """
    names = columns.names
    given: dict[str, np.ndarray] = {
        column: table.tokens(names[column])
        for column in ("prompt_tokens", "output_tokens", "predicted_output_tokens")
        if column in names
    }
    if "prefix_tokens" in names:
        prefix = table.tokens(names["prefix_tokens"], least=0)
        table.require(
            prefix <= given["prompt_tokens"],
            names["prefix_tokens"],
            "at most the tokens of the prompt",
        )
        given["prefix_tokens"] = prefix
    if "prefix_group" in names:
        given["prefix_group"] = table.whole(
            names["prefix_group"], -1, np.inf, "a whole number from -1"
        )
    if "priority" in names:
        given["priority"] = table.whole(
            names["priority"], -(2**31) + 1, 2**31 - 1, "a whole number, lower first"
        )
    if "max_new_tokens" in names:
        limit = table.tokens(names["max_new_tokens"], least=0)
        table.require(
            (limit == 0) | (limit >= given["output_tokens"]),
            names["max_new_tokens"],
            "at least the tokens of the output, or 0 for as many",
        )
        given["max_new_tokens"] = limit
    given |= _images(table, columns, given["prompt_tokens"])
    if "session" in names:
        given["session"] = column_sessions(table.frame[names["session"]], sessions)
    if "adapter" in names:
        given["adapter"] = _adapters(table, names["adapter"], adapters)
    return given


def _images(
    table: Table, columns: Columns, prompt_tokens: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the columns of images, shape (n,) each; none without image tokens."""
    names = columns.names
    kinds = ("image_tokens", "images", "image_offset")
    given = {
        kind: table.tokens(names[kind], least=0) for kind in kinds if kind in names
    }
    if not given:
        return {}
    if "image_tokens" not in given:
        raise InputError(
            f"{table.path}:1: column {next(iter(given))} without image_tokens; "
            "expected the tokens of the prompt that stand for images"
        )
    tokens = given["image_tokens"]
    behind = tokens + given.get("image_offset", 0)
    expected = "at most the tokens of the prompt, with those of image_offset"
    table.require(behind <= prompt_tokens, names["image_tokens"], expected)
    if "images" in given:
        fits = (given["images"] <= tokens) & ((tokens == 0) | (given["images"] > 0))
        expected = "1 to image_tokens where there are image_tokens, else 0"
        table.require(fits, names["images"], expected)
    return given


def _adapters(
    table: Table, column: str, known: dict[str, int] | None = None
) -> np.ndarray:
    """Return the adapter of each request, numbered as sessions are; shape (n,)."""
    adapter = column_sessions(table.frame[column], known)
    expected = f"at most {MOST_ADAPTERS:,} adapters"
    table.require(adapter < MOST_ADAPTERS, column, expected)
    return adapter


def limit_columns(columns: Columns) -> dict[str, str]:
    """Return the kinds of requests' own limits in a file, and their columns."""
    names = columns.names
    return {kind: names[key] for kind in LIMITS if (key := f"slo_{kind}_s") in names}


def _limits(table: Table, columns: dict[str, str]) -> dict[str, np.ndarray]:
    """Return requests' own limits by kind, NaN where none, shape (n,) each. [s]"""
    limits_s = {}
    for kind, column in columns.items():
        cells = table.frame[column]
        if not is_numeric(cells):  # an integer may be too large
            cells = parsed(cells)
        values = cells.to_numpy(float)
        right = table.frame[column].isna().to_numpy() | (values > 0) & (values < np.inf)
        table.require(right, column, "seconds above 0, or nothing")
        limits_s[kind] = values
    return limits_s


def classes(
    table: Table, columns: Columns
) -> tuple[tuple[str, ...], np.ndarray | None]:
    """Return the names of the classes and the class of each request."""
    if "class" not in columns.names:
        return ("all",), None
    name = columns.names["class"]
    column: pd.Series = table.frame[name]
    labels = column.cat.categories
    long = [label for label in labels if len(str(label)) > _MAX_CLASS_CHARACTERS]
    named = column.notna() & ~column.isin(long)
    expected = f"the name of a class, at most {_MAX_CLASS_CHARACTERS} characters"
    table.require(named.to_numpy(), name, expected)
    class_names = tuple(str(label) for label in labels)
    if len(class_names) > _MAX_CLASSES:
        raise InputError(
            f"{table.path}: {name} has {len(class_names):,} different values; "
            f"expected at most {_MAX_CLASSES:,}"
        )
    return class_names, column.cat.codes.to_numpy().astype(np.int16)


def _are_few(table: Table, columns: Columns) -> bool:
    """Return whether the column of classes has few values, and one in each row."""
    if "class" not in columns.names:
        return True
    column = table.frame[columns.names["class"]]
    return bool(column.notna().all()) and len(column.cat.categories) <= _GUESSED_CLASSES
