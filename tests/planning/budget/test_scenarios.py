"""Scenarios of a budget: other growth, traffic, answers and prices, side by side."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.errors import InputError
from capplan.planning.budget.budget import budget
from capplan.planning.budget.scenarios import (
    Scenario,
    parse_scenarios,
    scenarios_by_name,
)
from capplan.planning.budget.settings import BudgetSettings
from capplan.planning.load.traffic import read_requests
from capplan.planning.plan.plan import plan
from capplan.report.pages.budget import budget_page, budget_values
from capplan.report.render.json_text import json_text
from capplan.report.render.markdown import markdown
from capplan.settings import SettingError
from tests import budgets
from tests.budgets import stub_plans

ASKED = {
    **budgets.ASKED,
    "commit": "reserved:12=40%",
    "horizon_months": 14,
    "growth": "2%/month",
}
CHANGED = {"growth": "5%/month", "scale": 1.5, "price": 1.25}


@pytest.fixture
def planned(monkeypatch):
    """Plans that are not simulated; the rates that were asked for."""
    return stub_plans(monkeypatch)


def made(**more):
    return budget(BudgetSettings(**{**ASKED, **more}))


@pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")
def test_a_scenario_is_the_budget_with_its_changes(planned):
    (row,) = made(scenarios={"high": CHANGED}).scenarios

    # By hand: 1.5 times the rate, and $2 x 1.25 a GPU-hour.
    alone = made(growth="5%/month", rate=150, price="H100-SXM=2.5")
    assert row.name == "high"
    assert row.changes == "growth 5%/month, scale 1.5, price 1.25"
    assert row.usd == pytest.approx(alone.usd)
    assert row.usd_owed_after == pytest.approx(alone.usd_owed_after)
    assert row.replicas == alone.months[0].replicas
    assert row.replicas_last_month == alone.months[-1].replicas
    assert row.nodes_last_month == alone.months[-1].bill.nodes
    assert row.usd_first_month == pytest.approx(alone.months[0].bill.usd)
    year = sum(month.bill.usd for month in alone.months[:12])
    assert row.usd_first_year == pytest.approx(year)


@pytest.mark.thorough
def test_a_scenario_of_more_traffic_is_planned_at_its_own_rate():
    month = {"growth": "0%/month", "horizon_months": 1, "commit": "none"}

    (row,) = made(**month, scenarios={"high": {"scale": 1.5}}).scenarios
    alone = made(**month, rate=150)

    assert row.replicas == alone.months[0].replicas
    assert row.usd == pytest.approx(alone.usd)


def test_a_scenario_that_changes_nothing_is_the_budget(planned):
    found = made(scenarios={"expected": None})
    asked = len(planned)

    (row,) = found.scenarios
    assert (row.usd, row.changes) == (found.usd, "as asked")
    assert asked == len(set(planned))  # nothing was planned twice


def test_of_less_than_a_year_no_year_is_told(planned):
    (row,) = made(scenarios={"expected": {}}, horizon_months=11).scenarios

    assert row.usd_first_year is None
    assert row.usd is not None


@pytest.mark.thorough
@settings(max_examples=30)
@given(st.floats(0.5, 3.0), st.floats(0.5, 2.0))
def test_more_traffic_or_higher_prices_never_cost_less(scale, price):
    with pytest.MonkeyPatch.context() as patch:
        stub_plans(patch)
        low, high = made(
            scenarios={
                "low": {"scale": scale, "price": price},
                "high": {"scale": scale * 1.2, "price": price * 1.1},
            },
            horizon_months=3,
        ).scenarios

    assert low.usd <= high.usd
    assert low.nodes_last_month <= high.nodes_last_month


def test_prices_scale_the_whole_bill(planned):
    found = made(scenarios={"dear": {"price": 2}}, spot_share=0.3, spot_price=1)

    # Nothing but prices differs: no least bill, and a ladder of the same ratios.
    assert found.scenarios[0].usd == pytest.approx(2 * found.usd)


def test_contracts_that_run_already_keep_their_price(planned):
    found = made(
        scenarios={"dear": {"price": 2}},
        contract="13@1:14",
        commit="none",
        growth="0%/month",
    )

    held = 13 * 1 * 730 * 14
    (row,) = found.scenarios
    assert row.usd - held == pytest.approx(2 * (found.usd - held))


def test_quotas_too_small_for_a_scenario_say_so(planned):
    peak = made().months[-1].bill.nodes
    (row,) = made(
        scenarios={"high": {"scale": 3}}, quota=f"on-demand={peak},committed=0"
    ).scenarios

    assert row.usd is None
    assert "17 on demand" in row.infeasible_reason


def test_answers_of_a_scenario_are_as_long_as_it_says():
    settings = BudgetSettings(**ASKED, output_scale=2)

    changed = settings.under(Scenario(output_scale=1.5)).at_rate(10)

    assert changed.output_scale == 3.0
    assert settings.under(Scenario(output_scale=0.5)).output_scale is None


@pytest.mark.parametrize("factor", [0.001, 0.5, 1.7])
def test_answers_are_scaled_and_prompts_are_not(factor):
    plain = read_requests(BudgetSettings(**ASKED))

    scaled = read_requests(BudgetSettings(**ASKED, output_scale=factor))

    by_hand = [
        max(1, round(tokens * factor)) for tokens in plain.output_tokens.tolist()
    ]
    assert scaled.output_tokens.tolist() == by_hand
    assert np.array_equal(scaled.prompt_tokens, plain.prompt_tokens)
    assert f"answers {factor:g} times as long" in scaled.notes[-1]


def test_scenarios_of_flags_are_those_of_yaml():
    flags = scenarios_by_name(
        ["low:scale=0.8", "high:growth=users=3%/month,tokens=10%/year,price=1.1"]
    )

    assert parse_scenarios(flags) == parse_scenarios(
        {
            "low": {"scale": 0.8},
            "high": {
                "growth": {"users": "3%/month", "tokens": "10%/year"},
                "price": 1.1,
            },
        }
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"high": {"rate": 2}}, "high: 'rate' is no key; expected growth, scale"),
        ({"high": {"scale": 0}}, "high: scale is 0; expected a factor"),
        ({"high": {"scale": "x2"}}, "high: scale is 'x2'"),
        ({"high": {"scale": True}}, "scale"),
        ({"high": {"price": -1}}, "high: price is -1"),
        ({"high": {"price": float("nan")}}, "price"),
        ({"high": {"growth": "-100%/month"}}, "high: growth"),
        ({"high": {"growth": "3%"}}, "is no rate"),
        ({" ": {"scale": 2}}, "a scenario has no name"),
        ({f"s{n}": {} for n in range(9)}, "9 scenarios; expected at most 8"),
        ({"high": 3}, "valid dictionary"),
        ("high:scale", "'scale' is no change"),
        ("high:scale=1,scale=2", "scale is given twice"),
        (["a:scale=1", "a:scale=2"], "a is given twice"),
    ],
)
def test_what_is_no_scenario_is_refused(given, message):
    with pytest.raises((SettingError, InputError), match=message):
        BudgetSettings(**{**ASKED, "scenarios": given})


def test_scenarios_are_in_every_format(planned):
    found = made(scenarios={"low": {"scale": 0.5}, "high": {"scale": 2}})

    values = json.loads(json_text(budget_values(found)))
    page = budget_page(found)

    assert [row["name"] for row in values["scenarios"]] == ["low", "high"]
    assert values["scenarios"][1]["usd"] == found.scenarios[1].usd
    assert len(page.csv["scenarios.csv"].rows) == 2
    assert f"${found.scenarios[1].usd:,.0f}" in markdown(page)


@pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")
def test_scenarios_that_differ_in_money_alone_plan_nothing_again(monkeypatch):
    rates = []

    def noted(settings, *args, **options):
        rates.append(settings.rate)
        return plan(settings, *args, **options)

    monkeypatch.setattr("capplan.planning.plan.demand.plan", noted)
    alone = made(growth="0%/month")
    planned = [*rates]
    rates.clear()

    dear = made(growth="0%/month", scenarios={"dear": {"price": 1.25}, "same": None})

    assert rates == planned
    assert dear.usd == alone.usd < dear.scenarios[0].usd
    assert dear.scenarios[1].usd == alone.usd
