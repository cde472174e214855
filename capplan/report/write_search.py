"""Write a comparison of TP degrees on the terminal, as JSON and as CSV."""

import math

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from capplan.planning.search import Search
from capplan.report.columns import DASH, field_column, format_count, format_fine_usd
from capplan.report.tables import csv_text, plain_table
from capplan.report.terminal import print_warnings
from capplan.report.write_json import plain, render
from capplan.units import format_duration

SCHEMA = "capplan.search/1"


def _positive(count: float) -> str:
    """Return a count; a dash for the zeros of a row that cannot serve."""
    return format_count(count) if count else DASH


COLUMNS = (
    field_column("gpu", "GPU", justify="left"),
    field_column("tp", "TP"),
    field_column("kv_batch", "batch KV holds", _positive),
    field_column("tpot_batch", "batch in TPOT", _positive),
    field_column("batch", "batch", _positive),
    field_column("iteration_s", "iteration", format_duration),
    field_column("tokens_per_s_per_gpu", "tokens/s per GPU", _positive),
    field_column("usd_per_million_output_tokens", "$ per Mtok out", format_fine_usd),
    field_column("binding", "binds", justify="left"),
)


def print_search(search: Search, out: Console) -> None:
    """Print the choice with its reason, then the table."""
    comparison = search.found
    best, cheapest = comparison.best, comparison.best_by_usd
    if best is None:
        out.print(Text(f"None can serve {search.llm}.", style="bold red"))
    else:
        out.print(Text(f"{best.gpu} TP {best.tp}   {search.llm}", style="bold green"))
    out.print(Text(comparison.reason))
    if cheapest is not None and cheapest is not best:
        usd = cheapest.usd_per_million_output_tokens
        price = "" if usd is None else f" at {format_fine_usd(usd)} per million"
        out.print(
            Text(f"cheapest output tokens: {cheapest.gpu} TP {cheapest.tp}{price}")
        )
    out.print()
    _print_rows(search, out)
    tpot_s = comparison.slo_tpot_s
    limited = math.isfinite(tpot_s)
    limit = f"TPOT ≤ {format_duration(tpot_s)}" if limited else "no TPOT limit"
    out.print(
        Text(
            f"\nfor a mean context of {comparison.context_tokens:,.0f} tokens and "
            f"{limit}; decode at a steady full batch only: `capplan plan` simulates "
            "prefill and queueing",
            style="dim",
        )
    )
    if best is not None:
        note = search.profile_notes[f"{best.gpu} TP {best.tp}"]
        out.print(Text(f"latency: {note}", style="dim"))
    print_warnings(search.warnings, out)


def _print_rows(search: Search, out: Console) -> None:
    # Headings are long: let them wrap on a narrow terminal.
    table = plain_table(((c.heading, c.justify) for c in COLUMNS), no_wrap=False)
    best = search.found.best
    for row in search.found.rows:
        style = "bold" if row is best else "dim" if row.infeasible_reason else ""
        table.add_row(*(escape(column.text(row)) for column in COLUMNS), style=style)
    out.print(table)
    for row in search.found.rows:
        if row.infeasible_reason:
            out.print(Text(f"  {row.gpu} TP {row.tp}: {row.infeasible_reason}"))
    for excluded in search.excluded:
        reason = f"  {excluded.gpu} TP {excluded.tp}: {excluded.reason}"
        out.print(Text(reason, style="dim"))


def search_json(search: Search) -> str:
    """Return the comparison as JSON."""
    return render({"schema": SCHEMA, **plain(search)}) + "\n"


def search_csv(search: Search) -> str:
    """Return the comparison as CSV, one row per GPU type and TP degree."""
    names = [*(column.name for column in COLUMNS), "infeasible_reason"]
    rows = search.found.rows
    return csv_text(names, ([getattr(row, name) for name in names] for row in rows))
