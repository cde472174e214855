"""Which columns of a file hold what: by name, as the user says, or by a guess.

Names of capplan and of known tools are taken as they are. Names that gateways and
observability tools write are guessed, with a note; ``--columns`` says it for certain.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import Any

from capplan.csv_file import read_rows
from capplan.errors import InputError, nearest
from capplan.workload.readers import parts
from capplan.workload.readers.cells import is_date
from capplan.workload.readers.wrong_header import (
    NEEDED,
    TIMES,
    listed,
    plain,
    refusal,
    refuse_no_requests,
)
from capplan.workload.slo import LIMITS, SAME

PER_S = {"arrival_s": 1.0, "arrival_ms": 1e3, "arrival_us": 1e6, "arrival_ns": 1e9}
"""Columns of arrivals and how many of their unit are a second."""


def _told() -> dict[str, dict[str, list[str]]]:
    """Return the names of each column in files, by what they tell of it.

    ``name`` is of capplan and of known tools, ``likely 1`` likely holds the column, as
    :func:`plain` writes it, ``likely 2`` less so; of names that are as good, the least
    nested one counts. A ``unit`` behind the name of a stamp says that it is in it.
    """
    told: dict[str, dict[str, list[str]]] = {}
    for _, row in read_rows(Path(__file__).parent / "data/columns.csv")[1]:
        of_column = told.setdefault(row["column"], {})
        of_column.setdefault(row["what"], []).extend(row["names"].split())
    return told


_TOLD = _told()
NAMES = {column: tuple(of["name"]) for column, of in _TOLD.items()} | {
    f"slo_{name}_s": (
        f"slo_{name}_s",
        *(f"slo_{alias}_s" for alias, same in SAME.items() if same == name),
    )
    for name in LIMITS
}
"""Names of each column in files."""

_FIRST_OF_SEVERAL = frozenset(
    ("class", "session", "status", "error", "kind", "cache_hit", "requests")
)
"""Columns of which several guesses may stand in a file: the first is taken."""

_OF_TURNS = {"id", "parent", "after", "think_s", "turn", "step", "agent"}
_OF_TURNS |= {"reasoning_tokens"}
"""Columns that are read where rows have ids and name others by them."""

EPOCH_S = 1e8
"""Arrivals beyond this are stamps since 1970. [s]"""
_Guess = tuple[str, int, str]
"""How good a word is, its place among those as good, and the unit that it says."""


@dataclass(frozen=True)
class Columns:
    """Columns of a file that are read, guessed and left out."""

    names: Mapping[str, str]  # name in the file of each column of ``NAMES``
    guessed: tuple[str, ...] = ()  # columns of ``names`` that were guessed
    unread: tuple[str, ...] = ()  # names in the file that stand for none
    beside: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # names of
    # tokens to add to those of the prompt and the output
    is_sized: bool = False  # the unit of arrivals is told by their size
    times: tuple[str, ...] = ()  # of ``unread`` that may be the arrivals, of which
    # there are no others
    details: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # names of
    # tokens that may be beside
    total: str = ""  # name of the total that shows which are
    traced: tuple[str, ...] = ()  # names of a call's id and of its parent's

    @property
    def has_turns(self) -> bool:
        """Whether rows name others, which they share with or wait for."""
        return "id" in self.names

    @property
    def arrival(self) -> str | None:
        """Column of ``PER_S`` that the file has; None without."""
        return next((name for name in PER_S if name in self.names), None)

    def without_guess(self, column: str) -> "Columns":
        """Return the columns without one, if it was guessed."""
        if column not in self.guessed:
            return self
        return replace(
            self,
            names={name: text for name, text in self.names.items() if name != column},
            guessed=tuple(name for name in self.guessed if name != column),
            unread=(*self.unread, self.names[column]),
        )

    @property
    def note(self) -> str:
        """What was guessed and ignored, and how to say it; empty if nothing."""
        parts = [self.guesses] if self.guesses else []
        if self.unread:
            parts.append(f"ignored columns: {listed(self.unread)}")
        if not parts:
            return ""
        return f"{'; '.join(parts)} (--columns NAME=COLUMN changes it)"

    @property
    def guesses(self) -> str:
        """What was guessed, and what was added to the prompt; empty if nothing."""
        parts = []
        if self.guessed:
            said = ",".join(f"{name}={self.names[name]}" for name in self.guessed)
            parts.append(f"guessed columns: {said}")
        for column, names in self.beside.items():
            added = " + ".join((self.names[column], *names))
            parts.append(f"{column} are {added}: the first does not count the others")
        if self.times:
            said = quote(f"arrival_s={self.times[0]}")
            parts.append(f"{listed(self.times)} may be arrivals: give --columns {said}")
        return "; ".join(parts)


def columns_among(
    header: Iterable[str], given: Mapping[str, str] | None = None, source: str = ""
) -> Columns:
    """Return the columns of a header.

    ``given`` has the name in the file of some columns, as the user says; an empty one
    leaves the column out. ``source`` is the file, of a CSV with its line, for messages.
    A header with a value of each column tells which may be times.
    """
    first = header if isinstance(header, Mapping) else {}
    header, wrong = list(header), []
    if source:
        refuse_no_requests(source, header, (given or {}).values())
    given = {column: _path(name, header) for column, name in (given or {}).items()}
    for column, name in given.items():
        if name and name not in header:
            wrong.append(f"no column {name}, which --columns names as {column}")
    names = {column: name for column, name in given.items() if name}
    known = [name for name in header if name not in names.values()]
    settled = set(given)
    if settled & set(PER_S):
        settled |= set(PER_S)
    doubts: dict[str, list[str]] = {}
    if not _has_turns({*known, *names}):
        settled |= _OF_TURNS
    for column, aliases in NAMES.items():
        present = [name for name in aliases if name in known]
        if present and column not in settled:
            names[column] = present[0]
            doubts |= {column: present} if len(present) > 1 else {}
    stamps = [column for column in PER_S if column in names]
    if len(stamps) > 1:
        doubts["arrival_s"] = [names[column] for column in stamps]
    guessed, sized = {}, False
    for column, (unit, likely) in _guessed(known, names, settled).items():
        sized |= column in PER_S and not unit
        guessed[unit or column] = likely[0]
        if len(likely) > 1 and column not in _FIRST_OF_SEVERAL:
            doubts[unit or column] = likely
    names |= guessed
    wrong += [f"both {a} and {b} may be {c}" for c, (a, b, *_) in doubts.items()]
    if source:
        wrong += [f"no column {name}" for name in NEEDED if name not in names]
        limits = [name for name in NAMES if name.startswith("slo_")]
        wrong += [
            f"no limit is called {name}; expected {', '.join(limits)}"
            for name in header
            if name.startswith("slo_") and name not in names.values()
        ]
    if wrong:
        arrival = next((name for name in PER_S if name in names), "arrival_s")
        raise InputError(refusal(source, wrong, arrival, names, header, first))
    counted = {column: names[column] for column in NEEDED if column in names}
    beside, details = (
        {at: of for at, name in counted.items() if (of := part(name, header))}
        for part in (parts.beside, parts.details)
    )
    details |= beside
    prompt = counted.get("prompt_tokens", "")
    total = parts.sibling(prompt, header, parts.TOTALS) if details else ""
    asked = parts.sibling(prompt, header, ("requests",))
    if asked and "requests" not in settled:
        names.setdefault("requests", asked)
    read = {*names.values(), *chain(*beside.values())}
    unread = tuple(name for name in header if name not in read)
    is_timed = bool({*names, *settled} & set(PER_S))
    times = [
        name for name in unread if not is_timed and _is_time(name, first.get(name))
    ]
    return Columns(
        names,
        guessed=tuple(guessed),
        unread=unread,
        beside=beside,
        is_sized=sized,
        times=tuple(times),
        details=details,
        total=total,
        traced=parts.traced(header),
    )


def _has_turns(names: Collection[str]) -> bool:
    shares = {"parent", "prefix_tokens"} <= {*names}
    return "id" in names and ("after" in names or shares)


def _path(name: str, header: Collection[str]) -> str:
    """Return a path as records have it: ``a["b.c"]`` is ``a.b.c``."""
    if name in header:
        return name
    return re.sub(r"""\[["']?([^]"']*)["']?\]""", r".\1", name)


def check_columns(given: Mapping[str, str]) -> None:
    """Refuse names of columns that no trace has, and one named twice."""
    for column, name in given.items():
        if column not in NAMES:
            raise InputError(
                f"{column!r} is no column of a trace{nearest(column, NAMES)}; expected "
                f"{', '.join(NAMES)}, as in arrival_s=timestamp"
            )
        if list(given.values()).count(name) > 1 and name:
            raise InputError(f"{name!r} is named for two columns; expected one")
    if len(set(given) & set(PER_S)) > 1:
        raise InputError(
            f"two units of arrivals are named; expected one of {', '.join(PER_S)}"
        )


def _words(column: str) -> dict[str, _Guess]:
    """Return the words that stand for a column, those that say a unit too."""
    units = PER_S if column in PER_S else ()
    found: dict[str, _Guess] = {}
    for tier in sorted(what for what in _TOLD[column] if what.startswith("likely")):
        for place, word in enumerate(_TOLD[column][tier]):
            for unit in units:
                ends = _TOLD[unit]["unit"]
                found |= {f"{word}_{end}": (tier, place, unit) for end in ends}
            found[word] = tier, place, ""
    return found


_WORDS = {column: words for column in _TOLD if (words := _words(column))}


def _guessed(
    header: list[str], names: Mapping[str, str], settled: set[str]
) -> dict[str, tuple[str, list[str]]]:
    """Return each column's unit, if it is said, and its likely names, best first."""
    ends = {name: _endings(name) for name in header if name not in names.values()}
    found = {}
    for column, words in _WORDS.items():
        if {column, *(PER_S if column in PER_S else ())} & (settled | set(names)):
            continue
        deep = 1 if column == "requests" else None
        ranked = sorted(
            (words[word][0], nested, words[word][1], name, words[word][2])
            for name, those in ends.items()
            for nested, word in enumerate(those[:deep])
            if word in words
        )
        if ranked:
            likely = [row[3] for row in ranked if row[:2] == ranked[0][:2]]
            found[column] = ranked[0][4], list(dict.fromkeys(likely))
            del ends[likely[0]]
    return found


def _is_time(name: str, value: Any) -> bool:
    """Return whether a value is a date, or a stamp since 1970 by its name too."""
    try:
        return float(value) > EPOCH_S and bool(TIMES & {*plain(name).split("_")})
    except (TypeError, ValueError, OverflowError):
        return is_date(value)


def _endings(name: str) -> list[str]:
    """Return a path and its ends in small letters with underlines, the longest first.

    Examples
    --------
    >>> _endings("response.usage.promptTokens")
    ['response_usage_prompt_tokens', 'usage_prompt_tokens', 'prompt_tokens']
    """
    parts = name.split(".")
    return [plain("_".join(parts[k:])) for k in range(len(parts))]
