"""A plain CSV: ``arrival_s,prompt_tokens,output_tokens,class``.

The names that Vidur and etalon (``num_prefill_tokens``…) and length data sets
(``input_tokens``…) use are understood too. Arrivals stay as they are in the
file, so that a replay keeps its clock; stamps since the epoch start at 0.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from capplan.errors import InputError
from capplan.workload.readers.options import ReadOptions
from capplan.workload.readers.ordering import Notes, ordered_trace
from capplan.workload.readers.table import Table, header, read_table
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
}
"""What each column may be called in a file."""

EPOCH_S = 1e8
"""An arrival beyond this is a stamp since 1970, not time since a start. [s]"""

_MAX_CLASSES = np.iinfo(np.int16).max


def sniff(head: bytes) -> bool:
    """Return whether the header names a prompt and an output column."""
    first = head.splitlines()[0].decode("utf-8-sig", errors="replace")
    names = {name.strip().strip('"') for name in first.split(",")}
    return all(names & set(NAMES[what]) for what in ("prompt_tokens", "output_tokens"))


def read(path: str | Path, options: ReadOptions) -> Trace:
    """Return the requests of a plain CSV."""
    found = columns_of(path)
    table = read_table(path, wanted(found))
    notes = Notes(path)
    arrival_s = arrivals(table, found)
    if arrival_s is not None and arrival_s.min() > EPOCH_S:
        notes.add("arrivals are stamps since 1970: the first is now 0 s", warn=False)
        arrival_s = arrival_s - arrival_s.min()
    class_names, request_class = classes(table, found)
    return ordered_trace(
        notes,
        arrival_s,
        class_names,
        request_class=request_class,
        **counts(table, found),
    )


def columns_of(path: str | Path) -> dict[str, str]:
    """Return what each known column is called in a file.

    Raises
    ------
    InputError
        When prompt or output tokens are missing, or stand twice.
    """
    names = header(path)
    found: dict[str, str] = {}
    for what, aliases in NAMES.items():
        present = [name for name in aliases if name in names]
        if len(present) > 1:
            raise InputError(
                f"{path}:1: both {present[0]} and {present[1]}; expected one of them"
            )
        if present:
            found[what] = present[0]
    for what in ("prompt_tokens", "output_tokens"):
        if what not in found:
            raise InputError(
                f"{path}:1: no column {what}; expected one of {', '.join(NAMES[what])}"
            )
    return found


def wanted(found: dict[str, str]) -> dict[str, str | None]:
    """Return the columns to read and their dtypes."""
    return {
        name: "category" if what == "class" else None for what, name in found.items()
    }


def arrivals(table: Table, found: dict[str, str]) -> np.ndarray | None:
    """Return the arrivals, or None when the column is missing or all empty. [s]"""
    if "arrival_s" not in found or table.frame[found["arrival_s"]].isna().all():
        return None
    return table.numbers(found["arrival_s"], "seconds").astype(np.float64)


def counts(table: Table, found: dict[str, str]) -> dict[str, np.ndarray]:
    """Return the token columns, and those of a shared prefix where given."""
    columns = {
        what: table.tokens(found[what]) for what in ("prompt_tokens", "output_tokens")
    }
    if "prefix_tokens" in found:
        prefix = table.tokens(found["prefix_tokens"], least=0)
        table.require(
            prefix <= columns["prompt_tokens"],
            found["prefix_tokens"],
            "at most the tokens of the prompt",
        )
        columns["prefix_tokens"] = prefix
    if "prefix_group" in found:
        group = table.numbers(found["prefix_group"], "a whole number from -1")
        table.require(
            (group >= -1) & (group == np.floor(group)),
            found["prefix_group"],
            "a whole number from -1",
        )
        columns["prefix_group"] = group.astype(np.int64)
    return columns


def classes(
    table: Table, found: dict[str, str]
) -> tuple[tuple[str, ...], np.ndarray | None]:
    """Return the names of the classes and the class of each request.

    Raises
    ------
    InputError
        When a class is empty, or there are too many to be classes.
    """
    if "class" not in found:
        return ("all",), None
    column: pd.Series = table.frame[found["class"]]
    table.require(column.notna().to_numpy(), found["class"], "the name of a class")
    names = tuple(str(name) for name in column.cat.categories)
    if len(names) > _MAX_CLASSES:
        raise InputError(
            f"{table.path}: {found['class']} has {len(names):,} different values; "
            f"expected at most {_MAX_CLASSES:,}"
        )
    return names, column.cat.codes.to_numpy().astype(np.int16)
