"""A page as Markdown, to paste into a review or a document; without charts."""

import re
from collections.abc import Iterable, Sequence

from capplan.report.page import HEADINGS, MOST_CHECKS, Answer, Page, Section, Table
from capplan.report.provenance import repeated


def markdown(page: Page) -> str:
    """Return a page as Markdown; no text of it is taken as markup."""
    lines = [plain(text) + "\n" for text in (page.about, page.lead) if text]
    if page.answer is not None:
        lines += [*_answer(page.answer), *_checks(page.to_check)]
    if page.answer is None:
        lines += [f"> {plain(text)}\n>" for text in page.to_check]
    for section in page.sections:
        lines += _section(section)
    if page.answer is not None:
        lines += _section(Section("Repeat it", command=repeated(page)))
    if page.files:
        lines += ["", f"The same numbers are in {page.files}."]
    return _joined(page, lines)


def brief(page: Page) -> str:
    """Return the first screen of a page, for a pull request or a wiki."""
    lines = [plain(page.about) + "\n"] if page.about else []
    if page.answer is not None:
        lines += _answer(page.answer)
    lines += _checks(page.to_check[:MOST_CHECKS])
    if page.to_check[MOST_CHECKS:]:
        left = len(page.to_check) - MOST_CHECKS
        lines.append(f"{left:,} more are in report.md.")
    return _joined(page, lines + _section(Section("Repeat it", command=repeated(page))))


def _joined(page: Page, lines: Iterable[str]) -> str:
    text = "\n".join([f"# {plain(page.headline)}", "", *lines])
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"


def _answer(answer: Answer) -> list[str]:
    """Return the labels, and the other ways with what their signs mean."""
    rows = [(HEADINGS[name], said.text) for name, said in answer.said if said.text]
    lines = [f"- **{label}** {plain(text)}" for label, text in rows]
    if answer.instead is not None:
        lines += ["", *_table(answer.instead)]
    return [*lines, plain(" · ".join(answer.marks)), ""]


def _checks(texts: Sequence[str]) -> list[str]:
    lines = [f"- {plain(text)}" for text in texts]
    return ["", "## Before you sign", "", *lines, ""] if lines else []


def _section(section: Section) -> list[str]:
    lines: list[str] = []
    if section.command:
        ticks = max(map(len, re.findall("`+", section.command)), default=0)
        fence = "`" * max(3, ticks + 1)
        lines += [f"{fence}sh", section.command, fence, ""]
    for table in section.full_tables:
        lines += _table(table)
    for label, text in section.known_facts:
        lines.append(f"- {plain(label)}: {plain(text)}" if label else plain(text))
    lines += ["", *(f"{plain(note)}\n" for note in section.notes)]
    if not any(lines):
        return []
    if section.is_folded:
        summary = f"<details><summary>{section.heading}</summary>"
        return ["", summary, "", *lines, "", "</details>"]
    return ["", f"## {section.heading}" if section.heading else "", "", *lines]


def _table(table: Table) -> list[str]:
    def row(cells: list[str]) -> str:
        return f"| {' | '.join(cells)} |"

    lines = [f"### {plain(table.title)}", ""] if table.title else []
    rules = ["---" if c.justify == "left" else "---:" for c in table.shown]
    lines += [row([plain(column.heading) for column in table.shown]), row(rules)]
    lines += [row([plain(c.text(one)) for c in table.shown]) for one in table.rows]
    return [*lines, "", *([plain(table.note), ""] if table.note else [])]


def plain(text: str) -> str:
    """Return a text on one line, with what Markdown would take as markup escaped."""
    return re.sub(r"([\\`*_\[\]<>|#&~])", r"\\\1", " ".join(text.split()))
