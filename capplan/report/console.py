"""The terminal: its width, and progress while work goes on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

PIPED_WIDTH = 120
"""Columns when the output is not a terminal, so that tables do not wrap."""


def console() -> Console:
    """Return a console as wide as the terminal, or ``PIPED_WIDTH`` in a pipe."""
    out = Console(highlight=False)
    return out if out.is_terminal else Console(width=PIPED_WIDTH, highlight=False)


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Show the current step on standard error, if that is a terminal."""
    err = Console(stderr=True, highlight=False)
    if not err.is_terminal:
        yield lambda step: None
        return
    with err.status("starting") as status:
        yield lambda step: status.update(escape(step))


@contextmanager
def request_progress() -> Iterator[Callable[[int, int | None], None] | None]:
    """Show a bar of arrived requests with their rate and the time left.

    Yields a function of the arrived requests and their total, None where unknown;
    yields None where standard error is not a terminal.
    """
    err = Console(stderr=True)
    if not err.is_terminal:
        yield None
        return
    # Imported here: most commands draw no bar.
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    arrivals = TextColumn("{task.completed:,.0f} requests{task.description}")
    columns = (BarColumn(), arrivals, TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(arrived: int, total: int | None) -> None:
            speed = bar.tasks[task].speed  # None before the second update
            rate = "" if speed is None else f", {speed:,.0f}/s"
            bar.update(task, completed=arrived, total=total, description=rate)

        yield show
