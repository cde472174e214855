"""Trace formats: what a file of each has, and what its columns mean.

``requests.read`` does the rest. ``csv`` is every other table whose columns are known by
their names or said with ``--columns``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from capplan.errors import InputError
from capplan.input_file import parse_yaml, read_text
from capplan.workload.readers import requests
from capplan.workload.readers.cells import parsed
from capplan.workload.readers.columns import NAMES, columns_among
from capplan.workload.readers.hashed_blocks import (
    arrivals_in_buckets,
    chat_sessions,
    chat_waits,
)
from capplan.workload.readers.options import ReadOptions
from capplan.workload.readers.ordering import Notes
from capplan.workload.readers.recorded import Waits
from capplan.workload.readers.table import Table
from capplan.workload.trace import Trace

FirstRow = Mapping[str, Any]
"""Columns of a file, with the values of its first row where it is JSON or Parquet."""


@dataclass(frozen=True)
class Format:
    """A source of requests whose columns are known; see ``data/formats.yaml``."""

    what: str
    knows: Callable[[FirstRow], bool]
    columns: Mapping[str, str] = field(default_factory=dict)
    is_guessed: bool = True
    also: Mapping[str, str | None] = field(default_factory=dict)
    from_zero: bool = False
    note: str = ""
    block_tokens: int = 0
    arrivals: Callable[[np.ndarray, int, Notes], np.ndarray] | None = None
    sessions: Callable[[Table, np.ndarray], np.ndarray] | None = None
    waits: Callable[[Table, np.ndarray | None], Waits] | None = None
    duration: str = ""  # column of how long requests took [s]
    end: str = ""  # column of when they ended, as the arrivals are written
    check: Callable[[Table, Notes], None] | None = None
    tidy: Callable[[Table, Notes], Table] | None = None  # before rows are left out

    def read(self, path: str | Path, options: ReadOptions) -> Trace:
        """Return the requests of a file of this format."""
        return requests.read(path, options, self)

    def given(
        self, header: Mapping[str, Any], said: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the columns in a file by what the user and then the format say."""
        of = {} if self.is_guessed else dict.fromkeys(NAMES, "")
        for column, names in self.columns.items():
            present = [_found(name, header) for name in names.split("|") if name]
            if any(present) or names.endswith("|"):
                of[column] = next(filter(None, present), "")
        if any(column.startswith("arrival") for column in said):
            of = {name: text for name, text in of.items() if name[:7] != "arrival"}
        taken = set(said.values())
        return {name: text for name, text in of.items() if text not in taken} | dict(
            said
        )


def _found(name: str, header: Mapping[str, Any]) -> str:
    """Return a name as a file has it, at any depth, the least deep; else nothing."""
    nested = sorted((at for at in header if at.endswith(f".{name}")), key=len)
    return next(iter([name] * (name in header) + nested), "")


def _has(*names: str) -> Callable[[FirstRow], bool]:
    return lambda first: first.keys() >= set(names)


_STAMPED = ("timestamp", "input_length", "output_length")


def _is_ragpulse(first: FirstRow) -> bool:
    named = any(name.startswith("hash_ids.") for name in first)
    is_text = isinstance(first.get("timestamp"), str) and "session_id" in first
    return _has(*_STAMPED)(first) and (named or is_text)


def _is_mooncake(first: FirstRow) -> bool:
    numeric = type(first.get("timestamp")) in (int, float)
    others = {"chat_id", "session_id", "request_id"} & first.keys()
    return numeric and _has(*_STAMPED)(first) and not others


def _is_plain(first: FirstRow) -> bool:
    try:
        names = columns_among(first).names
    except InputError:  # ambiguous: that is said when it is read
        return True
    return {"prompt_tokens", "output_tokens"} <= set(names)


def _images(table: Table, notes: Notes) -> None:
    if "NumImages" not in table.frame or table.frame["NumImages"].isna().all():
        return
    images = table.tokens("NumImages", least=0)
    if images.any():
        notes.add(
            f"{images.sum():,} images in {(images > 0).sum():,} requests count "
            "only as far as ContextTokens holds their tokens"
        )


_CLAUDE_OUTPUT = "message.usage.output_tokens"
_CLAUDE_PREFIX = "message.usage.cache_read_input_tokens"


def _is_opentelemetry(first: FirstRow) -> bool:
    return any("startTimeUnixNano" in name or "gen_ai." in name for name in first)


def _is_claude_code(first: FirstRow) -> bool:
    marks = ("sessionId", "leafUuid", "snapshot.messageId")
    return "type" in first and any(mark in first for mark in marks)


def _answers_once(table: Table, notes: Notes) -> Table:
    """Return answers, each once: Claude Code writes a line for each part of one."""
    names = "message.id", "uuid", "parentUuid", "timestamp", _CLAUDE_OUTPUT
    columns = (table.frame[name].astype(object) for name in names)
    answer, own, parent, stamp, output = columns
    at = dict(zip(own.fillna(""), stamp, strict=True))
    of = dict(zip(own.fillna(""), answer, strict=True))
    asked = [at.get(k) or now for k, now in zip(parent, stamp, strict=True)]
    begins = [of.get(k) != one for k, one in zip(parent, answer, strict=True)]
    kept = output.notna() & np.array(begins, bool)
    kept &= answer.isna() | ~answer.where(kept).duplicated()
    notes.add(
        f"{(~kept).sum():,} of {len(kept):,} rows are no answers or go on with one: "
        "left out",
        warn=False,
    )
    most = parsed(output).groupby(answer).transform("max")
    read = table.frame[_CLAUDE_PREFIX].astype(object)
    frame = table.frame.assign(timestamp=asked)
    frame[_CLAUDE_OUTPUT] = most.where(most.notna(), output)
    frame[_CLAUDE_PREFIX] = read.where(read.notna(), 0)
    return Table(table.path, frame).select(kept.to_numpy(bool))


_FUNCTIONS: dict[str, dict[str, Any]] = {
    "azure": {"check": _images},
    "qwen-bailian": {"sessions": chat_sessions, "waits": chat_waits},
    "ragpulse": {"knows": _is_ragpulse},
    "mooncake": {"knows": _is_mooncake, "arrivals": arrivals_in_buckets},
    "opentelemetry": {"knows": _is_opentelemetry},
    "claude-code": {"knows": _is_claude_code, "tidy": _answers_once},
    "csv": {"knows": _is_plain},
}


def _formats() -> dict[str, Format]:
    """Return the formats as ``data/formats.yaml`` declares them."""
    path = Path(__file__).parent / "data/formats.yaml"
    found = {}
    for name, declared in parse_yaml(path, read_text(path))[0].items():
        knows = _has(*declared.pop("has", ()))
        found[name] = Format(**{"knows": knows} | declared | _FUNCTIONS.get(name, {}))
    return found


FORMATS = _formats()
"""Formats by name, in the order in which they are tried."""
