"""Budgets: bills by hand, laws over all months, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.errors import CapplanWarning, InputError
from capplan.planning.budget.budget import budget
from capplan.planning.budget.settings import BudgetSettings
from capplan.planning.budget.traffic import curve_of, rates_to_simulate
from capplan.planning.load.demand_curve import typical_curve
from capplan.planning.money.bill import Held, Rent, held_by, month_bill, uses
from capplan.planning.money.commitments import Contract, Hours, Term
from capplan.planning.money.ladder import ladder
from capplan.planning.money.spot import spot_nodes
from capplan.settings import SettingError
from capplan.workload.trace import Trace
from tests import budgets
from tests.budgets import PER_REPLICA, stub_plans

ASKED = {**budgets.ASKED, "commit": "reserved:12=40%,reserved:36=60%"}


@pytest.fixture
def planned(monkeypatch):
    """Plans that are not simulated; the rates that were asked for."""
    return stub_plans(monkeypatch)


def made(**more):
    return budget(BudgetSettings(**{**ASKED, **more}))


# A month of 730 h: 365 h at 2 nodes, 365 h at 6.
HALF = Hours.of(np.array([2, 6]))


def test_a_month_is_billed_by_hand():
    held = [Held("3 years", 3, 1, 36, 1.0), Held("1 year", 1, 1, 12, 1.5)]

    bill = month_bill(1, HALF, held, Rent(4.0))

    # 3 nodes: 2 used half the time, 3 the other half; the fourth half the time.
    assert bill.used_by_commitment == pytest.approx((365 * 2 + 365 * 3, 365))
    assert bill.usd_committed == pytest.approx(730 * (3 * 1.0 + 1 * 1.5))
    assert bill.on_demand_node_hours == pytest.approx(365 * 2)
    assert bill.usd == pytest.approx(730 * 4.5 + 365 * 2 * 4)
    assert bill.utilisation == pytest.approx((365 * 5 + 365) / (4 * 730))
    assert bill.coverage == pytest.approx(365 * 6 / (365 * 8))
    assert bill.usd_unused == pytest.approx(365 * 1.0 + 365 * 1.5)


def test_what_is_paid_upfront_is_paid_at_the_start_and_owed_no_more():
    held = [Held("1 year", 2, 3, 14, 1.0, upfront_share=0.5)]
    whole = 2 * 730 * 12

    assert month_bill(2, HALF, held, Rent(4.0)).usd_owed == 0
    first = month_bill(3, HALF, held, Rent(4.0))
    assert first.usd_paid - first.usd_on_demand == pytest.approx(
        whole / 2 + whole / 2 / 12
    )
    assert first.usd_owed == pytest.approx(whole / 2 * 11 / 12)
    assert month_bill(15, HALF, held, Rent(4.0)).usd_committed == 0


def test_a_least_bill_is_reached():
    bill = month_bill(1, HALF, (), Rent(1.0, least_usd_per_month=5000.0))

    assert bill.usd_on_demand == pytest.approx(730 * 4)
    assert bill.usd_to_minimum == pytest.approx(5000 - 730 * 4)
    assert bill.usd == bill.usd_paid == pytest.approx(5000)


def test_spot_serves_its_share_with_nodes_to_spare():
    rent = Rent(4.0, spot=1.0, spot_share=0.5, spot_there=0.99)

    bill = month_bill(1, HALF, (), rent)

    # 1 of 2 nodes and 3 of 6 may be spot.
    paid = 365 * (spot_nodes(1, 0.99) + spot_nodes(3, 0.99))
    assert bill.on_demand_node_hours == pytest.approx(365 * (1 + 3))
    assert bill.spot_node_hours == pytest.approx(paid)


def test_spot_that_costs_more_with_its_spares_is_not_taken():
    rent = Rent(1.5, spot=1.0, spot_share=0.5, spot_there=0.9)

    assert month_bill(1, HALF, (), rent).spot_node_hours == 0


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=12),
    st.integers(0, 9),
    st.floats(0.1, 0.9),
    st.floats(0, 1),
    st.floats(0.8, 1),
)
def test_every_node_hour_is_served_and_spot_costs_no_more(
    day, committed, price, share, there
):
    hours, held = Hours.of(np.array(day)), []
    if committed:
        held = [Held("a", committed, 1, 1, 0.3)]
    rent = Rent(1.0, spot=price, spot_share=share, spot_there=there)

    with_spot = month_bill(1, hours, held, rent)
    without = month_bill(1, hours, held, Rent(1.0))

    assert with_spot.usd <= without.usd + 1e-9
    assert without.on_demand_node_hours + without.used_node_hours == pytest.approx(
        hours.node_hours
    )
    served = with_spot.on_demand_node_hours + with_spot.spot_node_hours
    assert served + with_spot.used_node_hours >= hours.node_hours - 1e-6


@given(
    st.lists(
        st.lists(st.integers(0, 9), min_size=1, max_size=6), min_size=1, max_size=9
    ),
    st.integers(0, 4),
    st.integers(1, 12),
)
def test_the_bills_of_a_ladder_add_up_to_what_it_chose_by(days, nodes, until):
    wanted = [Hours.of(np.array(day)) for day in days]
    terms = [Term("short", 2, 0.7), Term("long", 5, 0.5)]
    contracts = [Contract(nodes, 0.2, until)] if nodes else []
    fixed = [nodes if month <= until else 0 for month in range(1, len(days) + 1)]

    chosen = ladder(wanted, terms, 1.0, fixed=fixed)
    held = held_by(contracts, terms, chosen.bought)
    bills = [month_bill(m, each, held, Rent(1.0)) for m, each in enumerate(wanted, 1)]
    found = uses(held, bills, 1.0)

    rows = [use for use in found if not use.held.is_contract]
    on_demand = sum(bill.usd_on_demand for bill in bills)
    assert sum(use.usd for use in rows) + on_demand == pytest.approx(
        chosen.objective_usd
    )
    assert sum(use.usd_owed_after for use in found) == pytest.approx(bills[-1].usd_owed)
    assert sum(use.usd_unused for use in found) == pytest.approx(
        sum(bill.usd_unused for bill in bills)
    )
    for bill in bills:
        assert sum(bill.used_by_commitment) == pytest.approx(bill.used_node_hours)
        assert bill.used_node_hours <= bill.node_hours + 1e-6


def test_rates_are_simulated_at_the_peaks_of_the_anchors_and_at_the_quietest_hour():
    curve = typical_curve(10.0)
    quietest = float(curve.peak_per_s.min())

    rates = rates_to_simulate(curve, [1.0, 2.0, 4.0], (1, 3))

    assert rates[0] == pytest.approx(quietest, rel=1e-5)
    assert rates[-1] == pytest.approx(40.0)
    assert any(rate == pytest.approx(10.0) for rate in rates)
    assert len(rates) >= 4


def test_rates_too_small_to_tell_anything_are_not_simulated(planned):
    found = made(growth="-99%/month", horizon_months=36)

    assert min(planned) >= 1.0 - 1e-6
    assert found.months[-1].replicas == 1


def test_traffic_beyond_any_simulation_is_refused(planned):
    with pytest.raises(InputError, match="at most 100,000"):
        made(growth="100%/month")


def test_traffic_that_shrinks_peaks_in_its_first_month():
    rates = rates_to_simulate(typical_curve(10.0), [1.0, 0.5], (1, 2))

    assert max(rates) == pytest.approx(10.0)


def test_a_budget_of_a_rate_takes_a_typical_week_and_says_so(planned):
    found = made(horizon_months=36, growth="3%/month")

    assert found.curve.is_typical
    assert found.months[0].busiest_per_s == pytest.approx(100)
    assert found.months[35].busiest_per_s == pytest.approx(100 * 1.03**35)
    assert max(planned) == pytest.approx(100 * 1.03**35, rel=1e-5)
    assert [m.month for m in found.months if m.known_by == "simulated"][:2] == [1, 12]
    assert found.largest_fraction < 1e-9


def test_a_month_costs_what_its_hours_do(planned):
    found = made(horizon_months=1, commit="none")
    replicas = np.ceil(found.curve.peak_per_s / PER_REPLICA).astype(int)

    month = found.months[0]

    # Between simulated rates the law may say one more.
    assert np.abs(month.nodes - replicas).max() <= 1
    assert month.bill.usd == pytest.approx(month.hours.node_hours * 2)
    assert month.hours.node_hours > month.nodes.mean() * 730


def test_the_budget_costs_no_more_than_without_commitments(planned):
    found = made(horizon_months=24, growth="-2%/month")

    rows = {row.name: row.usd for row in found.alternatives}
    charged = found.usd + found.usd_owed_after
    assert charged <= rows["scheduled, on demand"] + 1e-6
    assert rows["scheduled, on demand"] <= rows["static, on demand"]
    assert rows["scheduled, committed"] == pytest.approx(found.usd)


def test_counting_within_the_horizon_owes_more_afterwards(planned):
    asked = {"horizon_months": 24, "growth": "2%/month", "commit": "reserved:36=60%"}

    full, within = made(**asked), made(**asked, charge="horizon")

    assert within.usd_owed_after > full.usd_owed_after
    assert within.usd <= full.usd


def test_a_static_fleet_pays_its_peak_at_all_hours(planned):
    month = made(horizon_months=1, fleet="static", commit="none").months[0]

    assert month.bill.node_hours == pytest.approx(730 * 13)


def test_spares_are_paid_at_every_hour(planned):
    asked = {"horizon_months": 1, "commit": "none"}

    more = made(**asked, spares=2).months[0].hours.node_hours

    assert more == pytest.approx(made(**asked).months[0].hours.node_hours + 2 * 730)


def test_a_contract_runs_before_anything_is_bought(planned):
    found = made(horizon_months=12, contract="5@0.5:24")

    first = found.commitments[0]
    assert first.held.is_contract
    assert first.usd_owed_after == pytest.approx(12 * 5 * 0.5 * 730)
    assert found.months[0].bill.committed_nodes >= 5


def test_quotas_too_small_are_an_answer(planned):
    found = made(horizon_months=12, growth="5%/month", quota="committed=4,on-demand=10")

    assert found.months == ()
    assert found.infeasible_reason.startswith("month 4 needs 15 nodes at its peak")


def test_spot_lowers_the_bill_within_its_share(planned):
    asked = {"horizon_months": 3, "commit": "none"}

    spot = made(**asked, spot_share=0.3, spot_price=0.8, spot="15%/month")

    assert spot.usd < made(**asked).usd
    bill = spot.months[0].bill
    assert 0 < bill.spot_node_hours < 0.6 * bill.node_hours


def test_owned_nodes_are_set_beside_rented_ones(planned):
    found = made(horizon_months=12, owned="default", grid="FRA")

    ways = {row.name: row for row in found.ways}
    own = ways["owned"].usd_per_gpu_h
    assert ways["on demand"].owned_break_even == pytest.approx(own / 2)
    assert "static, owned" in {row.name for row in found.alternatives}
    first = found.months[0]
    assert first.t_co2e == pytest.approx(first.kwh * 56.039 / 1e6)
    assumed = {row.what for row in found.assumptions if row.how == "assumed"}
    assert {"owned: capex", "owned: pue", "power"} <= assumed


def test_assumed_discounts_are_starred(planned):
    found = budget(BudgetSettings(**{k: v for k, v in ASKED.items() if k != "commit"}))

    assert all(term.is_assumed for term in found.prices.terms)
    assert all(month.is_doubtful for month in found.months)


def test_a_rate_changes_no_fleet_of_a_trace_that_has_no_times(planned):
    found = made(horizon_months=1)

    assert not any("not simulated" in text for text in found.warnings)


def test_a_trace_of_a_week_has_its_own_hours(planned):
    found = made(
        workload="azure-week-like", rate=None, horizon_months=2, compare_fleets=False
    )

    assert len(found.curve.peak_per_s) == 168
    assert not found.curve.is_short


def test_a_rate_scales_the_hours_of_a_trace_and_not_its_time():
    week = np.sort(np.random.default_rng(0).uniform(0, 7 * 86_400, 20_000))
    ones = np.ones(len(week), np.int64)
    settings = BudgetSettings(**{**ASKED, "rate": 5})

    curve = curve_of(Trace(ones, ones, week), settings)

    assert len(curve.peak_per_s) == 168
    assert curve.mean_per_s.mean() == pytest.approx(5)


def test_an_hour_of_requests_tells_no_day():
    ones = np.ones(600, np.int64)
    settings = BudgetSettings(**{**ASKED, "rate": None})

    with pytest.warns(CapplanWarning, match="the hours of a day are not known"):
        curve = curve_of(Trace(ones, ones, np.arange(600) * 6.0), settings)

    assert curve.is_typical
    assert curve.busiest_per_s == pytest.approx(1 / 6, rel=0.02)


def test_tokens_of_a_request_may_grow_too(planned):
    found = made(horizon_months=2, growth="tokens=100%/month")

    first, second = found.months
    assert second.busiest_per_s == pytest.approx(first.busiest_per_s)
    assert second.replicas == pytest.approx(2 * first.replicas, abs=1)
    assert second.output_tokens == pytest.approx(2 * first.output_tokens)


@pytest.mark.parametrize(
    ("more", "setting"),
    [
        ({"growth": "-100%/month"}, "growth"),
        ({"growth": "3%"}, "growth"),
        ({"horizon_months": 0}, "horizon_months"),
        ({"horizon_months": 12, "anchor_months": 24}, "anchor_months"),
        ({"commit": "none,reserved:12"}, "commit"),
        ({"commit": "reserved:12=100%"}, "commit"),
        ({"commit": "flex:12"}, "commit"),
        ({"quota": "gpus=3"}, "quota"),
        ({"quota": "spot=-3"}, "quota"),
        ({"spot_price": 1.0}, "spot_price"),
        ({"spot_share": 1.5}, "spot_share"),
        ({"owned": "capx=3"}, "owned"),
        ({"grid": "Atlantis"}, "grid"),
        ({"contract": "6 nodes"}, "contract"),
        ({"policies": "hpaa"}, "policies"),
    ],
)
def test_wrong_settings_are_refused_by_name(more, setting):
    with pytest.raises(SettingError) as refused:
        BudgetSettings(**{**ASKED, **more})

    assert refused.value.setting == setting


@pytest.mark.parametrize(
    ("more", "part"),
    [
        ({"commit": "reserved:24"}, "no offer of 24 months"),
        ({"spot_share": 0.3, "spot_price": 3.0}, "not below the price on demand"),
        ({"owned": "gpus=4"}, "give capex"),
        ({"slo": ()}, "no SLO"),
        ({"rate": None}, "rate"),
    ],
)
def test_what_no_budget_can_be_made_of_is_refused(planned, more, part):
    with pytest.raises(InputError, match=part):
        made(**more)
