"""Inputs of a plan's cost: on the sheet Assumptions, by name in formulas."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from capplan.fleet.price import GIVEN
from capplan.planning.cost import HOURS_PER_MONTH, HOURS_PER_YEAR
from capplan.planning.result import Candidate, Plan
from capplan.report.paid import Paid, paid
from capplan.report.workbook.book import Book, Formula, Input, Sheet

HEADING = ("name", "value", "unit", "low", "high", "source", "how")
LOW, HIGH = "_low", "_high"
"""What names of the ends of a range end in."""


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

    def at(self, end: str) -> tuple[str, float]:
        """Return name and value at an end of the range; without one those given."""
        value = {LOW: self.low, HIGH: self.high}.get(end)
        return (self.name, self.value) if value is None else (self.name + end, value)


def prefix(pool: Paid) -> str:
    """Return what names of a pool's inputs begin with."""
    return f"{pool.role}_" if pool.role else ""


def inputs_of(plan: Plan) -> dict[str, Named]:
    """Return the inputs by name: of the best candidate, and prices of the others."""
    rows: list[Named] = []
    best = plan.best
    if best is not None and best.run is not None and paid(best):
        for pool in paid(best):
            rows += _of_pool(pool, best.replica_count_range)
        totals = best.run.simulation.totals
        requests, how = totals.request_count, ("simulated traffic", "given")
        prompt, output = totals.prompt_tokens, totals.output_tokens
        rows += [
            Named("hours_per_month", HOURS_PER_MONTH, "h", "a billed month", "given"),
            Named("hours_per_year", HOURS_PER_YEAR, "h", "365 days", "given"),
            Named("requests_per_s", totals.rate_per_s, "1/s", *how),
            Named("prompt_tokens", prompt / requests, "tokens", *how),
            Named("output_tokens", output / requests, "tokens", *how),
        ]
    for candidate in plan.candidates:
        if candidate is not best:
            rows += [_price(pool, price_name(plan, pool)) for pool in paid(candidate)]
    return {row.name: row for row in rows}


def price_name(plan: Plan, pool: Paid) -> str:
    """Return the name of the price of another candidate's pool."""
    prices = dict.fromkeys(
        (each.unit, each.price, each.usd_per_unit_h)
        for candidate in plan.candidates
        if candidate is not plan.best
        for each in paid(candidate)
    )
    key = (pool.unit, pool.price, pool.usd_per_unit_h)
    return f"other_usd_per_node_h_{list(prices).index(key) + 1}"


def nodes_formula(pool: Paid, end: str, named: Mapping[str, Named]) -> Formula:
    """Return the whole nodes of a pool, at an end of the range of its replicas.

    As many replicas as fit on each, or as many nodes as one replica takes.
    """
    before = prefix(pool)
    tp, node = f"{before}gpus_per_replica", f"{before}gpus_per_node"
    replicas, count = named[f"{before}replicas"].at(end)
    text = (
        f"IF({tp}<={node},ROUNDUP({replicas}/INT({node}/{tp}),0),"
        f"{replicas}*ROUNDUP({tp}/{node},0))"
    )
    degree, gpus = pool.configuration.tp, pool.gpus_per_unit
    if degree <= gpus:
        return Formula(text, math.ceil(count / (gpus // degree)), "count")
    return Formula(text, count * math.ceil(degree / gpus), "count")


def hour_formula(best: Candidate, end: str, named: Mapping[str, Named]) -> Formula:
    """Return the cost of an hour at an end of the ranges: Σ nodes × their price."""
    parts, usd = [], 0.0
    for pool in paid(best):
        nodes = nodes_formula(pool, end, named)
        name, price = named[f"{prefix(pool)}usd_per_node_h"].at(end)
        parts.append(f"{nodes.text}*{name}")
        usd += nodes.value * price
    return Formula("=" + "+".join(parts), usd, "usd")


def _of_pool(pool: Paid, counts: tuple[int, int] | None) -> list[Named]:
    before, tp = prefix(pool), pool.configuration.tp
    low, high = counts or (None, None)
    node = "of one node" if pool.gpus_per_unit > 1 else "1: rented by the GPU"
    return [
        Named(
            f"{before}replicas",
            pool.replica_count,
            "replicas",
            "simulated; low and high: what real engines need",
            "computed",
            "count",
            low,
            high,
        ),
        Named(f"{before}gpus_per_replica", tp, "GPUs", "TP degree", "given", "count"),
        Named(
            f"{before}gpus_per_node",
            pool.gpus_per_unit,
            "GPUs",
            node,
            "published",
            "count",
        ),
        _price(pool, f"{before}usd_per_node_h"),
    ]


def _price(pool: Paid, name: str) -> Named:
    price = pool.price
    source = ", ".join(filter(None, (price.source, price.as_of, price.note)))
    how = "assumed" if price.is_guess or price.is_stale else "published"
    if price.source == GIVEN:
        how = "given"
    unit = f"$ per hour of a {pool.unit}, {pool.configuration.gpu}"
    return Named(name, pool.usd_per_unit_h, unit, source, how, "fine")


def write_inputs(book: Book, sheet: Sheet, rows: Mapping[str, Named]) -> None:
    """Write a yellow cell for each input, and give it its name."""
    for row in rows.values():
        ends = [
            None if end is None else Input(end, row.form) for end in (row.low, row.high)
        ]
        value = Input(row.value, row.form)
        at = sheet.row(row.name, value, row.unit, *ends, row.source, row.how)
        for column, (suffix, end) in enumerate(
            (("", row.value), ("", None), (LOW, row.low), (HIGH, row.high)), start=2
        ):
            if end is not None:
                book.define(row.name + suffix, sheet.place(at, column))
