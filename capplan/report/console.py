"""The terminal: its width, and progress while work goes on."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment

from capplan.input_file import printable
from capplan.units import format_duration

if TYPE_CHECKING:
    from capplan.planning.evaluate.inputs import Progress

PIPED_WIDTH = 120
"""Columns when the output is not a terminal, so that tables do not wrap."""

LINE_EVERY_S = 10.0
"""Time between two lines of progress where standard error is no terminal. [s]"""


class _PlainConsole(Console):
    """A console that prints no control character of a text, only those of its own."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments of what is printed."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(printable(text), style)


def console(**options: Any) -> Console:
    """Return a console as wide as the terminal, or ``PIPED_WIDTH`` in a pipe."""
    out = _PlainConsole(highlight=False, **options)
    if out.is_terminal or options:
        return out
    return _PlainConsole(width=PIPED_WIDTH, highlight=False)


class Remaining:
    """Estimate the time that is left from the shares seen so far."""

    def __init__(self, now_s: Callable[[], float] | None = None) -> None:
        self._now_s = now_s or time.monotonic
        self._first: tuple[float, float] | None = None  # [s], share

    def text(self, share: float | None) -> str:
        """Return percentage and time left; empty where the share is not known.

        The time is that of the share done since the first known one, at the same pace:
        for shares of what is alike. Once all is done what follows is not known.
        """
        if share is None or share >= 1:
            return ""
        now_s = self._now_s()
        self._first = self._first or (now_s, share)
        first_s, first = self._first
        if share <= first:
            return percent(share)
        left_s = (now_s - first_s) * (1 - share) / (share - first)
        left = format_duration(max(left_s, 1.0))
        return f"{percent(share)[:-1]}, about {left} left)"


def percent(share: float | None) -> str:
    """Return a share of steps; empty where it is not known, or no end of the work.

    Rounded down: nothing says 100 % while it goes on. Without the time left, as steps
    differ in length.
    """
    return "" if share is None or share >= 1 else f" ({int(100 * share)}%)"


@contextmanager
def progress(*, quiet: bool = False) -> Iterator["Progress"]:
    """Show the current step on standard error, with the share of them that is done.

    A terminal shows one line that changes; elsewhere a line is printed now and then.
    """
    err = console(stderr=True)
    if quiet:
        # Imported here: a list is printed without the simulator.
        from capplan.planning.evaluate.inputs import unseen

        yield unseen
    elif err.is_terminal:
        with err.status("starting") as status:
            yield lambda step, share=None: status.update(escape(step + percent(share)))
    else:
        print_line = line_printer(err)
        yield lambda step, share=None: print_line(step + percent(share))


def line_printer(err: Console) -> Callable[[str], None]:
    """Return what prints a line, where the last one is ``LINE_EVERY_S`` ago."""
    last_s = time.monotonic()

    def print_line(text: str) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if now_s - last_s >= LINE_EVERY_S:
            last_s = now_s
            err.print(f"capplan: {text}", markup=False, soft_wrap=True)

    return print_line


@contextmanager
def request_progress(
    *, quiet: bool = False
) -> Iterator[Callable[[int, int | None], None] | None]:
    """Show arrived requests with their rate, their share and the time left.

    Yields a function of the arrived requests and their total, None where unknown;
    yields None where there is nothing to show.
    """
    err = console(stderr=True)
    if quiet:
        yield None
        return
    if not err.is_terminal:
        print_line, remaining = line_printer(err), Remaining()

        def print_arrived(arrived: int, total: int | None) -> None:
            share = arrived / total if total else None
            print_line(f"{arrived:,} requests{remaining.text(share)}")

        yield print_arrived
        return
    # Imported here: most commands draw no bar.
    from rich import progress as bars

    arrivals = bars.TextColumn("{task.completed:,.0f} requests{task.description}")
    columns = bars.BarColumn(), bars.TaskProgressColumn(), arrivals
    left = bars.TimeRemainingColumn()
    with bars.Progress(*columns, left, console=err, transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(arrived: int, total: int | None) -> None:
            speed = bar.tasks[task].speed  # None before the second update
            rate = "" if speed is None else f", {speed:,.0f}/s"
            if total is not None and arrived >= total:  # what follows takes its time
                bar.tasks[task].total = total = None
            bar.update(task, completed=arrived, total=total, description=rate)

        yield show
