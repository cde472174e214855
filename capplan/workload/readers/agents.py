"""Recordings of agents: what a request has in any format, and their conversations.

A line or an object is a session or a request. Prompts are hashed blocks, lengths, or
texts of which only the token counts are kept.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capplan.errors import InputError
from capplan.records import Record
from capplan.workload.forest import NONE
from capplan.workload.readers.options import ReadOptions
from capplan.workload.readers.ordering import Notes, ordered_trace, say_left_out
from capplan.workload.readers.recorded import Recording, Waits
from capplan.workload.readers.table import whole_records
from capplan.workload.readers.token_counts import (
    CountTokens,
    estimate,
    tokenizer_counter,
)
from capplan.workload.trace import MAX_TOKENS, Trace


class Row(NamedTuple):
    """A request as a recording has it."""

    place: str  # in the file, for messages
    session: str
    prompt: int
    output: int
    agent: str = ""  # of the session; empty: the main one
    start_s: float = np.nan
    end_s: float = np.nan
    think_s: float = np.nan
    blocks: list[int | str] | None = None
    text: str = ""  # that the session's first prompt begins with
    text_tokens: int = 0
    id: str = ""
    after: tuple[str, ...] | None = None  # ids, where they are recorded
    block_tokens: int = 0  # where rows say it
    is_alone: bool = False  # of no conversation that is told


class Reading(NamedTuple):
    """What a format makes of its records."""

    notes: Notes
    count_tokens: CountTokens
    left_out: Counter[str]

    def number(self, record: Record, name: str, least: float = 0) -> float:
        """Return a number of a record, checked."""
        value: Any = record.fields.get(name)
        if type(value) not in (int, float) or not least <= value <= MAX_TOKENS * 1e12:
            raise self.wrong(
                record, f"{name} is {value!r}; expected a number from {least}"
            )
        return float(value)

    def wrong(self, record: Record, text: str) -> InputError:
        """Return the error that says what is wrong with a record."""
        return InputError(f"{self.notes.path}{record.place}: {text}")


def has(*names: str) -> Callable[[Mapping[str, Any]], bool]:
    """Return what tells whether a first row has all names."""
    return lambda first: first.keys() >= {*names}


Rows = Callable[[Iterable[Record], Reading], Iterable[Row]]


@dataclass(frozen=True)
class AgentFormat:
    """A format of recorded conversations."""

    knows: Callable[[Mapping[str, Any]], bool]  # of the first row
    rows: Rows
    block_tokens: int = 0
    slack_s: float = 0.0
    is_relative: bool = False  # times count from the begin of each session

    def read(self, path: str | Path, options: ReadOptions) -> Trace:
        """Return the conversations of a file, whose turns come after answers."""
        notes, left_out = Notes(path), Counter[str]()
        count: CountTokens = estimate
        if options.tokenizer is not None:
            count = tokenizer_counter(options.tokenizer)
        place = ""

        def followed() -> Iterator[Record]:
            nonlocal place
            for record in whole_records(notes, options.salvage, wrappers=()):
                place = record.place
                yield record

        try:
            read = list(self.rows(followed(), Reading(notes, count, left_out)))
            rows = [row for row in read if row.output]
            left_out["without output tokens"] = len(read) - len(rows)
            say_left_out(notes, +left_out, len(rows) + left_out.total())
            if not rows:
                raise InputError(f"{path}: no requests in it; expected some")
            columns = self._recording(rows, path).columns(notes)
            arrival_s = columns.pop("arrival_s", None)
            return ordered_trace(notes, arrival_s, **columns)
        except (TypeError, AttributeError, ValueError, OverflowError) as error:
            raise InputError(
                f"{path}{place}: no request as this format has it ({error}); see "
                "docs/reference/inputs.md"
            ) from None

    def _recording(self, rows: list[Row], path: str | Path) -> Recording:
        session = _numbers(row.session for row in rows)
        begin_s = np.array([row.start_s for row in rows])
        start_s = end_s = root_s = None
        if np.isfinite(begin_s).all():
            order = np.lexsort((begin_s, session if self.is_relative else begin_s))
            rows, session = [rows[k] for k in order], session[order]
            session = _numbers(map(str, session))
            start_s = begin_s[order] - begin_s.min()
            end_s = np.array([row.end_s for row in rows]) - begin_s.min()
        if self.is_relative and session.max():
            root_s = np.full(len(rows), np.nan)  # when sessions begin is not told
        elif start_s is None:
            root_s = begin_s - np.fmin.reduce(begin_s)
        think_s = np.array([row.think_s for row in rows])
        tokens = np.array([row.text_tokens for row in rows])
        has_blocks = all(row.blocks is not None for row in rows)
        return Recording(
            session,
            np.array([row.prompt for row in rows]),
            np.array([row.output for row in rows]),
            start_s,
            None if end_s is None or np.isnan(end_s).all() else end_s,
            _agents(rows, session),
            [row.blocks or [] for row in rows] if has_blocks else None,
            self.block_tokens or rows[0].block_tokens or 1,
            None if np.isnan(think_s).all() else think_s,
            self.slack_s,
            ([row.text for row in rows], tokens) if tokens.any() else None,
            _waits(rows, path),
            root_s,
            all(row.is_alone for row in rows),
        )


def _numbers(names: Iterable[str]) -> np.ndarray:
    number: dict[str, int] = {}
    return np.array([number.setdefault(name, len(number)) for name in names], np.int64)


def _agents(rows: list[Row], session: np.ndarray) -> np.ndarray:
    """Return the number of each row's agent in its session, 0 the main one."""
    number: dict[tuple[int, str], int] = {}
    counts: Counter[int] = Counter()
    found = np.zeros(len(rows), np.int64)
    for k, row in enumerate(rows):
        if row.agent:
            key = int(session[k]), row.agent
            if key not in number:
                counts[key[0]] += 1
                number[key] = counts[key[0]]
            found[k] = number[key]
    return found


def _waits(rows: list[Row], path: str | Path) -> Waits | None:
    """Return for whom each row waits, where the recording says so."""
    if all(row.after is None for row in rows):
        return None
    at = {row.id: k for k, row in enumerate(rows)}
    after, joins = np.full(len(rows), NONE), list[tuple[int, int]]()
    for k, row in enumerate(rows):
        for name in row.after or ():
            if name not in at:
                raise InputError(
                    f"{path}{row.place}: waits for {name}; expected the id of a request"
                )
        named = [at[name] for name in row.after or ()]
        after[k] = named[0] if named else NONE
        joins += [(k, other) for other in named[1:]]
    pairs = np.array(joins, np.int64).reshape(-1, 2)
    return Waits(after, pairs, np.array([row.think_s for row in rows]), after)
