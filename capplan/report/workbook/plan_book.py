"""The workbook of a plan: Summary, Assumptions, Candidates, Evidence.

A sheet is a function that adds itself to the book; ``SHEETS`` has them in order.
"""

from collections.abc import Mapping
from datetime import datetime
from string import ascii_uppercase

from capplan.fleet.price import Price
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.money.cost import HOURS_PER_MONTH, HOURS_PER_YEAR
from capplan.planning.plan.result import Plan
from capplan.report.columns import Column
from capplan.report.page import Page
from capplan.report.pages.candidates import COLUMNS
from capplan.report.pages.plan import plan_page
from capplan.report.paid import Paid, paid
from capplan.report.workbook.book import Book, Cell, Formula, Sheet, Value
from capplan.report.workbook.inputs import (
    HEADING,
    RATE,
    Named,
    inputs_of,
    nodes_at,
    price_names,
    write_inputs,
)

_BEFORE = ("gpu", "tp", "status", "replica_count", "gpu_count")
_AFTER: tuple[str, ...] = ("lower_bound_gpu_count", "slo_attainment", "ttft_p99_s")
_AFTER += ("tpot_p99_s", "binding", "infeasible_reason", "pruned_reason")
"""Columns of the CSV before and after the cost of a candidate."""
_KINDS = ("", ", second kind", ", third kind", ", fourth kind", ", fifth kind")
_MONEY = tuple(f"{n}{of}" for of in _KINDS for n in ("nodes", "usd_per_node_h"))
_FORMS = {"slo_attainment": "share"}


def plan_workbook(plan: Plan) -> bytes:
    """Return a plan as an XLSX file; the same plan gives the same bytes."""
    page = plan_page(plan)
    made = datetime.fromisoformat(str(plan.settings["as_of"]))
    book, named = Book(f"{plan.llm}: {page.headline}", made), inputs_of(plan)
    for add in SHEETS:
        add(book, plan, page, named)
    return book.content()


def add_summary(book: Book, plan: Plan, page: Page, named: Mapping[str, Named]) -> None:
    """Add the answer and its cost, all of it formulas."""
    sheet = Sheet(book, "Summary", (38, 18, 22, 18, 18))
    sheet.row(page.headline, form="title")
    for text in (page.about, page.lead, plan.infeasible_reason):
        if text:
            sheet.row(text)
    sheet.row()
    best = plan.best
    if best is None or best.cost is None:
        sheet.row("No cost: no configuration holds the SLO, or its price is not known.")
        return
    sheet.row("quantity", "value", "unit", "low", "high", form="head")
    for group in paid(best):
        _add_nodes(book, sheet, group)
    _add_cost(book, sheet, best, named)
    sheet.row()
    sheet.row("* at the simulated traffic; nodes are paid at all hours.")
    sheet.row("The yellow cells of the sheet Assumptions are the only inputs.")


def _add_nodes(book: Book, sheet: Sheet, group: Paid) -> None:
    """Add what is paid of one kind; its nodes get a name."""
    before, used = group.key, []
    for pool in group.pools:
        pooled = pool.key
        of = f", {pooled[:-1]}" if pooled else ""
        replicas = Formula(f"={pooled}replicas", pool.replica_count, "count")
        sheet.row(f"replicas{of}", replicas)
        used.append(f"{pooled}replicas*{pooled}gpus_per_replica")
    of = f", {before[:-1]}" if before else ""
    label = "GPUs rented" if group.price.gpus_per_node is None else "nodes"
    at = sheet.row(f"{label}{of}", nodes_at(group), group.price.unit)
    book.define(f"{before}nodes", sheet.place(at, 2))
    paid_gpus = f"{before}nodes*{before}gpus_per_node"
    sheet.row(f"GPUs paid{of}", Formula(f"={paid_gpus}", group.gpus_paid, "count"))
    idle = Formula(f"={paid_gpus}-({'+'.join(used)})", group.stranded_gpus, "count")
    sheet.row(f"GPUs idle{of}", idle)


def _add_cost(
    book: Book, sheet: Sheet, best: Candidate, named: Mapping[str, Named]
) -> None:
    """Add the cost by the hour, month, year and token, with the ends of its range."""
    cost = best.cost
    assert cost is not None
    usd = "+".join(
        f"{group.key}nodes*{group.key}usd_per_node_h" for group in paid(best)
    )
    ends = [usd / HOURS_PER_MONTH for usd in best.usd_per_month_range or ()]
    hour = Formula(f"={usd}", cost.usd_per_h, "usd")
    at = sheet.row(
        "cost per hour", hour, "$ per hour", *(Value(x, "usd") for x in ends)
    )
    book.define("usd_per_h", sheet.place(at, 2))
    for name, hours in (("month", HOURS_PER_MONTH), ("year", HOURS_PER_YEAR)):
        total = getattr(cost, f"usd_per_{name}")
        times = f"hours_per_{name}"
        scaled = [
            Formula(f"={letter}{at}*{times}", end * hours, "usd")
            for letter, end in zip("DE", ends, strict=False)
        ]
        formula = Formula(f"=usd_per_h*{times}", total, "usd")
        row = sheet.row(f"cost per {name}", formula, f"$ per {name}", *scaled)
        book.define(f"usd_per_{name}", sheet.place(row, 2))
    if RATE in named:
        code = named[RATE].unit.rpartition(" ")[2]
        amount = cost.usd_per_month / named[RATE].value
        formula = Formula(f"=usd_per_month/{RATE}", amount, "number")
        sheet.row("cost per month in own currency", formula, f"{code} per month")
    for name, share, tokens in (
        ("input", "*prompt_cost_share", "(prompt_tokens-cached_tokens)"),
        ("output", "*(1-prompt_cost_share)", "output_tokens"),
        ("total", "", "(prompt_tokens+output_tokens)"),
    ):
        million = getattr(cost, f"usd_per_million_{name}_tokens")
        if million is not None:
            text = f"=usd_per_h{share}/(requests_per_s*{tokens}*3600/1000000)"
            sheet.row(
                f"per million {name} tokens*", Formula(text, million, "fine"), "$"
            )


