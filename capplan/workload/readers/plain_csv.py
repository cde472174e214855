"""A plain CSV: ``arrival_s,prompt_tokens,output_tokens,class``.

The column names of Vidur and etalon (``num_prefill_tokens``…) and of length data
sets (``input_tokens``…) are read too. Arrivals stay as in the file, so that a replay
keeps its clock; stamps since 1970 are shifted to start at 0.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from capplan.errors import InputError
from capplan.workload.readers.options import ReadOptions
from capplan.workload.readers.ordering import Notes, ordered_trace
from capplan.workload.readers.table import Table, header, read_table
from capplan.workload.request_limits import limited_classes
from capplan.workload.slo import LIMITS, SAME
from capplan.workload.trace import Trace

NAMES = {
    "arrival_s": ("arrival_s", "arrived_at"),
    "prompt_tokens": (
        "prompt_tokens",
        "input_tokens",
        "num_prefill_tokens",
        "prompt_len",
    ),
    "output_tokens": ("output_tokens", "num_decode_tokens", "output_len"),
    "class": ("class", "request_class"),
    "prefix_group": ("prefix_group",),
    "prefix_tokens": ("prefix_tokens",),
    "predicted_output_tokens": ("predicted_output_tokens",),
    "priority": ("priority",),
    **{
        f"slo_{name}_s": (
            f"slo_{name}_s",
            *(f"slo_{alias}_s" for alias, same in SAME.items() if same == name),
        )
        for name in LIMITS
    },
}
"""Names of each column in files."""

EPOCH_S = 1e8
"""Arrivals beyond this are stamps since 1970. [s]"""

_MAX_CLASS_CHARACTERS = 200
_MAX_CLASSES = np.iinfo(np.int16).max


def sniff(head: bytes) -> bool:
    """Return whether the header names a prompt and an output column."""
    first = head.splitlines()[0].decode("utf-8-sig", errors="replace")
    names = {name.strip().strip('"') for name in first.split(",")}
    return bool(
        names & set(NAMES["prompt_tokens"]) and names & set(NAMES["output_tokens"])
    )


def read(path: str | Path, options: ReadOptions) -> Trace:
    """Return the requests of a plain CSV."""
    names = columns_of(path)
    table = read_table(path, wanted(names))
    notes = Notes(path)
    arrival_s = arrivals(table, names)
    if arrival_s is not None and arrival_s.min() > EPOCH_S:
        notes.add("arrivals are stamps since 1970: the first is now 0 s", warn=False)
        arrival_s = arrival_s - arrival_s.min()
    class_names, request_class = classes(table, names)
    if limited := limit_columns(names):
        class_names, request_class = limited_classes(
            str(path), class_names, request_class, _limits(table, limited)
        )
    return ordered_trace(
        notes,
        arrival_s,
        class_names,
        request_class=request_class,
        **counts(table, names),
    )


def columns_of(path: str | Path) -> dict[str, str]:
    """Return the name in a file of each column that it has."""
    header_names = header(path)
    names: dict[str, str] = {}
    for column, aliases in NAMES.items():
        present = [name for name in aliases if name in header_names]
        if len(present) > 1:
            raise InputError(
                f"{path}:1: both {present[0]} and {present[1]}; expected one of them"
            )
        if present:
            names[column] = present[0]
    known = set(names.values())
    for name in header_names:
        if name.startswith("slo_") and name not in known:
            limits = ", ".join(filter(lambda column: column[:4] == "slo_", NAMES))
            raise InputError(f"{path}:1: no limit is called {name}; expected {limits}")
    for column in ("prompt_tokens", "output_tokens"):
        if column not in names:
            raise InputError(
                f"{path}:1: no column {column}; "
                f"expected one of {', '.join(NAMES[column])}"
            )
    return names


def wanted(names: dict[str, str]) -> dict[str, str | None]:
    """Return the columns to read and their dtypes."""
    return {
        name: "category" if column == "class" else None
        for column, name in names.items()
    }


def arrivals(table: Table, names: dict[str, str]) -> np.ndarray | None:
    """Return the arrivals, or None when the column is missing or empty. [s]"""
    if "arrival_s" not in names or table.frame[names["arrival_s"]].isna().all():
        return None
    return table.numbers(names["arrival_s"], "seconds").astype(np.float64)


def counts(table: Table, names: dict[str, str]) -> dict[str, np.ndarray]:
    """Return the token columns; predictions and a shared prefix where present."""
    columns: dict[str, np.ndarray] = {
        column: table.tokens(names[column])
        for column in ("prompt_tokens", "output_tokens", "predicted_output_tokens")
        if column in names
    }
    if "prefix_tokens" in names:
        prefix = table.tokens(names["prefix_tokens"], least=0)
        table.require(
            prefix <= columns["prompt_tokens"],
            names["prefix_tokens"],
            "at most the tokens of the prompt",
        )
        columns["prefix_tokens"] = prefix
    if "prefix_group" in names:
        expected = "a whole number from -1"
        group = table.numbers(names["prefix_group"], expected)
        right = (group >= -1) & (group == np.floor(group))
        table.require(right, names["prefix_group"], expected)
        columns["prefix_group"] = group.astype(np.int64)
    if "priority" in names:
        expected = "a whole number, lower first"
        priority = table.numbers(names["priority"], expected)
        right = (priority == np.floor(priority)) & (np.abs(priority) < 2**31)
        table.require(right, names["priority"], expected)
        columns["priority"] = priority.astype(np.int64)
    return columns


def limit_columns(names: dict[str, str]) -> dict[str, str]:
    """Return the kinds of requests' own limits in a file, and their columns."""
    return {kind: names[key] for kind in LIMITS if (key := f"slo_{kind}_s") in names}


def _limits(table: Table, columns: dict[str, str]) -> dict[str, np.ndarray]:
    """Return requests' own limits by kind, NaN where none, shape (n,) each. [s]"""
    limits_s = {}
    for kind, column in columns.items():
        values = pd.to_numeric(table.frame[column], errors="coerce").to_numpy(float)
        right = table.frame[column].isna().to_numpy() | (values > 0) & (values < np.inf)
        table.require(right, column, "seconds above 0, or nothing")
        limits_s[kind] = values
    return limits_s


def classes(
    table: Table, names: dict[str, str]
) -> tuple[tuple[str, ...], np.ndarray | None]:
    """Return the names of the classes and the class of each request."""
    if "class" not in names:
        return ("all",), None
    column: pd.Series = table.frame[names["class"]]
    long = [
        name for name in column.cat.categories if len(str(name)) > _MAX_CLASS_CHARACTERS
    ]
    named = column.notna() & ~column.isin(long)
    expected = f"the name of a class, at most {_MAX_CLASS_CHARACTERS} characters"
    table.require(named.to_numpy(), names["class"], expected)
    class_names = tuple(str(name) for name in column.cat.categories)
    if len(class_names) > _MAX_CLASSES:
        raise InputError(
            f"{table.path}: {names['class']} has {len(class_names):,} different "
            f"values; expected at most {_MAX_CLASSES:,}"
        )
    return class_names, column.cat.codes.to_numpy().astype(np.int16)
