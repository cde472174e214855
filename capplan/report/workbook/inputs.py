"""Inputs of a plan's cost: on the sheet Assumptions, by name in formulas."""

from collections.abc import Mapping
from typing import NamedTuple

from capplan.currency import USD
from capplan.fleet.price import GIVEN, Price
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.money.cost import HOURS_PER_MONTH, HOURS_PER_YEAR
from capplan.planning.plan.result import Plan
from capplan.report.money import currency_of_result
from capplan.report.paid import Paid, paid
from capplan.report.workbook.book import Book, Formula, Input, Sheet
from capplan.report.workbook.node_formula import node_formula

HEADING = ("name", "value", "unit", "low", "high", "source", "how")
LOW, HIGH = "_low", "_high"
"""What names of the ends of a range end in."""

RATE = "usd_per_unit_of_currency"
"""Name of the exchange rate among the inputs. [$]"""


class Named(NamedTuple):
    """A number that formulas use by its name."""

    name: str
    value: float
    unit: str
    source: str
    how: str
    form: str = "number"
    low: float | None = None
    high: float | None = None


def inputs_of(plan: Plan) -> dict[str, Named]:
    """Return the inputs by name: of the best candidate, and prices of the others."""
    rows: list[Named] = []
    best = plan.best
    if best is not None and best.run is not None and paid(best):
        rows += _of_nodes(best)
        totals = best.run.simulation.totals
        cached = totals.cached_tokens / totals.request_count
        how = ("simulated traffic", "given")
        rows += [
            Named("hours_per_month", HOURS_PER_MONTH, "h", "a billed month", "given"),
            Named("hours_per_year", HOURS_PER_YEAR, "h", "365 days", "given"),
            Named("requests_per_s", totals.rate_per_s, "1/s", *how),
            Named("prompt_tokens", totals.mean_prompt_tokens, "tokens", *how),
            Named("cached_tokens", cached, "tokens", *how),
            Named("output_tokens", totals.mean_output_tokens, "tokens", *how),
        ]
        if best.run.work is not None:
            share = best.run.work.prompt_share
            rows.append(Named("prompt_cost_share", share, "of GPU time", *how))
        rows += _rate(plan)
    names = price_names(plan)
    for group in _of_others(plan):
        rows.append(_price(group, names[group.price]))
    return {row.name: row for row in rows}


def _rate(plan: Plan) -> list[Named]:
    """Return the exchange rate, where the plan names a currency."""
    currency = currency_of_result(plan)
    if currency == USD:
        return []
    unit = f"$ per {currency.code}"
    return [Named(RATE, currency.usd, unit, "--exchange-rate", "given", "fine")]


def price_names(plan: Plan) -> dict[Price, str]:
    """Return the names of the prices of other candidates' nodes."""
    prices = dict.fromkeys(group.price for group in _of_others(plan))
    return {
        price: f"other_usd_per_node_h_{number}"
        for number, price in enumerate(prices, start=1)
    }


def _of_others(plan: Plan) -> list[Paid]:
    """Return what is paid of the candidates beside the best."""
    rows = [row for row in plan.candidates if row is not plan.best]
    return [group for row in rows for group in paid(row)]


def nodes_at(group: Paid) -> Formula:
    """Return the whole nodes of a kind."""
    pools = sorted(group.pools, key=lambda pool: pool.gpus, reverse=True)
    names = [(f"{pool.key}gpus_per_replica", f"{pool.key}replicas") for pool in pools]
    text = node_formula(names, f"{group.key}gpus_per_node")
    return Formula(f"={text}", group.unit_count, "count")


def _of_nodes(best: Candidate) -> list[Named]:
    """Return replicas, GPUs and prices; of replicas what real engines needed."""
    low, high = best.replica_count_range or (None, None)
    groups = paid(best)
    if len(groups) > 1:  # which nodes hold more or fewer is another purchase
        low = high = None
    rows: list[Named] = []
    for group in groups:
        for pool in group.pools:
            of = (pool.layout.text, "given", "count")
            simulated = "simulated; low and high: what real engines need"
            counts = (simulated, "simulated", "count", low, high)
            rows += [
                Named(f"{pool.key}replicas", pool.replica_count, "replicas", *counts),
                Named(f"{pool.key}gpus_per_replica", pool.gpus, "GPUs", *of),
            ]
        is_single = group.price.gpus_per_node is None
        node = "1: priced one by one" if is_single else group.price.unit
        size = Named(
            f"{group.key}gpus_per_node", group.gpus_per_unit, "GPUs", node, "published"
        )
        price = _price(group, f"{group.key}usd_per_node_h")
        rows += [size._replace(form="count"), price]
    return rows


def _price(group: Paid, name: str) -> Named:
    price = group.price
    how = "assumed" if price.is_guess or price.is_stale else "published"
    if price.source == GIVEN:
        how = "given"
    unit = f"$ per hour of a {price.unit}, {group.gpu}"
    return Named(name, price.usd_per_node_h, unit, price.told, how, "fine")


def write_inputs(book: Book, sheet: Sheet, rows: Mapping[str, Named]) -> None:
    """Write a yellow cell for each input, and give it its name."""
    for row in rows.values():
        ends = [
            None if end is None else Input(end, row.form) for end in (row.low, row.high)
        ]
        value = Input(row.value, row.form)
        at = sheet.row(row.name, value, row.unit, *ends, row.source, row.how)
        book.define(row.name, sheet.place(at, 2))
        for column, (suffix, end) in enumerate(((LOW, row.low), (HIGH, row.high)), 4):
            if end is not None:
                book.define(row.name + suffix, sheet.place(at, column))
