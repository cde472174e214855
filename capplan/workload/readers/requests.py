"""Requests by the columns of a file: CSV, JSON lines, an array, Parquet.

``columns`` says which one holds what. Arrivals stay as in the file; stamps since 1970
and dates are shifted to start at 0.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from capplan.csv_file import header
from capplan.errors import InputError
from capplan.input_file import opened
from capplan.records import form
from capplan.workload.readers.cells import is_numeric, parsed
from capplan.workload.readers.columns import PER_S, Columns, columns_among
from capplan.workload.readers.hashed_blocks import (
    hashed_prompts,
    refuse_too_large,
    shared_prefixes,
)
from capplan.workload.readers.options import ReadOptions
from capplan.workload.readers.ordering import Notes, ordered_trace, say_left_out
from capplan.workload.readers.outcomes import outcomes
from capplan.workload.readers.parts import by_totals
from capplan.workload.readers.recorded import Recording, chains
from capplan.workload.readers.sessions import column_sessions
from capplan.workload.readers.stamps import Stamps, arrivals
from capplan.workload.readers.table import Table, column_names, read_table
from capplan.workload.readers.turns import Turns, refuse_left_out, spread, with_zeros
from capplan.workload.request_limits import limited_classes
from capplan.workload.slo import LIMITS
from capplan.workload.trace import MAX_TOKENS, MOST_ADAPTERS, Trace

if TYPE_CHECKING:
    import pandas as pd

    from capplan.workload.readers.formats import Format

_TEXTS = (
    "id",
    "parent",
    "after",
    "class",
    "session",
    "adapter",
    "status",
    "error",
    "kind",
    "cache_hit",
)
"""Columns that are read as texts."""
_WHOLE = {
    "predicted_output_tokens": (1, MAX_TOKENS, ""),
    "prefix_tokens": (0, MAX_TOKENS, ""),
    "prefix_group": (-1, np.inf, "a whole number from -1"),
    "priority": (-(2**31) + 1, 2**31 - 1, "a whole number, lower first"),
    "max_new_tokens": (0, MAX_TOKENS, ""),
}
"""Columns of whole numbers: the least, the most, and what else is expected."""
_FEW = 5
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


def read(path: str | Path, options: ReadOptions, known: "Format") -> Trace:
    """Return the requests of a file of a format."""
    columns = columns_of(path, options.columns, known)
    is_csv = known.is_guessed and form(path) == "csv"
    if is_csv and not options.turns and (clean := _clean(path, columns)) is not None:
        return clean
    if known.block_tokens:
        refuse_too_large(path)
    notes = Notes(path)
    also = dict(known.also)
    if options.turns:
        also |= {name: None for name in (known.duration, known.end) if name}
    fields = {**wanted(columns), **also}
    table = read_table(notes, fields, salvage=options.salvage)
    lacking = dict.fromkeys(known.also.keys() - set(table.frame))
    table = Table(path, table.frame.assign(**lacking))
    return of_table(table, columns, notes, known, options)


def of_table(
    table: Table, columns: Columns, notes: Notes, known: "Format", options: ReadOptions
) -> Trace:
    """Return the requests of a table with the columns of a trace."""
    if known.tidy:
        table = known.tidy(table, notes)
    right, left_out = outcomes(table, columns)
    if columns.has_turns:
        refuse_left_out(table, columns, right)
        table = with_zeros(table, columns.names.get("prefix_tokens"))
    say_left_out(notes, left_out, len(table))
    table = table.select(right)
    columns = by_totals(table, columns)
    if not _are_few(table, columns):
        columns = columns.without_guess("class")
    try:
        trace = _trace(table, columns, notes, known, options)
    except InputError:
        _refuse_all(table, columns)
        raise
    unread = tuple(name for name in columns.unread if name not in known.also)
    return replace(trace, unread_columns=unread, left_out=left_out)


def _trace(
    table: Table, columns: Columns, notes: Notes, known: "Format", options: ReadOptions
) -> Trace:
    class_names, request_class = classes(table, columns)
    is_known = bool(known.columns)
    note = columns.guesses if is_known else columns.note
    if note and known.is_guessed:
        notes.add(note, warn=not is_known)
    turns = Turns(table, columns) if columns.has_turns else None
    stamps = arrivals(table.select(~turns.waits) if turns else table, columns)
    if known.check:
        known.check(table, notes)
    if known.note:
        notes.add(known.note, warn=False)
    arrival_s, clock_s = _clock(stamps, notes, known, options.seed)
    if limited := limit_columns(columns):
        class_names, request_class = limited_classes(
            str(table.path), class_names, request_class, _limits(table, limited)
        )
    given = counts(table, columns)
    for column, names in columns.beside.items():
        added = table.frame[[*names]].apply(parsed, whole=True).sum().sum()
        mean = f"{added / len(table):,.0f} are of {' and '.join(names)}"
        notes.remarks.append(f"of {column.replace('_', ' ')} {mean}")
    if turns:
        arrival_s = spread(arrival_s, ~turns.waits)
        given |= turns.columns(given, arrival_s)
    if known.sessions:
        times = np.zeros(len(table)) if stamps is None else stamps.values
        given["session"] = known.sessions(table, times)
    if known.tidy and "session" in given:
        given["prefix_group"] = given["session"]
    if options.turns and not turns:
        if arrival_s is not None:
            order = np.argsort(arrival_s, kind="stable")
            table = Table(table.path, table.frame.iloc[order])
            given = {name: column[order] for name, column in given.items()}
            arrival_s, request_class = arrival_s[order], _at(request_class, order)
        given |= recorded(table, columns, notes, known, given, arrival_s)
        arrival_s = given.pop("arrival_s", None)
    elif known.block_tokens and stamps:
        prompt, blocks = given["prompt_tokens"], known.block_tokens
        given |= shared_prefixes(table, notes, stamps.values, prompt, blocks)
    trace = ordered_trace(
        notes, arrival_s, class_names, request_class=request_class, **given
    )
    return replace(trace, clock_s=clock_s)


def _at(column: np.ndarray | None, order: np.ndarray) -> np.ndarray | None:
    return None if column is None else column[order]


def recorded(
    table: Table,
    columns: Columns,
    notes: Notes,
    known: "Format",
    given: Mapping[str, np.ndarray],
    start_s: np.ndarray | None,
) -> dict[str, Any]:
    """Return the columns of turns of requests with sessions or hashed blocks."""
    blocks = hashed_prompts(table) if known.block_tokens else None
    session, n = given.get("session"), len(table)
    if session is None and blocks is None:
        raise InputError(
            f"{table.path}: no conversations; expected a column session, id with after "
            "or parent, or hash_ids"
        )
    is_open = session is None
    if session is None:
        assert blocks is not None
        session = chains(blocks)
    alone = np.where(session < 0, session.max() + 1 + np.arange(n), session)
    took_s = _durations(table, columns, known)
    end_s = None if took_s is None or start_s is None else start_s + took_s
    return Recording(
        np.unique(alone, return_inverse=True)[1],
        given["prompt_tokens"],
        given["output_tokens"],
        start_s,
        end_s,
        blocks=blocks,
        block_tokens=known.block_tokens,
        waits=known.waits(table, start_s) if known.waits else None,
        is_open=is_open,
    ).columns(notes)


def _durations(table: Table, columns: Columns, known: "Format") -> np.ndarray | None:
    """Return how long requests took, NaN where it is not told; None without. [s]"""
    frame = table.frame
    if known.duration in frame:
        return parsed(frame[known.duration]).to_numpy(float)
    start = columns.names.get(columns.arrival or "")
    if known.end not in frame or start is None:
        return None
    ends, begins = (parsed(frame[name]) for name in (known.end, start))
    return (ends - begins).to_numpy(float) / PER_S[columns.arrival or ""]


def _refuse_all(table: Table, columns: Columns) -> None:
    """Refuse the first wrong value of each of several columns at once."""
    wrong: dict[str, None] = {}
    for read in (arrivals, prompts, outputs, classes):
        try:
            read(table, columns)
        except InputError as error:
            wrong[str(error).removeprefix(str(table.path))] = None
    if len(wrong) > 1:
        raise InputError(f"{table.path}{'; and '.join(wrong)}")


def _clock(
    stamps: Stamps | None, notes: Notes, known: "Format", seed: int
) -> tuple[np.ndarray | None, float | None]:
    """Return the arrivals and the time of the log's clock at 0, if it has one. [s]"""
    if stamps is None:
        return None, None
    clock_s = stamps.clock_s
    coarse = (
        len(stamps.values) >= _FEW and not (stamps.values % (60 * stamps.per_s)).any()
    )
    if clock_s and coarse:
        notes.add("arrivals are whole minutes: if each row is a sum, it is no request")
    if known.arrivals:
        return known.arrivals(stamps.values, seed, notes), clock_s
    if known.from_zero:
        return stamps.seconds(stamps.values.min()), clock_s
    if stamps.origin:
        notes.add("arrivals are stamps since 1970: the first is now 0 s", warn=False)
    return stamps.seconds(stamps.origin), clock_s


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


