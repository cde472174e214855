"""What made a report, and makes it again: version, day and command line."""

import shlex
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from capplan.shipped import own_version
from capplan.today import current_day

if TYPE_CHECKING:  # the command line notes its arguments before it imports pages
    from capplan.report.page import Page

VERIFIED = ("plan", "autoscale", "budget")
"""Pages whose JSON ``capplan verify`` takes."""

_arguments: ContextVar[tuple[str, ...]] = ContextVar("arguments", default=())


def note_arguments(arguments: Sequence[str]) -> None:
    """Keep the arguments of the command line for what it will write."""
    _arguments.set(tuple(arguments))


def command_line() -> str:
    """Return the command line; empty from Python."""
    words = _arguments.get()
    return shlex.join(("capplan", *words)) if words else ""


def made_by() -> str:
    """Return version, day and command line; from Python, without one."""
    words = [f"capplan {own_version()}", current_day().isoformat(), command_line()]
    return " · ".join(filter(None, words))


def quoted(folder: str | Path, name: str) -> str:
    """Return a file of a folder for a command line; from Python, beside the page."""
    return shlex.quote(str(Path(folder if command_line() else "", name)))


def repeated(page: "Page", folder: str | Path = "") -> str:
    """Return the commands that make a page again and verify its file in a folder.

    From Python only the latter, of the file beside the page.
    """
    lines = [command_line()]
    if page.name in VERIFIED and not page.is_failure and not page.is_alone:
        lines.append(f"capplan verify {quoted(folder, f'{page.name}.json')}")
    return "\n".join(filter(None, lines))
