"""The page of a plan's bill beside the one that came."""

from collections.abc import Iterator

from capplan.report.columns import format_cents, plural, record
from capplan.report.fields import fields
from capplan.report.page import Page, Section, Table
from capplan.report.pages.diff import signed_usd
from capplan.report.received.invoice import Invoice
from capplan.report.received.plan_diff import Row
from capplan.units import format_usd

SCHEMA = "capplan.invoice/1"
_EFFECTS = {
    "price": "price, of all hours that were paid",
    "volume": "hours that ran, beyond those planned",
    "idle": "hours of commitments that nothing used",
    "other": "credits, adjustments and taxes",
    "total": "together",
}


def invoice_page(invoice: Invoice) -> Page:
    """Return the page of a plan's bill beside the one that came."""
    columns = fields("invoice_node")
    values = fields(
        "invoice",
        start=lambda of: of.start.isoformat(),
        end=lambda of: of.end.isoformat(),
    )
    effects = Table(fields("invoice_effect"), [*_effects(invoice)])
    return Page(
        "invoice",
        _headline(invoice),
        invoice.plan,
        is_alone=True,
        lead=" ".join(_lead(invoice)),
        sections=[
            Section("Nodes", tables=[Table(columns, invoice.nodes)]),
            Section("Why the bill differs", tables=[effects]),
        ],
        values=lambda: {"schema": SCHEMA, **record(values, invoice)},
        csv={"invoice.csv": Table(columns, invoice.nodes)},
    )


def _headline(invoice: Invoice) -> str:
    billed, total = format_cents(invoice.billed_cents / 100), invoice.effects["total"]
    if not total:
        return f"Billed {billed}, as planned"
    share = ""
    if invoice.planned_cents:
        share = f" ({100 * abs(total) / invoice.planned_cents:.1f} %)"
    more = "more" if total > 0 else "less"
    return (
        f"Billed {billed}: {format_cents(abs(total) / 100)}{share} {more} than planned"
    )


def _lead(invoice: Invoice) -> Iterator[str]:
    ends = (f"{at.day} {at:%B %Y %H:%M}" for at in (invoice.start, invoice.end))
    planned = format_cents(invoice.planned_cents / 100)
    yield f"{' to '.join(ends)}, {invoice.hours:,.6g} h, planned at {planned}."
    if invoice.left_out:
        charges = plural(invoice.left_out, "charge")
        usd = format_usd(invoice.left_out_usd)
        yield f"{charges} for something else ({usd}) left out."


def _effects(invoice: Invoice) -> Iterator[Row]:
    for name, what in _EFFECTS.items():
        if (amount := invoice.effects[name]) or name == "total":
            yield Row(what, "", signed_usd(amount))