def columns_of(
    path: str | Path,
    given: Mapping[str, str] | None = None,
    known: "Format | None" = None,
) -> Columns:
    """Return the columns of a file; see :func:`columns_among`."""
    if not (names := column_names(path)):
        raise InputError(f"{path}: no requests in it; expected some")
    given = known.given(names, given or {}) if known else given
    return columns_among(
        names, given, f"{path}:1" if form(path) == "csv" else str(path)
    )


def wanted(columns: Columns) -> dict[str, str | None]:
    """Return the columns to read and their dtypes."""
    counted = chain(*columns.details.values(), [columns.total] * bool(columns.total))
    return (
        dict.fromkeys(counted)
        | dict.fromkeys(columns.traced, "category")
        | {
            name: "category" if column in _TEXTS else None
            for column, name in columns.names.items()
        }
    )


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
    given = {
        "prompt_tokens": prompts(table, columns),
        "output_tokens": outputs(table, columns),
    }
    for name, (least, most, expected) in _WHOLE.items():
        if name in names:
            given[name] = table.whole(names[name], least, most, expected)
    if (prefix := given.get("prefix_tokens")) is not None:
        expected = "at most the tokens of the prompt"
        right = prefix <= given["prompt_tokens"]
        table.require(right, names["prefix_tokens"], expected)
    if (limit := given.get("max_new_tokens")) is not None:
        expected = "at least the tokens of the output, or 0 for as many"
        right = (limit == 0) | (limit >= given["output_tokens"])
        table.require(right, names["max_new_tokens"], expected)
    given |= _images(table, columns, given["prompt_tokens"])
    if "session" in names:
        given["session"] = column_sessions(table.frame[names["session"]], sessions)
    if "adapter" in names:
        adapter = column_sessions(table.frame[names["adapter"]], adapters)
        expected = f"at most {MOST_ADAPTERS:,} adapters"
        table.require(adapter < MOST_ADAPTERS, names["adapter"], expected)
        given["adapter"] = adapter
    return given


def prompts(table: Table, columns: Columns, of: str = "prompt_tokens") -> np.ndarray:
    """Return the tokens of each prompt, or ``of`` its output, shape (n,)."""
    beside = columns.beside.get(of, ())
    tokens = table.tokens(columns.names[of], least=0 if beside else 1)
    for name in beside:
        added = Table(table.path, table.frame[[name]].fillna(0))
        tokens = tokens + added.tokens(name, least=0)
    table.require(tokens > 0, columns.names[of], "at least 1 token")
    return tokens


def outputs(table: Table, columns: Columns) -> np.ndarray:
    """Return the tokens of each answer, shape (n,)."""
    return prompts(table, columns, "output_tokens")


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
