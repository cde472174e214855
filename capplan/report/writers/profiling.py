"""The progress and results of profiling, or the points of a dry run, as lines."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich import progress as bars

from capplan.profiling.expected import ExpectedRun
from capplan.profiling.runner import Measured, OnProgress
from capplan.report.console import Remaining, console, line_printer
from capplan.units import format_duration


@contextmanager
def profiling_progress(
    degrees: Iterable[int], *, quiet: bool = False
) -> Iterator[OnProgress]:
    """Show a bar per TP degree on standard error."""
    if quiet:
        yield lambda tp, done, total, activity: None
        return
    err = console(stderr=True)
    if not err.is_terminal:
        yield _lines_of(degrees, line_printer(err))
        return
    columns = (
        bars.TextColumn("TP {task.fields[tp]}"),
        bars.BarColumn(),
        bars.TimeElapsedColumn(),
        bars.TextColumn("left"),
        bars.TimeRemainingColumn(),
        bars.TextColumn("{task.description}"),
    )
    with bars.Progress(*columns, console=err) as bar:
        tasks = {tp: bar.add_task("waits", tp=tp, total=None) for tp in degrees}

        def show(tp: int, done: float, total: float, activity: str) -> None:
            bar.update(
                tasks[tp], completed=done, total=total or None, description=activity
            )

        yield show


def _lines_of(degrees: Iterable[int], print_line: Callable[[str], None]) -> OnProgress:
    """Return what prints a line of a TP degree now and then."""
    remaining = {tp: Remaining() for tp in degrees}

    def show(tp: int, done: float, total: float, activity: str) -> None:
        share = done / total if total else None
        print_line(f"TP {tp}: {activity}{remaining[tp].text(share)}")

    return show


def print_notes(runs: Iterable[Measured]) -> None:
    """Print counts of points and failures on standard error."""
    out = console(stderr=True, markup=False)
    for measured in runs:
        name = f"{measured.llm} on {measured.gpu}, TP {measured.tp}"
        for points, reason in measured.skipped:
            out.print(f"{name}: left out: {points}: {reason}")
        if measured.failure:
            out.print(f"{name}: failed: {measured.failure}")
            out.print(f"  remedy: {measured.advice}")
            out.print(f"  log: {measured.log_path}")
            continue
        noisy = f", {measured.noisy_count} noisy" if measured.noisy_count else ""
        out.print(f"{name}: {measured.point_count} points{noisy}")
        if measured.profile_path is None:
            out.print(f"{name}: no profile: {measured.refusal}")


def expected_lines(runs: Iterable[ExpectedRun]) -> Iterator[str]:
    """Yield the points of each TP degree and their expected time."""
    for run in runs:
        for point in run.plan.points:
            yield f"TP {run.tp}: {point}"
        for skipped in run.plan.skipped:
            yield f"TP {run.tp}: left out: {skipped.what}: {skipped.reason}"
        yield (
            f"TP {run.tp}: {len(run.plan.points)} points, {run.rounds} rounds, about "
            f"{format_duration(run.expected_s)} and the engine's start"
        )
