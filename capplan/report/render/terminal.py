"""A page on the terminal: the answer on one screen, all else where it is asked for."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from capplan.report.columns import Column
from capplan.report.console import console
from capplan.report.page import (
    FILES,
    OPEN_ROWS,
    Answer,
    Fact,
    Page,
    Section,
    Table,
    state,
)

_WIDEST = 1000
"""Columns of the terminal that a table may take."""
_FIRST = {"report.html": 0, "plan.json": 1}
"""Files that are named of those written."""
_INDENT = 9
"""Columns before the text of a label."""
SCREEN_COLUMNS = 100
"""Widest that a first screen is."""
MOST_ROWS = 6
"""Other ways that the first screen shows."""
ALL = "all"
"""Names all topics."""
_COLOURS = {"good": "green", "warn": "yellow", "": ""}
_STYLES = {"best": "bold", "fail": "dim", "": ""}


def print_result(
    page: Page, written: Sequence[Path], topic: str = "", out: Console | None = None
) -> None:
    """Print a page, on standard output by default, and the files written.

    Its first screen, or what ``topic`` names: one of ``TOPICS``, or ``ALL``.
    """
    out = out or console()
    if topic and topic != ALL:
        print_topic(page, topic, out)
    elif page.answer is None or topic:
        print_page(page, out)
    else:
        print_answer(page, page.answer, out)
    if page.answer is not None and written:
        paths = sorted(written, key=lambda path: _FIRST.get(path.name, len(_FIRST)))
        named = [path.name for path in paths[: len(_FIRST)]]
        more = f" and {len(paths) - len(named)} more" if paths[len(named) :] else ""
        text = f"written to {paths[0].parent}: {', '.join(named)}{more}"
        out.print(escape(text), soft_wrap=True)
    elif written:
        paths_text = escape(", ".join(map(str, written)))
        out.print(f"written: {paths_text}", soft_wrap=True)


def print_answer(page: Page, answer: Answer, out: Console) -> None:
    """Print the first screen: headline, five labels, other ways, the dearest note."""
    width = _width(out)
    out.print(Text(page.headline, style=_colour(page)), width=width)
    if page.about:
        out.print(Text(page.about), width=width)
    grid = Grid.grid(padding=(0, 3, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for label, said in answer.said:
        if said.text:
            style = _COLOURS[state(said.short)]
            more = _within(said.text, width)[len(said.short) :]
            grid.add_row(label, Text(said.short, style) + Text(more))
    _print_indented(grid, out)
    if answer.instead is not None:
        _print_instead(answer.instead, out)
    if notes := page.to_check:
        more = f" (+{len(notes) - 1} more: --explain assumptions)" if notes[1:] else ""
        grid = Grid.grid(padding=(0, 3, 0, 0))
        room = 2 * (width - _INDENT - 3) - len(more)  # --explain has all of it
        subject, _, rest = notes[0].partition(": ")
        first = notes[0] if "; " not in subject else rest or subject  # of several alike
        first = shorten(first, room, placeholder=" …")
        grid.add_row(Text("note", style="dim"), Text(f"{first}{more}"))
        _print_indented(grid, out)
    else:
        out.print()
    out.print(Text("   ".join([*answer.marks, "--explain: why, and how"]), style="dim"))


def _within(text: str, width: int) -> str:
    """Return a label's text; on a narrow terminal the parts that fit on a line."""
    parts = text.split(" · ")
    while width < SCREEN_COLUMNS and len(text) > width - _INDENT and parts[1:]:
        parts.pop()
        text = " · ".join(parts)
    return text


def print_topic(page: Page, topic: str, out: Console) -> None:
    """Print the sections of a topic, also those that files alone show."""
    found = [part for part in page.sections if part.topic == topic and part.has_text]
    out.print(Text(page.headline, style=_colour(page)))
    for section in found:
        _print_section(section, out)
    if topic == "assumptions":
        _print_warnings(page, out)
    elif not found:
        out.print(f"Nothing is told of {topic}.")


def _colour(page: Page) -> str:
    return "bold red" if page.is_failure else "bold green"


def _width(out: Console) -> int:
    return min(out.width, SCREEN_COLUMNS)


