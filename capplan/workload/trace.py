"""A trace: the requests to serve, one row per request, as columns."""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np

from capplan.errors import InputError
from capplan.workload.forest import first_wrong, renumbered_rows

MAX_TOKENS = 100_000_000
"""More tokens than this in one request is a mistake in the file."""

MOST_REQUESTS = 30_000_000
"""Requests of a trace that is held whole; they take about 4 GB."""

MOST_SESSIONS = 2**40
"""Numbers of sessions are below; a hash of one fits 64 bits."""

MOST_ADAPTERS = 2**16
"""Numbers of adapters are below: with one, a prefix group fits 64 bits."""

MOST_EPOCH_S = 1e10
"""Arrivals beyond this, the year 2286 since 1970, are in another unit. [s]"""

_DEFAULT = cast(np.ndarray, None)
"""A column that ``__post_init__`` fills, so that its type is never None."""


class _Column(NamedTuple):
    dtype: type
    low: float
    high: float
    default: int | None = None


COLUMNS = {
    "prompt_tokens": _Column(np.int64, 1, MAX_TOKENS),
    "output_tokens": _Column(np.int64, 1, MAX_TOKENS),
    "after": _Column(np.int64, -1, MOST_REQUESTS, -1),
    "arrival_s": _Column(np.float64, -np.inf, np.inf),
    "request_class": _Column(np.int16, 0, np.iinfo(np.int16).max, 0),
    "prefix_group": _Column(np.int64, -1, np.iinfo(np.int64).max, -1),
    "prefix_tokens": _Column(np.int64, 0, MAX_TOKENS, 0),
    "predicted_output_tokens": _Column(np.int64, 1, MAX_TOKENS),
    "priority": _Column(np.int64, -(2**31), 2**31 - 1, 0),
    "session": _Column(np.int64, -1, MOST_SESSIONS - 1, -1),
    "max_new_tokens": _Column(np.int64, 0, MAX_TOKENS, 0),
    "think_s": _Column(np.float64, 0, np.inf),
    "adapter": _Column(np.int64, -1, MOST_ADAPTERS - 1, -1),
    "image_tokens": _Column(np.int64, 0, MAX_TOKENS, 0),
    "images": _Column(np.int64, 0, MAX_TOKENS, 0),
    "image_offset": _Column(np.int64, 0, MAX_TOKENS, 0),
    "parent": _Column(np.int64, -1, MOST_REQUESTS, -1),
    "turn": _Column(np.int64, 0, MOST_REQUESTS, 0),
    "step": _Column(np.int64, 0, MOST_REQUESTS, 0),
    "agent": _Column(np.int32, -(2**31), 2**31 - 1, 0),
    "reasoning_tokens": _Column(np.int64, 0, MAX_TOKENS, 0),
    "recorded_s": _Column(np.float64, -np.inf, np.inf),
}
"""Columns of a trace with their dtype, range and default."""

_SHARED: dict[tuple[type, int], list[np.ndarray]] = {}
"""Arrays of a default, read-only, each at least twice as long as the one before."""

_LIMITS_OF_EACH_OTHER = {
    name for name in COLUMNS if name.endswith("_tokens") or name.startswith("image")
}
"""Columns of which the values of one limit those of another."""