def add_assumptions(
    book: Book, plan: Plan, page: Page, named: Mapping[str, Named]
) -> None:
    """Add the inputs, in yellow, then what else the plan assumed."""
    sheet = Sheet(book, "Assumptions", (34, 24, 30, 12, 12, 70, 12))
    sheet.row(*HEADING, form="head")
    sheet.freeze()
    write_inputs(book, sheet, named)
    for row in plan.assumptions:
        sheet.row(row.what, row.value, "", None, None, row.source, row.how)


def add_candidates(
    book: Book, plan: Plan, page: Page, named: Mapping[str, Named]
) -> None:
    """Add a row for each candidate; costs are formulas over prices and nodes."""
    by_name = {column.name: column for column in COLUMNS}
    before = [by_name[name] for name in _BEFORE]
    after = [by_name[name] for name in _AFTER]
    sheet = Sheet(book, "Candidates", (16, 8, 12, 12, 8, *[16] * 13, *[14] * 5, 60, 60))
    money = (*_MONEY, "usd_per_h", "usd_per_month", "usd_per_year")
    names = [*_BEFORE, *money, *_AFTER]
    sheet.row(*names, form="head")
    sheet.freeze()
    prices = price_names(plan)
    for number, row in enumerate(plan.candidates, start=2):
        sheet.row(
            *(_cell(column, row) for column in before),
            *_costs(row, number, row is plan.best, prices),
            *(_cell(column, row) for column in after),
        )


def _cell(column: Column, row: Candidate) -> Cell:
    value = (column.told or column.value)(row)
    if isinstance(value, str) or value is None:
        return value
    return Value(float(value), _FORMS.get(column.name, "number"))


def _costs(
    row: Candidate, number: int, is_best: bool, prices: Mapping[Price, str]
) -> list[Cell]:
    """Return nodes and prices of some kinds, and the cost by them."""
    groups = paid(row)
    cells: list[Cell] = []
    for group in groups:
        before = group.key
        name = f"{before}usd_per_node_h" if is_best else prices[group.price]
        nodes = Formula(f"={before}nodes", group.unit_count, "count")
        cells.append(nodes if is_best else Value(group.unit_count, "count"))
        cells.append(Formula(f"={name}", group.price.usd_per_node_h, "fine"))
    cells += [None] * (len(_MONEY) - len(cells))
    if row.cost is None or not groups:
        return [*cells, None, None, None]
    letters = [ascii_uppercase[len(_BEFORE) + i] for i in range(len(cells) + 1)]
    pairs = zip(letters[::2], letters[1::2], strict=False)
    hour = "+".join(f"{n}{number}*{usd}{number}" for n, usd in [*pairs][: len(groups)])
    total = f"={letters[-1]}{number}"
    return [
        *cells,
        Formula(f"={hour}", row.cost.usd_per_h, "usd"),
        Formula(f"{total}*hours_per_month", row.cost.usd_per_month, "usd"),
        Formula(f"{total}*hours_per_year", row.cost.usd_per_year, "usd"),
    ]


def add_evidence(
    book: Book, plan: Plan, page: Page, named: Mapping[str, Named]
) -> None:
    """Add what the counts rest on: bound, attainment, what fails, warnings, seals."""
    sheet = Sheet(book, "Evidence", (30, 120))
    sheet.row(
        "Replica counts are simulated: changing an input here changes the cost, not "
        "how many replicas the SLO takes. Plan again for other traffic.",
        form="head",
    )
    for section in page.sections:
        facts = section.known_facts
        if facts or section.command or section.notes:
            sheet.row(section.heading, form="head")
        if section.command:
            sheet.row("", section.command, form="long")
        for label, text in facts:
            sheet.row(label, text, form="long")
        for note in section.notes:
            sheet.row("", note, form="long")
    if page.warnings:
        sheet.row("Warnings", form="head")
    for text in dict.fromkeys(page.warnings):
        sheet.row("", text, form="long")
    sheet.row("Seals", form="head")
    sheet.row("schema", plan.schema)
    if plan.trace_sha256:
        sheet.row("SHA-256 of the trace", plan.trace_sha256)
    if plan.certificate is not None:
        digest = page.values()["certificate"]["document_digest"]
        sheet.row("SHA-256 of plan.json", str(digest))


SHEETS = (add_summary, add_assumptions, add_candidates, add_evidence)
"""Sheets in order; each is added by one function."""