def _print_indented(grid: Grid, out: Console) -> None:
    out.print()
    out.print(Padding(grid, (0, 0, 0, 2), expand=False), width=_width(out))


def _print_instead(table: Table, out: Console) -> None:
    """Print the other ways, the chosen one marked, in the columns that fit."""
    rows = table.rows[:MOST_ROWS]
    columns = table.shown
    marks = ["> " if table.style(row) == "best" else "  " for row in rows]
    while True:
        grid = Grid(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
        for index, column in enumerate(columns):
            lead = "  " if index == 0 else ""
            heading = f"{lead}{column.heading}"
            grid.add_column(heading, justify=column.justify, no_wrap=True)
        for mark, row in zip(marks, rows, strict=True):
            texts = [escape(column.text(row)) for column in columns]
            grid.add_row(mark + texts[0], *texts[1:], style=_STYLES[table.style(row)])
        unbounded = out.options.update(max_width=_WIDEST)
        grid.width = grid.__rich_measure__(out, unbounded).maximum
        leaving = [column.leaves for column in columns if column.leaves]
        if grid.width <= _width(out) or not leaving:
            break
        columns = [column for column in columns if column.leaves != min(leaving)]
    out.print()
    out.print(grid, crop=False)


def print_page(page: Page, out: Console) -> None:
    """Print the headline, the sections that are no details, and the warnings."""
    gap = "   " if page.answer is None else "\n"
    about = f"{gap}{page.about}" if page.about else ""
    out.print(Text(page.headline, style=_colour(page)) + Text(about, style="bold"))
    if page.lead:
        out.print(Text(page.lead))
    for section in page.sections:
        if section.only != FILES:
            _print_section(section, out)
    _print_warnings(page, out)


def _print_warnings(page: Page, out: Console) -> None:
    for text in page.to_check:
        out.print(Text("warning: ", style="yellow") + Text(text))


def _print_section(section: Section, out: Console) -> None:
    if not section.has_text:
        return
    out.print()
    if section.command:
        out.print(section.heading.lower(), style="dim")
        out.print(Text(section.command), soft_wrap=True)  # to the letter: no emoji
    elif section.topic and section.heading:
        out.print(Text(section.heading, style="bold"))
    for table in section.full_tables:
        _print_table(table, out)
    if section.known_facts:
        _print_facts(section.known_facts, out)
    for note in section.notes:
        out.print(Text(note, style="dim"))


def _print_facts(facts: list[Fact], out: Console) -> None:
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for label, text in facts:
        grid.add_row(label, escape(text))
    out.print(grid)


def _print_table(table: Table, out: Console) -> None:
    """Print a table, without the columns that leave where they do not fit."""
    columns, left_out = table.shown, list[str]()
    unbounded = out.options.update(max_width=_WIDEST)
    while True:
        drawn = _drawn(table, columns)
        drawn.width = drawn.__rich_measure__(out, unbounded).maximum
        leaving = [index for index, column in enumerate(columns) if column.leaves]
        if drawn.width <= out.width or not leaving:
            break
        # The last of equals is further from what the row is about.
        index = min(leaving, key=lambda index: (columns[index].leaves, -index))
        left_out.append(columns[index].heading)
        columns = columns[:index] + columns[index + 1 :]
    if any(column.is_wide for column in columns):  # these may wrap
        drawn.width = min(drawn.width or out.width, out.width)
    out.print(drawn, crop=False)  # a figure that is cut is another one
    left = 0 if table.is_whole else len(table.rows) - OPEN_ROWS
    more = f"… and {left:,} more rows; --out writes all" if left > 0 else ""
    narrow = ""
    if left_out:
        narrow = f"too narrow for {', '.join(left_out)}; --format csv has all columns"
    for note in filter(None, (more, narrow, table.note)):
        out.print(Text(f"  {note}", style="dim"))


def _drawn(table: Table, columns: list[Column]) -> Grid:
    grid = Grid(box=None, padding=(0, 1), header_style="dim")
    for column in columns:
        grid.add_column(
            column.heading, justify=column.justify, no_wrap=not column.is_wide
        )
    for row in table.rows if table.is_whole else table.rows[:OPEN_ROWS]:
        texts = (escape(column.text(row)) for column in columns)
        grid.add_row(*texts, style=_STYLES[table.style(row)])
    return grid