@dataclass(frozen=True, eq=False)
class Trace:
    """Requests in order of arrival, or those of conversations with parents first.

    A column has shape (n,) and dtype, range and default of ``COLUMNS``.
    """

    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    # never falling, unless some rows come ``after`` others: they have NaN; None
    # without times
    arrival_s: np.ndarray | None = None
    request_class: np.ndarray = _DEFAULT  # index into ``class_names``
    class_names: tuple[str, ...] = ("all",)  # each may have its own SLO
    # Requests of one group begin with the same text, of as many tokens as the most
    # ``prefix_tokens`` in it; -1 shares with nobody, or with its parent
    prefix_group: np.ndarray = _DEFAULT
    prefix_tokens: np.ndarray = _DEFAULT
    source: str = "given in Python"  # for reports
    notes: tuple[str, ...] = ()  # what was corrected or estimated, for reports
    # that the scheduler expects; None without a predictor
    predicted_output_tokens: np.ndarray | None = None
    priority: np.ndarray = _DEFAULT  # lower is served first by some schedulers
    unread_columns: tuple[str, ...] = ()  # of the source, for messages
    # rows of the source by the reason, for messages
    left_out: Mapping[str, int] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()  # what else is to be known of the source
    session: np.ndarray = _DEFAULT  # conversation or user; -1 where it is not known
    # Users who ask for the requests in their order, each the next when it has been
    # answered and has thought; 0 where requests arrive whatever becomes of others
    users: int = 0
    # that the k-th request asked is thought of: after an answer, or of the first
    # ``users`` requests from time 0 on; after the answer of ``after``. None without
    think_s: np.ndarray | None = None
    asked_until_s: float = np.inf  # users ask no more: there may be fewer requests
    # Time since 1970 by the log's local clock where ``arrival_s`` is 0, if it has one
    clock_s: float | None = None
    # Users think one after the other: with exponential times requests are a Poisson
    # process of which those are refused that find ``users`` in flight
    in_turn: bool = False
    # that the client asked for, at least ``output_tokens``; 0: as many as the output
    # has. Engines that admit by what an answer may take read it
    max_new_tokens: np.ndarray = _DEFAULT
    adapter: np.ndarray = _DEFAULT  # of LoRA; -1 asks for the LLM itself
    image_tokens: np.ndarray = _DEFAULT  # of the prompt that stand for images
    # of the prompt, each of ``image_tokens // images`` tokens; by default one, if any
    images: np.ndarray = _DEFAULT
    image_offset: np.ndarray = _DEFAULT  # tokens of text before the first image
    # row before with whose prompt and answer this prompt shares its first
    # ``prefix_tokens``; -1: none, or a text
    parent: np.ndarray = _DEFAULT
    after: np.ndarray = _DEFAULT  # row whose answer starts ``think_s``; -1: arrives
    # further rows that rows wait for: (row, row whose answer it waits for), (m, 2)
    joins: np.ndarray = _DEFAULT
    turn: np.ndarray = _DEFAULT  # place in its session
    step: np.ndarray = _DEFAULT  # 0 begins with what a user says, k is a tool's result
    # 0: the main one; others are sub-agents, those below 0 hold no lane
    agent: np.ndarray = _DEFAULT
    reasoning_tokens: np.ndarray = _DEFAULT  # of the answer
    # when it arrived as it was recorded, where it arrives after an answer
    recorded_s: np.ndarray | None = None
    text_names: tuple[str, ...] = ()  # of ``prefix_group``, where texts have names

    def __post_init__(self) -> None:
        """Refuse values that no request can have; fill the default columns."""
        if len(self.prompt_tokens) == 0:
            raise InputError(f"{self.source}: no requests; expected at least one")
        for name, column in COLUMNS.items():
            values = getattr(self, name)
            if name == "images" and values is None and self.image_tokens.any():
                values = self.image_tokens > 0
            if values is not None:
                object.__setattr__(self, name, self._checked(name, values))
            elif column.default is not None:
                object.__setattr__(self, name, _default(column, len(self)))
        if self.joins is None:
            object.__setattr__(self, "joins", np.zeros((0, 2), np.int64))
        if self.think_s is None and self.has_waits:
            object.__setattr__(self, "think_s", np.zeros(len(self)))
        self._check_limits()
        self._check_images()
        self._check_turns()

    def _checked(self, name: str, values: np.ndarray) -> np.ndarray:
        dtype, low, high, _ = COLUMNS[name]
        if name == "request_class":
            high = len(self.class_names) - 1
        values = np.asarray(values)
        if values.shape != (len(self),):
            raise InputError(
                f"{self.source}: {name} has shape {values.shape}; "
                f"expected ({len(self)},)"
            )
        wrong = ~((values >= low) & (values <= high)) | ~np.isfinite(values)
        if np.issubdtype(dtype, np.integer) and values.dtype.kind == "f":
            wrong |= values != np.floor(values)
        if name == "arrival_s":
            wrong &= ~(np.isnan(values) & (self.after >= 0))
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise InputError(
                f"{self.source}: row {row + 1}: {name} is {values[row]}; "
                f"expected {low} to {high}"
            )
        falls = name == "arrival_s" and (np.diff(values) < 0).any()
        if falls and not self.has_waits:
            raise InputError(f"{self.source}: arrival_s falls; sort it first")
        return np.ascontiguousarray(values, dtype)

    def _check_limits(self) -> None:
        limit = self.max_new_tokens
        cut = (self.output_tokens > limit) & (limit > 0)
        if cut.any():
            row = int(np.flatnonzero(cut)[0])
            raise InputError(
                f"{self.source}: row {row + 1}: output_tokens is "
                f"{self.output_tokens[row]} and max_new_tokens {limit[row]}; expected "
                "an output of at most max_new_tokens, or 0 for its own length"
            )

    def _check_images(self) -> None:
        tokens, images = self.image_tokens, self.images
        behind = self.image_offset + tokens
        wrong = (behind > self.prompt_tokens) | (images > tokens)
        wrong |= (tokens > 0) & (images == 0)
        if not wrong.any():
            return
        row = int(np.flatnonzero(wrong)[0])
        given = f"{self.source}: row {row + 1}: image_tokens is {tokens[row]}"
        if behind[row] > self.prompt_tokens[row]:
            before = self.image_offset[row]
            raise InputError(
                f"{given}{f' behind {before} others' if before else ''}; expected at "
                f"most the prompt, {self.prompt_tokens[row]} tokens"
            )
        raise InputError(
            f"{given} and images {images[row]}; expected a token or more for each "
            "image, as many as the engine computes for it, and 0 of both without"
        )

    def _check_turns(self) -> None:
        if not self.has_turns or (wrong := first_wrong(self)) is None:
            return
        row, name, expected = wrong
        value = getattr(self, name)[row]
        raise InputError(
            f"{self.source}: row {row + 1}: {name} is {value}; expected {expected}"
        )

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    @property
    def has_turns(self) -> bool:
        """Whether requests share with others or wait for them, by their rows."""
        shares = not self.is_default("parent") and bool((self.parent >= 0).any())
        return shares or self.has_waits

    @property
    def has_waits(self) -> bool:
        """Whether a request arrives after the answer of another."""
        return not self.is_default("after") and bool((self.after >= 0).any())

    def is_default(self, name: str) -> bool:
        """Return whether a column was not given: it is the same array for all."""
        column, kind = getattr(self, name), COLUMNS[name]
        shared = _SHARED.get((kind.dtype, kind.default or 0), [])
        return column is not None and any(column.base is each for each in shared)

    @property
    def most_output_tokens(self) -> np.ndarray:
        """Tokens that each answer may have by what was asked, shape (n,). [tokens]"""
        return np.maximum(self.max_new_tokens, self.output_tokens)

    @property
    def duration_s(self) -> float:
        """Time from the first to the last arrival; 0 without times. [s]"""
        if self.arrival_s is None:
            return 0.0
        if self.has_waits:
            return float(np.nanmax(self.arrival_s) - np.nanmin(self.arrival_s))
        return float(self.arrival_s[-1] - self.arrival_s[0])

    @property
    def rate_per_s(self) -> float:
        """Mean arrival rate; NaN without times or with one request. [requests/s]

        Requests that come after an answer do not count: it is that of sessions.
        """
        if self.duration_s <= 0:
            return float("nan")
        arrivals = int((self.after < 0).sum()) if self.has_waits else len(self)
        return (arrivals - 1) / self.duration_s

    def select(self, rows: np.ndarray | slice) -> "Trace":
        """Return the requests at ``rows``, which must be in order of arrival.

        Rows that cut a session of ``parent`` and ``after`` are refused.

        Examples
        --------
        >>> Trace([5, 6, 7], [1, 2, 3]).select(slice(1, None)).prompt_tokens.tolist()
        [6, 7]
        """
        renumbered = renumbered_rows(self, rows) if self.has_turns else {}
        return self.rows_of(rows, **renumbered)

    def rows_of(self, rows: np.ndarray | slice, **columns: Any) -> "Trace":
        """Return the requests at ``rows``, with these columns in place of theirs."""
        selected = copy(self)  # its values are checked; their order is not
        for name, kind in COLUMNS.items():
            if self.is_default(name):
                column = _default(kind, len(selected))
            elif (column := columns.get(name, getattr(self, name))) is not None:
                chosen = column if name in columns else column[rows]
                column = np.ascontiguousarray(chosen)
            object.__setattr__(selected, name, column)
        if not len(selected):
            raise InputError(f"{self.source}: no requests; expected at least one")
        object.__setattr__(selected, "joins", columns.get("joins", self.joins))
        return selected.changed(arrival_s=selected.arrival_s)

    def changed(self, **fields: Any) -> "Trace":
        """Return what ``replace`` does; of the columns only those given are checked."""
        other = copy(self)
        for name in sorted(fields, key=lambda name: name != "after"):
            values = fields[name]
            is_column = name in COLUMNS and values is not None
            value = other._checked(name, values) if is_column else values
            object.__setattr__(other, name, value)
        if fields.keys() & _LIMITS_OF_EACH_OTHER:
            other._check_limits()
            other._check_images()
        if other.has_turns and fields.keys() & COLUMNS.keys():
            other._check_turns()
        return other


def _default(column: _Column, n: int) -> np.ndarray:
    """Return ``n`` times the default of a column, of which traces share the memory."""
    default = column.default or 0
    shared = _SHARED.setdefault((column.dtype, default), [])
    if not shared or len(shared[-1]) < n:
        count = max(n, 2 * len(shared[-1]) if shared else 0)
        shared.append(np.full(count, default, column.dtype))
        shared[-1].flags.writeable = False
    return shared[-1][:n]
