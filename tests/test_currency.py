"""A currency of one's own: its rate is given, prices read and amounts shown in it."""

import csv
import io
import json
import re
from pathlib import Path

import openpyxl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.currency import USD, Currency, currency_of
from capplan.errors import InputError
from capplan.fleet.prices import Market, offers
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import OffersSettings, PlanSettings
from capplan.report.columns import format_fine_usd
from capplan.report.pages.plan import plan_page, plan_values
from capplan.report.received.verify import verify
from capplan.report.render.json_text import json_text
from capplan.report.render.markdown import markdown
from capplan.report.workbook.plan_book import plan_workbook
from capplan.report.writers.focus import focus_csv, plan_charges
from capplan.settings import SettingError
from capplan.units import format_usd, shown_in

EUR = Currency("EUR", 1.25)
HEAD = "provider,gpu,node,gpus,usd_per_node_h,currency,as_of\n"


@pytest.fixture
def file(tmp_path):
    """A price file with a row in euros and one in dollars."""
    path = tmp_path / "offers.csv"
    rows = "Acme,H100-SXM,a8,8,16,EUR,2026-11-01\nOther,H100-SXM,o8,8,24,USD,2026-11-01"
    path.write_text(HEAD + rows + "\n")
    return path


def test_a_row_in_the_currency_is_read_at_the_rate_given(file):
    found = offers("H100-SXM", Market(file=file, currency=EUR))

    # 16 EUR at $1.25 are $20 a node of 8 GPUs.
    assert [offer.usd_per_gpu_h for offer in found] == [2.5, 3.0]
    assert found[0].note == "16 EUR at $1.25"
    assert found[1].note == ""


@pytest.mark.parametrize("currency", [USD, Currency("GBP", 1.3)])
def test_a_row_in_another_currency_is_refused_with_what_to_give(file, currency):
    with pytest.raises(
        InputError, match=r"csv:2: currency is 'EUR'.*--currency EUR --exchange-rate"
    ):
        offers("H100-SXM", Market(file=file, currency=currency))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"currency": "EUR"},
            "exchange_rate is not given; expected the dollars of one",
        ),
        ({"exchange_rate": 1.1}, "exchange_rate is 1.1 and currency is not given"),
        ({"currency": "USD", "exchange_rate": 1.1}, "and currency USD"),
        ({"currency": "euro", "exchange_rate": 1.1}, "'euro' is no currency"),
        ({"currency": "EUR", "exchange_rate": 0}, "exchange_rate is 0"),
        ({"currency": "EUR", "exchange_rate": -1}, "exchange_rate is -1"),
        ({"currency": "EUR", "exchange_rate": float("inf")}, "exchange_rate"),
    ],
)
def test_a_rate_that_is_none_is_refused(given, message):
    with pytest.raises(SettingError, match=re.escape(message)):
        OffersSettings(**given)


def test_dollars_need_no_rate():
    assert currency_of("USD", None) == currency_of(None, None) == USD


@given(st.floats(0.001, 1000), st.floats(0, 1e9))
def test_an_amount_is_the_dollars_over_the_rate(usd, amount):
    currency = Currency("CHF", usd)

    assert currency.dollars(currency.amount(amount)) == pytest.approx(amount)


def test_amounts_are_told_with_their_symbol_or_code():
    with shown_in(EUR):
        assert format_usd(1.25) == "€1.00"
        assert format_usd(125_000) == "€100,000"
        assert format_fine_usd(0.05) == "€0.04"
    with shown_in(Currency("CHF", 0.5)):
        assert format_usd(1) == "CHF\N{NO-BREAK SPACE}2.00"
    assert format_usd(1.25) == "$1.25"


def test_nothing_owed_has_no_sign():
    assert format_usd(-1e-12) == "$0.00"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return the settings of a small plan."""
    trace = tmp_path_factory.mktemp("currency") / "own.csv"
    rows = [f"{k / 20:.3f},{50 + k % 97},{20 + k % 31}" for k in range(600)]
    trace.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]) + "\n")
    return {
        "trace": str(trace),
        "llm": "Llama-3.1-8B",
        "gpu": "H100-SXM",
        "tp": 1,
        "slo": "ttft=400ms,tpot=20ms",
        "price": {"H100-SXM": "2.5"},
        "as_of": "2026-11-21",
        "tune": False,
    }


@pytest.fixture(scope="module")
def in_euros(made):
    """The plan in euros of $1.25."""
    return plan(PlanSettings(**made, currency="EUR", exchange_rate=1.25))


@pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")
def test_a_report_tells_every_amount_that_it_reckons_in_the_currency(made, in_euros):
    in_dollars = plan(PlanSettings(**made))
    usd_per_month = in_dollars.best.cost.usd_per_month

    text = markdown(plan_page(in_euros))

    assert f"€{usd_per_month / 1.25:,.0f}" in text
    assert f"{usd_per_month:,.0f}" not in text
    assert "EUR per hour" in text
    assert "amounts in EUR at $1.25 for one, as given" in text
    # What is left in dollars are the rate and the quoted price.
    left = set(re.findall(r"\$[\d.,]*\d", text))
    assert left <= {"$1.25", "$2.50"}
    assert "€" not in markdown(plan_page(in_dollars))


@pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")
def test_json_stays_in_dollars_with_the_currency_beside(made, in_euros):
    values = json.loads(json_text(plan_values(in_euros)))
    dollars = json.loads(json_text(plan_values(plan(PlanSettings(**made)))))

    assert values["candidates"] == dollars["candidates"]
    assert values["settings"]["currency"] == "EUR"
    assert values["settings"]["exchange_rate"] == 1.25


def test_a_plan_in_a_currency_is_verified(made, in_euros, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(json_text(plan_values(in_euros)))

    beside = tmp_path / "own.csv"
    beside.write_bytes(Path(made["trace"]).read_bytes())
    assert verify(path, simulate=True) == []


def test_charges_are_billed_in_the_currency(in_euros):
    (row,) = csv.DictReader(io.StringIO(focus_csv(plan_charges(in_euros))))

    usd = in_euros.best.cost.usd_per_month
    assert row["BillingCurrency"] == "EUR"
    for name in ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost"):
        assert float(row[name]) == pytest.approx(usd / 1.25)
    product = float(row["ListUnitPrice"]) * float(row["PricingQuantity"])
    assert product == pytest.approx(float(row["ListCost"]))
    assert json.loads(row["Tags"])["usd_per_unit_of_currency"] == 1.25


def test_the_workbook_reckons_the_month_in_the_currency_from_the_rate(in_euros):
    content = io.BytesIO(plan_workbook(in_euros))
    book = openpyxl.load_workbook(content)
    values = openpyxl.load_workbook(content, data_only=True)

    (row,) = [
        row[0].row
        for row in book["Summary"].iter_rows()
        if row[0].value == "cost per month in own currency"
    ]

    formula = book["Summary"].cell(row, 2).value
    assert formula == "=usd_per_month/usd_per_unit_of_currency"
    assert "usd_per_unit_of_currency" in book.defined_names
    usd = in_euros.best.cost.usd_per_month
    assert values["Summary"].cell(row, 2).value == pytest.approx(usd / 1.25)
