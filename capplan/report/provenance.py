"""What made a report: the version, the day and the command line."""

import shlex
from collections.abc import Sequence
from contextvars import ContextVar
from importlib.metadata import PackageNotFoundError, version

from capplan.today import current_day

_arguments: ContextVar[tuple[str, ...]] = ContextVar("arguments", default=())


def note_arguments(arguments: Sequence[str]) -> None:
    """Keep the arguments of the command line for what it will write."""
    _arguments.set(tuple(arguments))


def made_by() -> str:
    """Return version, day and command line; from Python, without one."""
    try:
        told = f"capplan {version('capplan')}"
    except PackageNotFoundError:  # a checkout that is not installed
        told = "capplan"
    words = [told, current_day().isoformat()]
    if _arguments.get():
        words.append(shlex.join(("capplan", *_arguments.get())))
    return " · ".join(words)
