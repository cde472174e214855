"""The cost of a plan: quantity × unit price = amount, and its range."""

from collections.abc import Sequence

from capplan.deployment.pools import Pool
from capplan.planning.money.cost import Cost, CostLine, alike
from capplan.report.columns import Column, column, format_count, format_fine_usd
from capplan.report.page import Section, Table


def amount(line: CostLine) -> str:
    """Return dollars, with a star where they are estimated."""
    return f"{format_fine_usd(line.amount_usd)}{'*' if line.estimated else ''}"


def _unit_price(line: CostLine) -> str:
    unit = line.quantity_unit.split(" ")[0].removesuffix("s")
    per = "hour" if unit == "h" else f"{unit}-hour"
    return f"× {format_fine_usd(line.unit_price_usd)} per {per}"


_BILL = (
    column("what", heading="cost", justify="left"),
    Column("", lambda x: f"{format_count(x.quantity)} {x.quantity_unit}", "quantity"),
    Column("", _unit_price, "unit price"),
    Column("", lambda line: f"= {amount(line)}", "amount"),
)


def bill_section(cost: Cost | None, pools: Sequence[Pool]) -> Section:
    """Return the cost of pools as quantity × unit price = amount."""
    if cost is None:
        gpu = pools[0].configuration.gpu
        missing = f"No price is known for {gpu}; set one with --price {gpu}=USD_PER_H."
        return Section("Cost", notes=[missing], topic="price")
    notes = [
        f"{price.unit}: {format_fine_usd(price.usd_per_gpu_h)} per GPU-hour, "
        f"{price.told}."
        for price, _ in alike(pools)
    ]
    notes.append("GPUs only: no storage, network or staff.")
    if any(line.estimated for line in cost.lines):
        notes.append(
            "* estimated from the simulated traffic or from an uncertain price."
        )
    bill = Table(_BILL, cost.lines)
    return Section("Cost", tables=[bill], notes=notes, topic="price")
