"""Results on the terminal: the result first, then cost, candidates and warnings."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from capplan.planning.classes import ClassResult
from capplan.planning.launch import Launch
from capplan.planning.result import Candidate, Plan
from capplan.report import answer, class_columns
from capplan.report.bill import STARRED, bill, line_texts
from capplan.report.columns import SHOWN, format_fine_usd
from capplan.report.tables import plain_table
from capplan.units import format_duration

PIPED_WIDTH = 120
"""Columns when the output is not a terminal, so that tables do not wrap."""

_ALL_COLUMNS_WIDTH = 116
_NARROW = ("ttft_p99_s", "tpot_p99_s", "slo_attainment")
"""Columns that a narrower terminal leaves out."""
_NARROW_CLASSES = ("counted_request_count",)
"""The same, of the table of classes."""


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


def print_facts(facts: Iterable[tuple[str, str]], out: Console) -> None:
    """Print labels with their texts; leave out those without a text."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for label, text in facts:
        if text:
            grid.add_row(label, escape(text))
    out.print(grid)
    out.print()


def print_warnings(warnings: Iterable[str], out: Console) -> None:
    """Print each warning once."""
    for text in dict.fromkeys(warnings):
        out.print(Text("warning: ", style="yellow") + Text(text))


def print_written(paths: Sequence[Path], out: Console) -> None:
    """Print the paths of the files written."""
    if paths:
        paths_text = escape(", ".join(map(str, paths)))
        out.print(f"written: {paths_text}", soft_wrap=True)


def print_plan(plan: Plan, out: Console) -> None:
    """Print the best candidate, its cost, all candidates and the warnings."""
    if plan.best is None:
        _print_infeasible(plan, out)
    else:
        _print_best(plan, plan.best, out)
        _print_costs(plan, plan.best, out)
    _print_candidates(plan, out)
    _print_basis(plan, out)
    print_warnings(plan.warnings, out)


def _print_best(plan: Plan, best: Candidate, out: Console) -> None:
    assert best.run is not None
    out.print(
        Text(answer.headline(best), style="bold green")
        + Text(f"   {plan.llm} on {best.gpu}", style="bold")
    )
    facts = [
        ("engine", answer.versions(best)),
        ("uncertain", answer.doubts(best)),
        ("serves", answer.workload(plan)),
        ("within", plan.slo_text),
        ("attained by", answer.attained(best.run.judgement, plan.attainment_text)),
        ("load", answer.load(best.run.judgement)),
        ("one fewer", answer.proof(best)),
        ("real engines", answer.engines(best)),
        ("binds", best.binding or ""),
        ("prefix cache", answer.caching(plan)),
        ("lower bound", answer.lower_bound(best)),
        ("", best.bound_note),
        ("placement", "" if plan.placement is None else str(plan.placement)),
    ]
    fewest = plan.best_by_gpus
    if fewest is not None and fewest.gpu_count != best.gpu_count:
        facts.append(("fewest GPUs", _priced(fewest)))
    estimate = plan.best_estimated
    if estimate is not None and estimate is not best:
        facts.append(("uncertain", f"{_priced(estimate)}: {answer.doubts(estimate)}"))
    print_facts(facts, out)
    print_classes(best.classes, out)
    print_launch(best.launch, out)


def print_classes(classes: tuple[ClassResult, ...], out: Console) -> None:
    """Print what each class attains; nothing where there is one class."""
    if not classes:
        return
    wide = out.width >= _ALL_COLUMNS_WIDTH
    columns = [
        column
        for column in class_columns.SHOWN
        if wide or column.name not in _NARROW_CLASSES
    ]
    table = plain_table(
        ((column.heading, column.justify) for column in columns), no_wrap=False
    )
    for row in class_columns.shown(classes):
        table.add_row(*(escape(column.text(row)) for column in columns))
    out.print(table)
    if note := class_columns.note(classes):
        out.print(Text(f"  {note}", style="dim"))
    out.print()


def print_launch(launch: Launch | None, out: Console) -> None:
    """Print the command that starts a replica, on one line however long, to copy."""
    if launch is None:
        return
    if launch.words:
        out.print("start each replica with", style="dim")
        out.print(Text(launch.line), soft_wrap=True)  # to the letter: no emoji
    for note in launch.notes:
        out.print(Text(note, style="dim"))
    out.print()


def _priced(candidate: Candidate) -> str:
    usd = candidate.usd_per_h
    price = "" if usd is None else f", {format_fine_usd(usd)} per hour"
    return f"{answer.headline(candidate)} of {candidate.gpu}{price}"


def _print_infeasible(plan: Plan, out: Console) -> None:
    headline = plan.status.capitalize()
    out.print(Text(headline, style="bold red") + Text(f"   {plan.llm}"))
    out.print(Text(plan.infeasible_reason or "No candidate meets the objective."))
    objective = f"{plan.slo_text}; asked {plan.attainment_text}"
    print_facts([("asked", answer.workload(plan)), ("within", objective)], out)


def _print_costs(plan: Plan, best: Candidate, out: Console) -> None:
    lines, price = bill(plan), best.price
    if not lines or price is None:
        gpu = escape(best.gpu)
        out.print(
            f"No price is known for {gpu}; set one with --price {gpu}=USD_PER_H.\n"
        )
        return
    grid = Table.grid(padding=(0, 1))
    grid.add_column(style="dim", no_wrap=True, min_width=12)
    for _ in range(3):
        grid.add_column(justify="right", no_wrap=True)
    for line in lines:
        grid.add_row(line.what, *line_texts(line))
    out.print(grid)
    date = f", {price.as_of}" if price.as_of else ""
    note = f"; {price.note}" if price.note else ""
    out.print(Text(f"price: {price.source}{date}{note}", style="dim"))
    if any(line.estimated for line in lines):
        out.print(Text(STARRED, style="dim"))
    out.print()


def _print_candidates(plan: Plan, out: Console) -> None:
    wide = out.width >= _ALL_COLUMNS_WIDTH
    columns = [column for column in SHOWN if wide or column.name not in _NARROW]
    table = plain_table((column.heading, column.justify) for column in columns)
    for row in plan.candidates:
        style = (
            "bold" if row is plan.best else "" if row.status == "feasible" else "dim"
        )
        table.add_row(*(escape(column.text(row)) for column in columns), style=style)
    out.print(table)
    for row, doubts in answer.uncertain(plan):
        out.print(Text(f"  {answer.name(row)} uncertain: {doubts}", style="dim"))
    # The reason of an infeasible plan lists these already.
    for row, reason in answer.reasons(plan) if plan.best is not None else ():
        out.print(Text(f"  {answer.name(row)} {row.status}: {reason}", style="dim"))
    out.print()


def _print_basis(plan: Plan, out: Console) -> None:
    best = plan.best
    router = plan.router if best is None else best.router or plan.router
    if best is not None and best.profile_note:
        out.print(Text(f"latency: {best.profile_note}", style="dim"))
    scheduler = ""
    if best is not None and best.engine is not None:
        scheduler = f"scheduler {best.engine.scheduler}, "
    counted = ""
    if best is not None and best.run is not None:
        counted = f"; {answer.counted(best.run.judgement, plan.request_count)}"
    out.print(
        Text(
            f"simulated {plan.request_count:,} requests of {plan.trace_source}, over "
            f"{format_duration(plan.duration_s)}{counted}; {scheduler}router {router}, "
            f"seed {plan.seed}, in {format_duration(plan.runtime_s)}",
            style="dim",
        )
    )
