"""A result as a page: what every format shows of it, in one order."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Self

from capplan.report.columns import Column, format_list, tabled

_NUMBER = re.compile(r"\d[\d,.]*")
FILES = "files"
"""Where alone a section stands."""

TOPICS: Mapping[str, str] = {
    "count": "why this many GPUs, and not one fewer",
    "peak": "how the busiest time is held",
    "price": "the bill line by line, and other ways to pay",
    "sure": "where the times are from, and how far they may be off",
    "run": "the commands that start it",
    "candidates": "all that was tried, with reasons",
    "assumptions": "what was assumed, and what to check",
    "next": "what to do now, the most valuable first",
}
"""What ``--explain`` explains."""

Fact = tuple[str, str]
"""A label and its text; without a text it is left out."""


class Figure(NamedTuple):
    """A chart with its title, its legend (label and colour) and its caption."""

    title: str
    svg: str
    legend: tuple[tuple[str, str], ...] = ()
    caption: str = ""


OPEN_ROWS = 40
"""Rows of a table that stands open, and of one on the terminal."""

STATES = {"holds": "good", "misses": "warn", "estimated": "warn"}
"""How a text stands out by its first word."""


def state(text: str) -> str:
    """Return whether a text is good news or a warning; empty where it is neither.

    Examples
    --------
    >>> state("holds: 3 % to spare"), state("checked: 5 to 10 GPUs")
    ('good', '')
    """
    return STATES.get(text.split(" ")[0].rstrip(",:"), "")


class Said(NamedTuple):
    """What a label of the first screen says: in few words, and what to add."""

    short: str  # a tile of the report: "holds, 3 % to spare"
    more: str = ""  # its small print, in the same words

    @classmethod
    def of(cls, short: str, *more: str) -> Self:
        """Return what is said with all that is known to add."""
        return cls(short, " · ".join(filter(None, more)))

    @property
    def text(self) -> str:
        """Both, on one line."""
        return " · ".join(filter(None, self))


class Cell(NamedTuple):
    """What a combination of choices comes to, in the currency that is shown."""

    usd: Sequence[Sequence[float]]  # by month and price, as planned; none: no bill
    note: str
    is_hourly: bool = False  # paid by the hour: fewer hours a day cost less


class Panel(NamedTuple):
    """The bill as a reader sets prices, and chooses among what was simulated."""

    symbol: str  # of the currency
    cells: Sequence[Cell]  # of all combinations of choices, the last changes fastest
    prices: Sequence[tuple[str, float]]  # label and value as planned
    choices: Sequence[tuple[str, Sequence[str]]] = ()  # label, and its options
    # label and value of what stays, and the command that simulates others
    fixed: Sequence[tuple[str, str, str]] = ()
    discount_of: str = ""  # empty: the prices are no prices of a GPU-hour

    @property
    def planned(self) -> list[float]:
        """What it shows before anything is set: the bill of each month."""
        return [sum(month) for month in self.cells[0].usd]


@dataclass(frozen=True)
class Table:
    """Rows of results under their columns."""

    columns: Sequence[Column]
    rows: Sequence[Any]
    title: str = ""
    note: str = ""
    style: Callable[[Any], str] = lambda row: ""  # of a row: "best", "fail" or empty
    is_whole: bool = False  # on the terminal too, however many rows

    @property
    def shown(self) -> list[Column]:
        """Columns for people."""
        return [column for column in tabled(self.columns) if column.heading]

    @property
    def named(self) -> list[Column]:
        """Columns for files."""
        return [column for column in tabled(self.columns) if column.name]


LABELS: Mapping[str, str] = {
    "buy": "Buy",
    "cost": "Cost",
    "peak": "Does the peak hold?",
    "sure": "How sure?",
    "next": "Do next",
}
"""Labels of the first screen, and what files call them."""

FLEET = "fleet"
HEADINGS: Mapping[str, str] = {**LABELS, FLEET: "Does the fleet hold?"}
"""The same, with what holds of a load that is alike at all times."""

MOST_CHECKS = 6
"""What to check before anybody signs, on paper and in the short document."""

MARKS = {"*": "* assumed", "≥": "≥ at least, not simulated"}
"""What signs mean: told where they are used."""


class Answer(NamedTuple):
    """The first screen of a page, under its headline and whose it is."""

    buy: Said
    cost: Said
    peak: Said  # whether the busiest time holds
    sure: Said  # "measured", "checked" or "estimated", and the range
    next: Said  # what to do now
    instead: Table | None = None  # at most six rows; the chosen one has style "best"
    notes: Sequence[str] = ()  # the one that moves most dollars first
    held: str = "peak"  # what holds, in place of that label: FLEET without a peak

    @property
    def said(self) -> list[tuple[str, Said]]:
        """Labels with what they say."""
        said = [(name, getattr(self, name)) for name in LABELS]
        return [(self.held if name == "peak" else name, x) for name, x in said]

    @property
    def marks(self) -> list[str]:
        """What the signs mean that it uses."""
        texts = [said.text for _, said in self.said]
        if self.instead is not None:
            rows, columns = self.instead.rows, self.instead.shown
            texts += [column.text(row) for row in rows for column in columns]
        return [told for mark, told in MARKS.items() if mark in " ".join(texts)]


@dataclass(frozen=True)
class Section:
    """A part of a page; without content it is left out."""

    heading: str = ""
    facts: Sequence[Fact] = ()
    tables: Sequence[Table] = ()
    figures: Callable[[], Sequence[Figure]] = tuple
    command: str = ""  # one line to copy
    notes: Sequence[str] = ()
    only: str = ""  # FILES, where it does not stand on the terminal too
    is_folded: bool = False  # a reader opens it, in HTML and Markdown
    topic: str = ""  # one of TOPICS, under which ``--explain`` has it

    @property
    def is_opened(self) -> bool:
        """Whether a reader of HTML opens it: it is a detail, or a long table."""
        return self.is_folded or any(len(t.rows) > OPEN_ROWS for t in self.tables)

    @property
    def has_text(self) -> bool:
        """Whether it has anything but figures."""
        return bool(self.known_facts or self.full_tables or self.command or self.notes)

    @cached_property
    def drawn(self) -> Sequence[Figure]:
        """The figures, which are drawn once."""
        return self.figures()

    @property
    def known_facts(self) -> list[Fact]:
        """Facts that have a text."""
        return [(label, text) for label, text in self.facts if text]

    @property
    def full_tables(self) -> list[Table]:
        """Tables that have rows."""
        return [table for table in self.tables if table.rows]


def next_section(steps: Iterable[Said]) -> Section:
    """Return all that is to be done, of which the first screen has the first."""
    facts = [(f"{at}", step.text) for at, step in enumerate(steps, 1)]
    return Section("What to do next", facts=facts, topic="next")


def why_section(what: str, facts: Sequence[Fact]) -> Section:
    """Return why the answer is that: on the second sheet of paper, the rest folded."""
    return Section(f"Why this {what}", facts, topic="count")


@dataclass(frozen=True)
class Page:
    """What is said of a result, in the order in which it is read."""

    name: str  # of its files: "plan"
    headline: str
    about: str  # whose it is: "Llama-3.1-70B on H100-SXM"
    sections: Sequence[Section]
    values: Callable[[], Mapping[str, Any]]  # of the JSON
    csv: Mapping[str, Table] = field(default_factory=dict)  # by file name
    prices: str = ""  # of which day they are: "price of 7 October 2026"
    answer: Answer | None = None  # the first screen
    chart: Figure | None = None  # its finding as title; under the tiles
    panel: Panel | None = None  # of the bill, that a reader sets; under the other ways
    lead: str = ""  # the answer in a sentence
    warnings: Sequence[str] = ()
    is_failure: bool = False
    is_alone: bool = False  # no files are written beside it

    @property
    def to_check(self) -> list[str]:
        """Notes and warnings, each once: what to check before anybody signs."""
        notes = () if self.answer is None else self.answer.notes
        return list(dict.fromkeys([*notes, *merged(self.warnings)]))

    @property
    def files(self) -> str:
        """Names of the files that hold the same numbers; none of a page alone."""
        if self.is_alone:
            return ""
        names = [
            f"{self.name}.json",
            *(name for name, table in self.csv.items() if table.rows),
        ]
        return format_list(names)


def about(llm: str | None, gpu: str | None) -> str:
    """Return whose a page is: the LLM and its GPU; of given times neither is known."""
    return f"{llm} on {gpu}" if llm and gpu else llm or gpu or "given iteration times"


def merged(warnings: Iterable[str]) -> list[str]:
    """Return warnings with those that differ in their subject or numbers as one.

    The subject is what stands before the first colon. Of texts that differ in numbers
    the first stands for all.

    Examples
    --------
    >>> merged(["A, TP 1: too long", "B, TP 2: too long", "old"])
    ['A, TP 1; B, TP 2: too long', 'old']
    >>> merged(["A: 17 is beyond 8", "B: 19 is beyond 8"])
    ['A: 17 is beyond 8; also B']
    """
    groups: dict[str, list[tuple[str, str]]] = {}
    for text in dict.fromkeys(warnings):
        subject, colon, rest = text.partition(": ")
        if not colon:
            subject, rest = "", text
        key = f"{bool(subject)} {_NUMBER.sub('#', rest)}"
        groups.setdefault(key, []).append((subject, rest))
    found = []
    for rows in groups.values():
        subject, rest = rows[0]
        same = [other for other, text in rows if text == rest]
        alike = [other for other, text in rows if text != rest]
        text = f"{'; '.join(same)}: {rest}" if subject else rest
        also = [name for name in dict.fromkeys(alike) if name not in ("", subject)]
        if also:
            text += f"; also {'; '.join(also)}"
        elif alike:
            text += f"; and {len(alike)} more like this"
        found.append(text)
    return found
