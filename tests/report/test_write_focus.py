"""Charges under FOCUS 1.2's names: its allowed values, its sums, no injection."""

import csv
import io
import json
import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.report.writers.focus import Charge, focus_csv, plan_charges

# The mandatory columns of FOCUS 1.2 (specification/columns of v1.2), and those that
# are conditional on prices, resources and commitments.
MANDATORY = {
    *("BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency"),
    *("BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory", "ChargeClass"),
    *("ChargeDescription", "ChargePeriodEnd", "ChargePeriodStart", "ContractedCost"),
    *("EffectiveCost", "InvoiceIssuerName", "ListCost", "PricingQuantity"),
    *("PricingUnit", "ProviderName", "PublisherName", "ServiceCategory"),
    "ServiceName",
}
MAY_BE_NULL = {"ChargeClass", "RegionId", "RegionName", "ConsumedQuantity"}
MAY_BE_NULL |= {"ConsumedUnit", "InvoiceId"}
MAY_BE_NULL |= {
    f"CommitmentDiscount{name}"
    for name in ("Category", "Id", "Name", "Quantity", "Status", "Type", "Unit")
}
ALLOWED = {
    "ChargeCategory": {"Usage", "Purchase", "Tax", "Credit", "Adjustment"},
    "ChargeFrequency": {"One-Time", "Recurring", "Usage-Based"},
    "PricingCategory": {"Standard", "Dynamic", "Committed", "Other"},
    "CommitmentDiscountStatus": {"", "Used", "Unused"},
    "CommitmentDiscountCategory": {"", "Spend", "Usage"},
    "ServiceCategory": {"Compute"},
    "ServiceSubcategory": {"Virtual Machines"},
}
COSTS = ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost")


def read(text):
    return list(csv.DictReader(io.StringIO(text)))


def of(plan):
    return read(focus_csv(plan_charges(plan)))


charges = st.builds(
    Charge,
    start=st.just(datetime(2026, 12, 1, tzinfo=UTC)),
    hours=st.just(730),
    provider=st.sampled_from(("AWS", "=cmd")),
    sku=st.sampled_from(("p5.48xlarge", "-1+1")),
    kind=st.sampled_from(("on-demand", "spot", "reserved, 12 months", "flex", "owned")),
    gpus_per_unit=st.sampled_from((1, 8)),
    unit_hours=st.floats(0, 1e7),
    usd_per_unit_h=st.floats(0.01, 1000),
    description=st.text(max_size=20),
    resource=st.just("@x"),
    tags=st.just({"llm": "=1+1"}),
)


def test_a_plan_has_the_mandatory_columns_of_focus(plan):
    columns = list(of(plan)[0])

    assert set(columns) >= MANDATORY
    assert columns == sorted(columns)


def test_a_month_of_the_best_candidate_is_charged(plan):
    (row,) = of(plan)

    # 3 GPUs × 730 h × $2.49
    assert float(row["PricingQuantity"]) == 2190
    assert {float(row[name]) for name in COSTS} == {5453.1}
    assert row["ChargePeriodStart"] == "2026-12-01T00:00:00Z"
    assert row["ChargePeriodEnd"] == "2026-12-31T10:00:00Z"  # 730 h later
    assert (row["PricingUnit"], row["PricingCategory"]) == ("GPU-Hours", "Standard")
    assert json.loads(row["Tags"])["llm"] == "Llama-3.1-8B"


def test_plans_without_a_cost_have_no_charges(infeasible):
    assert focus_csv(plan_charges(infeasible)) == ""


@given(st.lists(charges, min_size=1, max_size=3))
def test_rows_keep_to_the_specification(listed):
    rows = read(focus_csv(listed))

    for row in rows:
        for name, allowed in ALLOWED.items():
            assert row[name] in allowed
        assert {name for name, text in row.items() if not text} <= MAY_BE_NULL | {
            "ChargeDescription"  # which may be empty here
        }
        for name in COSTS:
            assert re.fullmatch(r"\d+\.\d+", row[name])
        quantity = float(row["PricingQuantity"])
        for cost, price in (
            ("ListCost", "ListUnitPrice"),
            ("ContractedCost", "ContractedUnitPrice"),
        ):
            assert float(row[cost]) == pytest.approx(
                quantity * float(row[price]), abs=0.005
            )
        is_committed = bool(row["CommitmentDiscountId"])
        assert is_committed is bool(row["CommitmentDiscountCategory"])
        if row["ChargeCategory"] == "Usage":
            assert is_committed is bool(row["CommitmentDiscountStatus"])
            assert is_committed is (row["PricingCategory"] == "Committed")
        else:
            assert row["ChargeFrequency"] != "Usage-Based"
            assert float(row["EffectiveCost"]) == 0
            assert not row["ConsumedQuantity"]


@given(st.lists(charges, min_size=1, max_size=3))
def test_what_is_billed_is_what_is_effective(listed):
    rows = read(focus_csv(listed))

    usd = sum(charge.unit_hours * charge.usd_per_unit_h for charge in listed)
    for name in ("BilledCost", "EffectiveCost"):
        assert sum(float(row[name]) for row in rows) == pytest.approx(usd, abs=0.005)


@given(st.lists(charges, min_size=1, max_size=2))
def test_no_cell_is_a_formula(listed):
    for row in read(focus_csv(listed)):
        for cell in row.values():
            assert cell[:1] not in ("=", "+", "-", "@")


def test_a_name_that_is_a_formula_is_text_in_every_cell(plan):
    for row in of(replace(plan, llm="=1+1", slo_text="@x")):
        assert not any(cell[:1] in ("=", "+", "-", "@") for cell in row.values())
