"""A page as Markdown, to paste into a review or a document; without charts."""

import re

from capplan.report.alike import merged
from capplan.report.page import TERMINAL, Page, Section, Table


def markdown(page: Page) -> str:
    """Return a page as Markdown; no text of it is taken as markup."""
    lines = [f"# {_plain(page.headline)}", ""]
    lines += [_plain(text) + "\n" for text in (page.about, page.lead) if text]
    for tile in page.tiles:
        small = f" ({_plain(tile.small)})" if tile.small else ""
        lines.append(f"- **{_plain(tile.label)}**: {_plain(tile.text)}{small}")
    lines += [f"> {_plain(text)}\n>" for text in merged(page.warnings)]
    for section in page.sections:
        lines += [] if section.only == TERMINAL else _section(section)
    if page.files:
        lines += ["", f"The same numbers are in {page.files}."]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def _section(section: Section) -> list[str]:
    lines: list[str] = []
    if section.command:
        ticks = max(map(len, re.findall("`+", section.command)), default=0)
        fence = "`" * max(3, ticks + 1)
        lines += [f"{fence}sh", section.command, fence, ""]
    for table in section.full_tables:
        lines += _table(table)
    for label, text in section.known_facts:
        lines.append(f"- {_plain(label)}: {_plain(text)}" if label else _plain(text))
    lines += ["", *(f"{_plain(note)}\n" for note in section.notes)]
    if not any(lines):
        return []
    if section.is_folded:
        summary = f"<details><summary>{section.heading}</summary>"
        return ["", summary, "", *lines, "", "</details>"]
    return ["", f"## {section.heading}" if section.heading else "", "", *lines]


def _table(table: Table) -> list[str]:
    def row(cells: list[str]) -> str:
        return f"| {' | '.join(cells)} |"

    lines = [f"### {_plain(table.title)}", ""] if table.title else []
    rules = ["---" if c.justify == "left" else "---:" for c in table.shown]
    lines += [row([_plain(column.heading) for column in table.shown]), row(rules)]
    lines += [row([_plain(c.text(one)) for c in table.shown]) for one in table.rows]
    return [*lines, "", *([_plain(table.note), ""] if table.note else [])]


def _plain(text: str) -> str:
    """Return a text on one line, with what Markdown would take as markup escaped."""
    return re.sub(r"([\\`*_\[\]<>|#&~])", r"\\\1", " ".join(text.split()))
