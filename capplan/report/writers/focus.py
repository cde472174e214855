"""Planned charges under the column names of FOCUS 1.2, for FinOps tools.

References
----------
FinOps Open Cost and Usage Specification, v1.2, ``specification/columns``.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from capplan.currency import USD, Currency
from capplan.planning.money.cost import HOURS_PER_MONTH
from capplan.planning.plan.result import Plan
from capplan.report.money import currency_of_result
from capplan.report.paid import Paid, paid
from capplan.report.render.csv_table import csv_text

USAGE, PURCHASE = "Usage", "Purchase"
STANDARD, DYNAMIC, COMMITTED, OTHER = "Standard", "Dynamic", "Committed", "Other"
_CATEGORIES = {"on-demand": STANDARD, "spot": DYNAMIC, "owned": OTHER}
"""Pricing categories by the kind of an offer; all others are committed."""
_SPEND = ("flex", "minimum")
"""Kinds of offers that commit to dollars, not to nodes."""

Row = dict[str, str | None]
"""Values by the columns of FOCUS, in their order."""


@dataclass(frozen=True)
class Charge:
    """A charge of one kind of unit over a period."""

    start: datetime  # inclusive, UTC
    hours: float  # of the period [h]
    provider: str
    sku: str  # node, or GPU type
    kind: str  # of the offer: "on-demand", "spot", "reserved, 12 months", ...
    gpus_per_unit: int
    unit_hours: float  # units × hours that are paid [h]
    usd_per_unit_h: float  # [$/h]
    description: str
    resource: str  # what runs on it
    tags: dict[str, str | int | float | bool]
    currency: Currency = USD  # that it is billed in

    @property
    def pricing(self) -> str:
        """Its pricing category."""
        return _CATEGORIES.get(self.kind.partition(",")[0], COMMITTED)

    @property
    def is_spend(self) -> bool:
        """Whether it commits to dollars."""
        return self.kind.partition(",")[0] in _SPEND


def focus_csv(charges: Iterable[Charge]) -> str:
    """Return charges as CSV; empty where there are none."""
    rows = [row for charge in charges for row in _rows(charge)]
    return csv_text(list(rows[0]), (row.values() for row in rows)) if rows else ""


def plan_charges(plan: Plan) -> list[Charge]:
    """Return a month of the best candidate, from the next month's first day on.

    A month is billed as 730 h, which is the period of the charges.
    """
    if plan.best is None:
        return []
    day = datetime.fromisoformat(str(plan.settings["as_of"])).replace(tzinfo=UTC)
    start = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
    return [_charge(plan, group, start) for group in paid(plan.best)]


def _charge(plan: Plan, group: Paid, start: datetime) -> Charge:
    price, pools, currency = group.price, group.pools, currency_of_result(plan)
    what = " + ".join(f"{pool.replica_count} x {pool}" for pool in pools)
    tags: dict[str, str | int | float | bool] = {
        "llm": plan.llm,
        "slo": plan.slo_text,
        "gpu": group.gpu,
        "replicas": sum(pool.replica_count for pool in pools),
        "tensor_parallel_size": " + ".join(str(pool.layout.tp) for pool in pools),
        "stranded_gpus": group.stranded_gpus,
        "price_source": price.source,
        "price_as_of": price.as_of,
        "estimated": price.is_guess or price.is_stale,
    }
    if currency != USD:
        tags["usd_per_unit_of_currency"] = currency.usd
    if pools[0].role:
        tags["role"] = " + ".join(pool.role for pool in pools)
    return Charge(
        start=start,
        hours=HOURS_PER_MONTH,
        provider=group.provider,
        sku=price.node or group.gpu,
        kind=price.kind,
        gpus_per_unit=group.gpus_per_unit,
        unit_hours=group.unit_count * HOURS_PER_MONTH,
        usd_per_unit_h=price.usd_per_node_h,
        description=f"Planned by capplan: {plan.llm}, {what} on {group.unit_count} x "
        f"{price.unit} ({group.gpu})",
        resource="/".join([group.gpu, *(str(pool.layout) for pool in pools)]),
        tags=tags,
        currency=currency,
    )


def _rows(charge: Charge) -> list[Row]:
    """Return the rows of a charge: of a commitment its purchase and its use."""
    usd = charge.unit_hours * charge.usd_per_unit_h
    if charge.pricing != COMMITTED:
        return [_row(charge, USAGE, billed_usd=usd, effective_usd=usd)]
    return [
        _row(charge, PURCHASE, billed_usd=usd, effective_usd=0.0),
        _row(charge, USAGE, billed_usd=0.0, effective_usd=usd),
    ]


def _row(
    charge: Charge, category: str, *, billed_usd: float, effective_usd: float
) -> Row:
    """Return the columns of FOCUS 1.2 that a plan can fill, under their own names."""
    end = charge.start + timedelta(hours=charge.hours)
    is_use = category == USAGE
    pricing = charge.pricing
    if pricing == COMMITTED and not is_use:
        pricing = STANDARD  # the purchase itself is not subject to the commitment
    money = charge.currency
    quantity = _number(charge.unit_hours)
    price = _number(money.amount(charge.usd_per_unit_h))
    cost = _number(money.amount(charge.unit_hours * charge.usd_per_unit_h))
    unit = "GPU-Hours" if charge.gpus_per_unit == 1 else "Node-Hours"
    details = {"GpuCount": charge.gpus_per_unit, "InstanceType": charge.sku}
    return {
        "BilledCost": _number(money.amount(billed_usd)),
        "BillingAccountId": "planned",
        "BillingAccountName": "planned",
        "BillingCurrency": money.code,
        "BillingPeriodEnd": _time(end),
        "BillingPeriodStart": _time(charge.start),
        "ChargeCategory": category,
        "ChargeClass": None,
        "ChargeDescription": charge.description,
        "ChargeFrequency": "Usage-Based" if is_use else "Recurring",
        "ChargePeriodEnd": _time(end),
        "ChargePeriodStart": _time(charge.start),
        **_commitment(charge, is_use, cost, quantity, unit),
        "ConsumedQuantity": quantity if is_use else None,
        "ConsumedUnit": unit if is_use else None,
        "ContractedCost": cost,
        "ContractedUnitPrice": price,
        "EffectiveCost": _number(money.amount(effective_usd)),
        "InvoiceId": None,
        "InvoiceIssuerName": charge.provider,
        "ListCost": cost,
        "ListUnitPrice": price,
        "PricingCategory": pricing,
        "PricingQuantity": quantity,
        "PricingUnit": unit,
        "ProviderName": charge.provider,
        "PublisherName": charge.provider,
        "RegionId": None,
        "RegionName": None,
        "ResourceId": charge.resource,
        "ResourceName": charge.resource,
        "ResourceType": "GPU" if charge.gpus_per_unit == 1 else "GPU node",
        "ServiceCategory": "Compute",
        "ServiceName": "GPU instances",
        "ServiceSubcategory": "Virtual Machines",
        "SkuId": charge.sku,
        "SkuMeter": unit,
        "SkuPriceDetails": json.dumps(details, ensure_ascii=False),
        "SkuPriceId": f"{charge.provider}/{charge.sku}/{charge.kind}",
        "Tags": json.dumps(charge.tags, ensure_ascii=False),
    }


def _commitment(
    charge: Charge, is_use: bool, cost: str, quantity: str, unit: str
) -> Row:
    """Return the columns of a commitment; nulls where there is none."""
    names = ("Category", "Id", "Name", "Quantity", "Status", "Type", "Unit")
    kind = charge.kind
    values: list[str | None] = [None] * len(names)
    if charge.pricing == COMMITTED:
        values = [
            "Spend" if charge.is_spend else "Usage",
            f"planned/{charge.provider}/{charge.sku}/{kind}",
            f"{kind}, {charge.sku}",
            cost if charge.is_spend else quantity,
            "Used" if is_use else None,
            kind,
            charge.currency.code if charge.is_spend else unit,
        ]
    return {f"CommitmentDiscount{n}": v for n, v in zip(names, values, strict=True)}


def _number(value: float) -> str:
    """Return a number without an exponent, with a digit behind the point at least."""
    whole, _, rest = f"{value:.10f}".partition(".")
    return f"{whole}.{rest.rstrip('0') or '0'}"


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
