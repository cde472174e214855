"""Nodes that are rented for some months at least, in plans and budgets."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.errors import InputError, collected_warnings
from capplan.fleet.prices import Market, price
from capplan.planning.budget.budget import budget
from capplan.planning.budget.kept_months import lengths_on_sale, peaks_of, rentals
from capplan.planning.budget.settings import BudgetSettings
from capplan.planning.money.bill import Rent, held_by, month_bill
from capplan.planning.money.commitments import Hours
from capplan.planning.money.ladder import Quota, ladder
from capplan.planning.money.node_prices import NodePrices
from capplan.report.pages.budget import budget_values
from capplan.report.received.verify_budget import verify_budget
from capplan.report.render.json_text import json_text
from tests import budgets
from tests.budgets import stub_plans

HEAD = "gpu,node,gpus,provider,kind,usd_per_node_h,term_months,min_months,as_of\n"


def sold(least, usd=2.0):
    return NodePrices(
        "P", "n", "", 1, False, usd, is_doubtful=False, terms=(), min_months=least
    )


def rented(peaks, least):
    """Return what is rented for the peaks of months, and its whole dollars over $2."""
    wanted = [Hours.of(np.array([peak])) for peak in peaks]
    lengths = lengths_on_sale(sold(least), len(peaks))
    found = ladder(peaks_of(wanted), lengths, 2.0, quota=Quota(on_demand=0))
    held = rentals(lengths, found.bought, least)
    return held, sum(each.nodes * each.months for each in held)


@pytest.mark.parametrize(
    ("peaks", "least", "node_months"),
    [
        ([1, 0, 0], 1, 1),
        ([1, 0, 0], 2, 2),  # kept for a month that does not need it
        ([1, 0, 0], 6, 6),  # and after the last month
        ([1, 0, 2, 0, 0], 3, 6),  # the first is given back when its months are over
        ([5, 0, 5, 0], 2, 15),  # kept through a month, not rented twice
        ([5, 0, 0, 5], 2, 20),
        ([2, 2, 2], 2, 6),  # kept longer than the least
        ([1, 1, 1, 3], 2, 3 + 1 + 4),
        ([0, 0], 4, 0),
    ],
)
def test_each_node_is_paid_for_its_least_months(peaks, least, node_months):
    held, paid = rented(peaks, least)

    assert paid == node_months
    assert all(each.months >= least for each in held)


def brute_force(peaks, least):
    """Return the fewest node-months of rentals that serve all peaks, by trying all."""
    months = len(peaks)
    spans = [
        (start, end)
        for start in range(months)
        for end in range(start + least, max(months, start + least) + 1)
    ]
    best = None
    most = max(peaks)
    for counts in itertools.product(range(most + 1), repeat=len(spans)):
        rows = [(n, *span) for n, span in zip(counts, spans, strict=True)]
        serves = all(
            sum(n for n, start, end in rows if start <= month < end) >= peak
            for month, peak in enumerate(peaks)
        )
        if serves:
            paid = sum(n * (end - start) for n, start, end in rows)
            best = paid if best is None else min(best, paid)
    return best


@settings(max_examples=25)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=4), st.integers(2, 3))
def test_no_other_rentals_cost_less(peaks, least):
    _, paid = rented(peaks, least)

    assert paid == brute_force(peaks, least)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=14), st.integers(1, 8))
def test_rentals_serve_every_month_and_none_ends_early(peaks, least):
    held, _ = rented(peaks, least)

    for month, peak in enumerate(peaks, 1):
        assert sum(each.nodes for each in held if each.runs(month)) >= peak
    assert all(each.months >= least for each in held)
    assert all(each.firm_month == each.first_month + least - 1 for each in held)


def test_only_the_least_months_are_owed():
    held, _ = rented([1, 1, 1, 1], 2)

    bills = [
        month_bill(month, Hours.of(np.array([1])), held, Rent(2.0))
        for month in (1, 2, 3)
    ]
    assert [bill.usd_owed for bill in bills] == [2.0 * 730, 0.0, 0.0]
    assert bills[0].usd == 2.0 * 730


def test_without_least_months_nothing_is_rented_by_the_month():
    assert lengths_on_sale(sold(0), 12) == []
    assert rentals([], np.zeros((0, 12), np.int64), 0) == []
    assert held_by([], [], np.zeros((0, 3), np.int64)) == []


@pytest.fixture
def offers(tmp_path):
    """A price file of one provider that rents for three months at least."""
    path = tmp_path / "offers.csv"
    path.write_text(
        HEAD
        + "H100-SXM,n8,8,P,on-demand,16,,3,2026-11-01\n"
        + "H100-SXM,n8,8,P,reserved,12,12,,2026-11-01\n"
    )
    return str(path)


@pytest.fixture
def asked(monkeypatch, offers):
    stub_plans(monkeypatch)
    return {
        **budgets.ASKED,
        "price": {},
        "prices": offers,
        "horizon_months": 6,
        "as_of": "2026-11-20",
        "commit": "none",
    }


def test_a_budget_pays_whole_months_of_nodes_that_are_not_rented_by_the_hour(asked):
    with collected_warnings() as texts:
        found = budget(BudgetSettings(**asked, growth="0%/month"))

    peak = found.months[0].bill.nodes
    assert found.usd == pytest.approx(6 * 730 * 16 * peak)
    assert all(month.bill.usd_on_demand == 0 for month in found.months)
    assert found.usd_owed_after == 0
    said = [*texts, *found.warnings]
    assert any("nodes are rented for 3 months at least" in text for text in said)


@pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")
def test_what_outlasts_the_budget_is_owed(asked):
    found = budget(BudgetSettings(**{**asked, "horizon_months": 2}))

    # Rented in month 1 for three months; the third lies behind the budget.
    first = found.months[0].bill.nodes
    grown = found.months[1].bill.nodes - first
    assert found.usd_owed_after == pytest.approx(730 * 16 * (first + 2 * grown))


@pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")
def test_cheaper_terms_are_bought_instead(asked):
    terms = {**asked, "horizon_months": 12, "commit": "reserved:12"}
    found = budget(BudgetSettings(**terms, growth="0%/month"))

    assert [use.held.name for use in found.commitments] == ["reserved, 12 months"]
    assert found.usd == pytest.approx(12 * 730 * 12 * found.months[0].bill.nodes)


@pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")
def test_such_a_budget_is_verified(asked, tmp_path):
    found = budget(BudgetSettings(**asked, growth="8%/month"))
    path = tmp_path / "budget.json"
    document = json.loads(json_text(budget_values(found)))
    path.write_text(json.dumps(document))

    given = {"prices": str(asked["prices"])}
    assert verify_budget(path, simulate=True, given=given) == []

    document["commitments"][0]["firm_month"] += 1
    path.write_text(json.dumps(document))
    assert any("usd_owed" in reason for reason in verify_budget(path, simulate=False))


@pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")
@pytest.mark.parametrize(
    ("name", "value"), [("quota", "on-demand=8"), ("spot_share", 0.2)]
)
def test_what_needs_nodes_by_the_hour_is_refused(asked, name, value):
    more = {"spot_price": 1} if name == "spot_share" else {}

    with pytest.raises(InputError, match=f"3 months at least; expected no {name}"):
        budget(BudgetSettings(**asked, **{name: value}, **more))


def test_a_plan_says_for_how_long_its_nodes_are_rented(offers):
    found = price("H100-SXM", Market(file=Path(offers)))

    assert "rented for 3 months at least" in found.note
