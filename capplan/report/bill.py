"""Cost lines of a plan in words: quantity × unit price = amount."""

from capplan.planning.cost import CostLine
from capplan.planning.result import Plan
from capplan.report.columns import format_count, format_fine_usd

STARRED = "* estimated from the simulated traffic or from an uncertain price"


def bill(plan: Plan) -> tuple[CostLine, ...]:
    """Return the cost lines of the best candidate; none without a price."""
    return () if plan.best is None or plan.best.cost is None else plan.best.cost.lines


def line_texts(line: CostLine) -> tuple[str, str, str]:
    """Return "40 GPUs", "× $2.49 per GPU-hour", "= $99.60"; estimates are starred."""
    per = "hour" if line.quantity_unit == "h" else "GPU-hour"
    return (
        f"{format_count(line.quantity)} {line.quantity_unit}",
        f"× {format_fine_usd(line.unit_price_usd)} per {per}",
        f"= {format_fine_usd(line.amount_usd)}{'*' if line.estimated else ''}",
    )
