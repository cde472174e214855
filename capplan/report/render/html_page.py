"""A page as one HTML file that opens offline and prints; every text is escaped."""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from capplan.report.page import HEADINGS, MOST_CHECKS, TOPICS, Page, Section, state
from capplan.report.provenance import made_by, quoted, repeated
from capplan.shipped import own_version
from capplan.today import current_day

if TYPE_CHECKING:
    from jinja2 import Environment

_OF_FACT, _OF_CHECK, _OF_COMMAND = 76, 88, 104
"""Letters of a line of the second sheet of paper, in a wide font."""
_LINES = 34
"""Lines of it for why, what to check and the commands; the rest is folded."""
_MOST_FACTS = 6


def html(page: Page, folder: str | Path = "") -> str:
    """Return a page as a self-contained HTML file, which will lie in a folder."""
    day = current_day()
    return (
        _templates()
        .get_template("page.html.j2")
        .render(
            page=page,
            labels=HEADINGS,
            version=f"capplan {own_version()}",
            day=f"{day.day} {day:%B %Y}",
            made_by=made_by(),
            topics=_by_topic(page),
            plan_file=quoted(folder, "plan.json"),
            **_second_sheet(page, folder),
        )
    )


@cache
def _templates() -> "Environment":
    """Return the templates, which keep what they have compiled."""
    # Imported here: only commands that write a page wait for it.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"breaking": _breaking, "state": state}
    return templates


def _by_topic(page: Page) -> list[tuple[str, list[Section]]]:
    """Return the sections to show with their topics, in the order of these."""
    shown = [part for part in page.sections if part.has_text or part.drawn]
    if page.answer is None:
        return [("", shown)]
    topics = {**TOPICS, "": "more"}.items()
    rows = [(text, [x for x in shown if x.topic == name]) for name, text in topics]
    return [row for row in rows if row[1]]


def _second_sheet(page: Page, folder: str | Path) -> dict[str, Any]:
    """Return why, what to check and the commands, as much as a sheet of paper holds."""
    parts = [x for x in page.sections if x.topic == "count" and x.known_facts]
    commands = repeated(page, folder)
    left = _LINES - sum(_lines(line, _OF_COMMAND) for line in commands.splitlines())
    if page.panel is not None:
        left -= 2 * len(page.panel.choices) + 3 * len(page.panel.fixed)
    checks = _fitting(page.to_check[:MOST_CHECKS], _OF_CHECK, left // 2)
    checks = checks or page.to_check[:1]
    left -= sum(_lines(text, _OF_CHECK) for text in checks)
    facts = [fact for part in parts for fact in part.known_facts][:_MOST_FACTS]
    count = len(_fitting([text for _, text in facts], _OF_FACT, left))
    return {
        "why": parts[0].heading if parts else "",
        "facts": facts[:count],
        "checks": checks,
        "commands": commands,
    }


def _lines(text: str, letters: int) -> int:
    return len(wrap(text, letters))


def _fitting(texts: Sequence[str], letters: int, lines: int) -> Sequence[str]:
    """Return the first texts that fit in as many lines."""
    used = 0
    for count, text in enumerate(texts):
        used += _lines(text, letters)
        if used > lines:
            return texts[:count]
    return texts


def _breaking(text: Any) -> Any:
    """Return a text whose lines break behind , and _, but not before a % sign."""
    from markupsafe import Markup, escape

    joined = re.sub(r"(?<=\d) %", "\u00a0%", str(text))
    return Markup(re.sub(r",(?=[^\s\d])|_", r"\g<0><wbr>", str(escape(joined))))
