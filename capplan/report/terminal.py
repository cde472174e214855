"""Results on the terminal: the result first, then cost, candidates and warnings."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from capplan.planning.result import Candidate, Plan
from capplan.planning.run import Run
from capplan.report import answer
from capplan.report.bill import STARRED, bill
from capplan.report.columns import (
    SHOWN,
    TEXT_COLUMNS,
    format_fine_usd,
    format_share,
)
from capplan.report.run_values import METRICS, STATISTICS
from capplan.units import format_duration

PIPED_WIDTH = 120
"""Columns when the output is not a terminal, so that tables do not wrap."""

_NARROW = ("ttft_p99_s", "tpot_p99_s", "slo_attainment")


def console(width: int | None = None) -> Console:
    """Return a console as wide as the terminal, or ``PIPED_WIDTH`` in a pipe."""
    made = Console(width=width, highlight=False)
    if width is None and not made.is_terminal:
        return Console(width=PIPED_WIDTH, highlight=False)
    return made


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Show the step in progress on a terminal's standard error; else nothing."""
    shown = Console(stderr=True, highlight=False)
    if not shown.is_terminal:
        yield lambda text: None
        return
    with shown.status("starting") as status:
        yield lambda text: status.update(escape(text))


@contextmanager
def request_progress() -> Iterator[Callable[[int, int | None], None] | None]:
    """Show on a terminal the requests that have arrived, their rate, the time left.

    Yields a function of the requests that have arrived and, where known, of all.
    """
    shown = Console(stderr=True)
    if not shown.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    text = TextColumn("{task.completed:,.0f} requests{task.description}")
    columns = (BarColumn(), text, TimeRemainingColumn())
    with Progress(*columns, console=shown, transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(arrived: int, of: int | None) -> None:
            speed = bar.tasks[task].speed  # None until two updates were seen
            rate = "" if speed is None else f", {speed:,.0f}/s"
            bar.update(task, completed=arrived, total=of, description=rate)

        yield show


def print_plan(plan: Plan, out: Console) -> None:
    """Print the best candidate, its cost, all candidates and the warnings."""
    if plan.best is None:
        _print_infeasible(plan, out)
    else:
        _print_answer(plan, plan.best, out)
        _print_costs(plan, plan.best, out)
    _print_candidates(plan, out)
    _print_basis(plan, out)
    print_warnings(plan.warnings, out)


def print_warnings(warnings: tuple[str, ...], out: Console) -> None:
    """Print each warning once."""
    for text in dict.fromkeys(warnings):
        out.print(Text("warning: ", style="yellow") + Text(text))


def print_written(paths: Sequence[Path], out: Console) -> None:
    """Print the paths of the files written."""
    if paths:
        out.print(f"written: {', '.join(map(str, paths))}", soft_wrap=True)


def _print_answer(plan: Plan, best: Candidate, out: Console) -> None:
    out.print(
        Text(answer.headline(best), style="bold green")
        + Text(f"   {plan.llm} on {best.gpu}", style="bold")
    )
    facts = [
        ("serves", answer.workload(plan)),
        ("within", plan.slo_text),
        ("attained by", answer.attained(plan, best)),
        ("one fewer", answer.proof(best)),
        ("binds", best.binding or ""),
        ("lower bound", answer.gap(best)),
        ("", best.bound_note),
        ("placement", "" if plan.placement is None else str(plan.placement)),
    ]
    fewest = plan.best_by_gpus
    if fewest is not None and fewest.gpu_count != best.gpu_count:
        price = fewest.usd_per_h
        paid = "" if price is None else f", {format_fine_usd(price)} per hour"
        facts.append(
            ("fewest GPUs", f"{answer.headline(fewest)} of {fewest.gpu}{paid}")
        )
    _print_facts(facts, out)


def _print_infeasible(plan: Plan, out: Console) -> None:
    out.print(Text("Infeasible", style="bold red") + Text(f"   {plan.llm}"))
    out.print(Text(plan.infeasible_reason or "No candidate meets the objective."))
    _print_facts(
        [
            ("asked", answer.workload(plan)),
            ("within", f"{plan.slo_text} for {format_share(plan.attainment)}"),
        ],
        out,
    )


def _print_facts(facts: list[tuple[str, str]], out: Console) -> None:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for label, text in facts:
        if text:
            grid.add_row(label, escape(text))
    out.print(grid)
    out.print()


def _print_costs(plan: Plan, best: Candidate, out: Console) -> None:
    lines = bill(plan)
    if not lines or best.price is None:
        out.print(
            f"No price is known for {escape(best.gpu)}; "
            f"--price {escape(best.gpu)}=USD_PER_HOUR gives one.\n"
        )
        return
    grid = Table.grid(padding=(0, 1))
    grid.add_column(style="dim", no_wrap=True, min_width=12)
    for _ in range(3):
        grid.add_column(justify="right", no_wrap=True)
    for line in lines:
        grid.add_row(
            line.what, line.quantity_text, line.unit_price_text, line.amount_text
        )
    out.print(grid)
    price = best.price
    dated = f", {price.as_of}" if price.as_of else ""
    noted = f"; {price.note}" if price.note else ""
    out.print(Text(f"price: {price.source}{dated}{noted}", style="dim"))
    if any(line.estimated for line in lines):
        out.print(Text(STARRED, style="dim"))
    out.print()


def _print_candidates(plan: Plan, out: Console) -> None:
    columns = [
        column for column in SHOWN if out.width >= 116 or column.name not in _NARROW
    ]
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for column in columns:
        side: JustifyMethod = "left" if column.name in TEXT_COLUMNS else "right"
        table.add_column(column.heading, justify=side, no_wrap=True)
    for row in plan.candidates:
        style = (
            "bold" if row is plan.best else "" if row.status == "feasible" else "dim"
        )
        table.add_row(*(escape(column.text(row)) for column in columns), style=style)
    out.print(table)
    for row in plan.candidates if plan.best is not None else ():
        reason = row.pruned_reason if row.status == "pruned" else row.infeasible_reason
        if row.status != "feasible" and reason:
            out.print(Text(f"  {answer.name(row)} {row.status}: {reason}", style="dim"))
    out.print()


def _print_basis(plan: Plan, out: Console) -> None:
    best = plan.best
    router = plan.router if best is None else best.router or plan.router
    if best is not None and best.profile_note:
        out.print(Text(f"latency: {best.profile_note}", style="dim"))
    out.print(
        Text(
            f"simulated {plan.request_count:,} requests of {plan.trace_source}, over "
            f"{format_duration(plan.duration_s)}, router {router}, "
            f"seed {plan.seed}, in {format_duration(plan.runtime_s)}",
            style="dim",
        )
    )


def print_run(run: Run, out: Console) -> None:
    """Print a deployment's attainment, latencies, use and warnings."""
    from capplan.report.write_run import run_facts

    on = f"   {run.gpu}" if run.gpu else ""
    out.print(Text(str(run.deployment) + on, style="bold"))
    _print_facts(run_facts(run), out)
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("")
    for heading in STATISTICS:
        table.add_column(heading, justify="right", no_wrap=True)
    for metric, label in METRICS.items():
        values = run.judgement.percentiles[metric]
        table.add_row(label, *(format_duration(value) for value in values))
    out.print(table)
    print_warnings(run.warnings, out)
