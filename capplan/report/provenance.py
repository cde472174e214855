"""What made a report: the version, the day and the command line."""

import shlex
from collections.abc import Sequence
from contextvars import ContextVar

from capplan.shipped import own_version
from capplan.today import current_day

_arguments: ContextVar[tuple[str, ...]] = ContextVar("arguments", default=())


def note_arguments(arguments: Sequence[str]) -> None:
    """Keep the arguments of the command line for what it will write."""
    _arguments.set(tuple(arguments))


def made_by() -> str:
    """Return version, day and command line; from Python, without one."""
    words = [f"capplan {own_version()}", current_day().isoformat()]
    if _arguments.get():
        words.append(shlex.join(("capplan", *_arguments.get())))
    return " · ".join(words)
