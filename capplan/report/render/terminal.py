"""A page on the terminal: the answer first, the warnings last."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid
from rich.text import Text

from capplan.report.alike import merged
from capplan.report.columns import Column
from capplan.report.console import console
from capplan.report.page import FILES, Fact, Page, Section, Table

_WIDEST = 1000
"""Columns of the terminal that a table may take."""
_ROWS = 40
"""Rows of a table shown on the terminal."""
_STYLES = {"best": "bold", "fail": "dim", "": ""}


def print_result(page: Page, written: Sequence[Path]) -> None:
    """Print a page on standard output, and the paths of the files written."""
    out = console()
    print_page(page, out)
    if written:
        paths = escape(", ".join(map(str, written)))
        out.print(f"written: {paths}", soft_wrap=True)


def print_page(page: Page, out: Console) -> None:
    """Print the headline, the sections that are no details, and the warnings."""
    colour = "bold red" if page.is_failure else "bold green"
    about = f"   {page.about}" if page.about else ""
    out.print(Text(page.headline, style=colour) + Text(about, style="bold"))
    if page.lead:
        out.print(Text(page.lead))
    for section in page.sections:
        if section.only != FILES:
            _print_section(section, out)
    for text in merged(page.warnings):
        out.print(Text("warning: ", style="yellow") + Text(text))


def _print_section(section: Section, out: Console) -> None:
    if not section.has_text:
        return
    out.print()
    if section.command:
        out.print(section.heading.lower(), style="dim")
        out.print(Text(section.command), soft_wrap=True)  # to the letter: no emoji
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
    left = 0 if table.is_whole else len(table.rows) - _ROWS
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
    for row in table.rows if table.is_whole else table.rows[:_ROWS]:
        texts = (escape(column.text(row)) for column in columns)
        grid.add_row(*texts, style=_STYLES[table.style(row)])
    return grid
