"""Stream a file as traces of bounded size, for traces larger than memory."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from capplan.errors import InputError
from capplan.workload.described import Tally
from capplan.workload.readers import PLAIN, reader, requests, sniffed
from capplan.workload.readers.columns import Columns
from capplan.workload.readers.ordering import Notes, ordered_trace, say_left_out
from capplan.workload.readers.outcomes import outcomes
from capplan.workload.readers.parts import by_totals
from capplan.workload.readers.stamps import Stamps, arrivals
from capplan.workload.readers.table import Table, iterate_tables
from capplan.workload.trace import Trace


def iterate_trace(
    path: str | Path,
    chunk_requests: int = 1_000_000,
    columns: Mapping[str, str] | None = None,
    *,
    salvage: bool = False,
    tally: Tally | None = None,
) -> Iterator[Trace]:
    """Yield the requests of a file, plain or gzipped, in order of arrival.

    Values are checked as by ``read_trace``, which has the same ``columns``; a later
    chunk can only add names of classes. A request before those of an earlier chunk is
    refused. What is read is added to ``tally``.
    """
    if chunk_requests < 1:
        raise ValueError(f"chunk_requests is {chunk_requests}; expected at least 1")
    # How many classes a guessed column has is known at its end.
    known = reader(PLAIN if columns else sniffed(path))
    if not getattr(known, "is_guessed", False):
        raise InputError(f"{path}: such traces are read whole: leave --stream out")
    read = requests.columns_of(path, columns, known).without_guess("class")
    for column in requests.limit_columns(read).values():
        raise InputError(
            f"{path}:1: {column} cannot be read in chunks, since it makes classes of "
            "all requests together; expected no such column, or --no-stream"
        )
    if read.has_turns:
        raise InputError(f"{path}: conversations are read whole: leave --stream out")
    class_names: list[str] = []
    sessions: dict[str, int] = {}
    adapters: dict[str, int] = {}
    last_s = -np.inf
    begin: Stamps | None = None
    timed: bool | None = None
    all_rows = 0
    tally = tally or Tally()
    tally.unread_columns = () if read.note else read.unread
    arrival = read.names[read.arrival] if read.arrival else ""
    broken, fields = Notes(path), requests.wanted(read)
    for table in iterate_tables(broken, chunk_requests, fields, salvage=salvage):
        notes = Notes(path)
        right, left_out = outcomes(table, read)
        tally.left_out += left_out
        all_rows += len(right)
        if not right.any():
            continue
        table = table.select(right)
        read = by_totals(table, read)
        if timed is None and read.note:
            notes.add(read.note)
        stamps, arrival_s = arrivals(table, read), None
        if timed is not None and timed != (stamps is not None):
            table.refuse(0, arrival, "all arrivals or none")
        timed = stamps is not None
        if stamps is not None:
            since_s = stamps.seconds()
            expected = f"at least {last_s} as before; sort the file to stream it"
            table.require(since_s >= last_s, arrival, expected)
            last_s = float(since_s.max())
            begin = begin or stamps
            if stamps.per_s != begin.per_s:
                table.refuse(0, arrival, "the unit of those before")
            arrival_s = stamps.seconds(begin.origin)
        request_class = _classes(table, read, class_names)
        trace = ordered_trace(
            notes,
            arrival_s,
            tuple(class_names) or ("all",),
            request_class=request_class,
            **requests.counts(table, read, sessions, adapters),
        )
        tally.add(trace, begin.clock_s if begin else None)
        yield trace
    say_left_out(Notes(path), tally.left_out, all_rows)
    if timed is None:
        raise InputError(f"{path}: no requests under the header; expected some")


def can_be_streamed(
    path: str | Path, name: str | None, columns: Mapping[str, str]
) -> bool:
    """Return whether a file, of a format that is named or not, is read in chunks."""
    known = reader(PLAIN if columns else name or sniffed(path))
    if not getattr(known, "is_guessed", False):
        return False
    read = requests.columns_of(path, columns, known)
    return not (requests.limit_columns(read) or read.has_turns)


def _classes(
    table: Table, columns: Columns, class_names: list[str]
) -> np.ndarray | None:
    """Return the class of each request; append new names to ``class_names``."""
    chunk_names, request_class = requests.classes(table, columns)
    if request_class is None:
        return None
    class_names += [name for name in chunk_names if name not in class_names]
    indices = np.array([class_names.index(name) for name in chunk_names], np.int16)
    return indices[request_class]
