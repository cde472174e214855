"""A comparison of TP degrees on the terminal, as JSON and as CSV."""

import csv
import io
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from capplan.planning.search import Search, TpRow
from capplan.report.columns import DASH, format_count, format_fine_usd, format_text
from capplan.report.terminal import print_warnings
from capplan.report.write_json import plain, render
from capplan.units import format_duration

SCHEMA = "capplan.search/1"


class SearchColumn(NamedTuple):
    """One column: its name in files, what people read, and how values read."""

    name: str
    heading: str
    show: Callable[[Any], str] = format_count


COLUMNS = (
    SearchColumn("gpu", "GPU", format_text),
    SearchColumn("tp", "TP", format_text),
    SearchColumn("kv_batch", "batch KV holds"),
    SearchColumn("tpot_batch", "batch in TPOT"),
    SearchColumn("batch", "batch"),
    SearchColumn("iteration_s", "iteration", format_duration),
    SearchColumn("tokens_per_s_per_gpu", "tokens/s per GPU"),
    SearchColumn("usd_per_million_output_tokens", "$ per Mtok out", format_fine_usd),
    SearchColumn("binding", "binds", format_text),
)
_TEXTS = frozenset({"gpu", "binding"})


def print_search(search: Search, out: Console) -> None:
    """Print the choice with its reason first, then the table."""
    found = search.found
    if found.best is None:
        out.print(Text(f"None can serve {search.llm}.", style="bold red"))
    else:
        best = found.best
        out.print(Text(f"{best.gpu} TP {best.tp}   {search.llm}", style="bold green"))
    out.print(Text(found.reason))
    cheapest = found.best_by_usd
    if cheapest is not None and cheapest is not found.best:
        usd = cheapest.usd_per_million_output_tokens
        price = "" if usd is None else f" at {format_fine_usd(usd)} per million"
        out.print(
            Text(f"cheapest output tokens: {cheapest.gpu} TP {cheapest.tp}{price}")
        )
    out.print()
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for column in COLUMNS:
        side: JustifyMethod = "left" if column.name in _TEXTS else "right"
        table.add_column(column.heading, justify=side)
    for row in found.rows:
        style = "bold" if row is found.best else "dim" if row.infeasible_reason else ""
        table.add_row(*(escape(_shown(row, column)) for column in COLUMNS), style=style)
    out.print(table)
    for row in found.rows:
        if row.infeasible_reason:
            out.print(Text(f"  {row.gpu} TP {row.tp}: {row.infeasible_reason}"))
    for one in search.excluded:
        out.print(Text(f"  {one.gpu} TP {one.tp}: {one.reason}", style="dim"))
    limit = format_duration(found.slo_tpot_s) if math.isfinite(found.slo_tpot_s) else ""
    within = f", TPOT ≤ {limit}" if limit else ", no TPOT asked"
    out.print(
        Text(
            f"\nfor a mean context of {found.context_tokens:,.0f} tokens{within}; "
            "decode only, at a steady full batch: `capplan plan` simulates the rest",
            style="dim",
        )
    )
    if found.best is not None:
        note = search.profile_notes[f"{found.best.gpu} TP {found.best.tp}"]
        out.print(Text(f"latency: {note}", style="dim"))
    print_warnings(search.warnings, out)


def _shown(row: TpRow, column: SearchColumn) -> str:
    value = getattr(row, column.name)
    missing = value is None or value == "" or (row.infeasible_reason and value == 0)
    return DASH if missing else column.show(value)


def search_json(search: Search) -> str:
    """Return the comparison as JSON."""
    return render({"schema": SCHEMA, **plain(search)}) + "\n"


def search_csv(search: Search) -> str:
    """Return the comparison as CSV: one row per GPU type and TP degree."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    names = [*(column.name for column in COLUMNS), "infeasible_reason"]
    writer.writerow(names)
    for row in search.found.rows:
        cells = [plain(getattr(row, name)) for name in names]
        writer.writerow(["" if cell is None else cell for cell in cells])
    return table.getvalue()
