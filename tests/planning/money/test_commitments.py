import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.errors import InputError
from capplan.planning.money.commitments import (
    Contract,
    Hours,
    Term,
    base_quantile,
    committed_base,
    parse_contract,
    present_factor,
)
from capplan.planning.money.ladder import FULL, WITHIN, Quota, SpotTerms, ladder

DAY = st.lists(st.integers(0, 12), min_size=1, max_size=40)


def bill(hours: Hours, committed: int, price: float, on_demand: float) -> float:
    """Return what a month costs, hour by hour."""
    paid = 0.0
    for nodes, lasts in zip(hours.nodes, hours.hours, strict=True):
        paid += lasts * (committed * price + max(nodes - committed, 0) * on_demand)
    return paid


@pytest.mark.parametrize(
    ("months", "discount", "share"), [(12, 0.36, 0.668), (36, 0.60, 0.451)]
)
def test_a_discount_paid_upfront_is_worth_less_in_present_value(
    months, discount, share
):
    # money.md 1.5: 36 % over a year, 60 % over three, all upfront, at 8 % a year.
    assert round((1 - discount) * present_factor(months, 1.0, 0.08), 3) == share


def test_a_term_paid_by_the_month_has_its_own_price():
    assert present_factor(36, 0.0, 0.08) == pytest.approx(1.0)


@given(DAY, st.floats(0.05, 1.5))
def test_the_base_costs_no_more_than_any_other(day, price):
    hours = Hours.of(np.array(day))

    base = committed_base(hours, price, 1.0)

    costs = [bill(hours, count, price, 1.0) for count in range(max(day) + 2)]
    assert math.isclose(costs[base], min(costs), rel_tol=1e-9)


def test_the_base_is_a_quantile_of_the_hours():
    hours = Hours.of(np.arange(1, 101))

    assert base_quantile(0.62, 1.0) == pytest.approx(0.38)
    assert committed_base(hours, 0.62, 1.0) == 38


def test_nothing_is_committed_at_the_price_on_demand():
    assert committed_base(Hours.of(np.array([3, 4])), 1.0, 1.0) == 0


def test_a_month_has_730_hours_whatever_was_seen():
    hours = Hours.of(np.array([1, 1, 4]))

    assert hours.hours.sum() == pytest.approx(730)
    assert hours.node_hours == pytest.approx(730 * 2)
    assert hours.within(1) == pytest.approx(730)


def dearest(wanted, terms, bought, on_demand, charge=FULL, fixed=None):
    """Return what purchases cost, month by month and hour by hour."""
    paid = 0.0
    running = [0 if fixed is None else fixed[month] for month in range(len(wanted))]
    for term, row in zip(terms, bought, strict=True):
        for start, nodes in enumerate(row):
            runs = range(start, min(start + term.months, len(wanted)))
            months = term.months if charge == FULL else len(runs)
            paid += nodes * months * 730 * term.usd_per_node_h
            for month in runs:
                running[month] += nodes
    for hours, held in zip(wanted, running, strict=True):
        paid += bill(hours, held, 0.0, on_demand)
    return paid


def purchases(terms, months, most):
    """Yield all purchases of up to some nodes of each term in each month."""
    for flat in np.ndindex(*[most + 1] * (terms * months)):
        yield np.reshape(flat, (terms, months))


@pytest.mark.thorough
@given(
    st.lists(
        st.lists(st.integers(0, 2), min_size=1, max_size=3), min_size=3, max_size=3
    ),
    st.floats(0.2, 1.2),
    st.floats(0.2, 1.2),
    st.sampled_from([FULL, WITHIN]),
    st.integers(0, 1),
)
def test_the_ladder_costs_as_little_as_the_best_of_all_purchases(
    months, short, long, charge, held
):
    wanted = [Hours.of(np.array(month)) for month in months]
    terms = [Term("short", 1, short), Term("long", 2, long)]
    fixed = [held, 0, 0]

    found = ladder(wanted, terms, 1.0, fixed=fixed, charge=charge)

    best = min(
        dearest(wanted, terms, bought, 1.0, charge, fixed)
        for bought in purchases(2, 3, 2)
    )
    own = dearest(wanted, terms, found.bought, 1.0, charge, fixed)
    assert found.largest_fraction < 1e-9
    assert own == pytest.approx(best, abs=1e-6)


@given(
    st.lists(DAY, min_size=1, max_size=8),
    st.floats(0.2, 0.9),
    st.integers(1, 10),
    st.floats(0, 1),
)
def test_the_ladder_is_whole_and_serves_every_hour(days, price, months, share):
    wanted = [Hours.of(np.array(day)) for day in days]
    terms = [Term("a", months, price), Term("b", 2 * months, 0.8 * price)]
    most = max(hours.most for hours in wanted)
    quota = Quota(committed=most // 2, on_demand=most, spot=1)

    found = ladder(wanted, terms, 1.0, spot=SpotTerms(0.5, share), quota=quota)

    assert found.largest_fraction < 1e-9
    for month in range(found.bought.shape[1]):
        active = sum(
            bought[max(0, month - term.months + 1) : month + 1].sum()
            for term, bought in zip(terms, found.bought, strict=True)
        )
        assert active <= most // 2


def test_thirty_six_months_of_a_busy_week_take_less_than_a_second():
    rng = np.random.default_rng(0)
    day = 100 + 80 * np.sin(np.arange(168) * np.pi / 12) + rng.integers(0, 30, 168)
    wanted = [Hours.of(np.ceil(day * 1.03**month)) for month in range(36)]
    terms = [Term("1 year", 12, 0.65), Term("3 years", 36, 0.45)]

    began = time.process_time()
    found = ladder(wanted, terms, 1.0)

    assert time.process_time() - began < 1.0
    assert found.largest_fraction < 1e-9


def test_full_terms_are_not_bought_at_the_end_of_the_horizon():
    wanted = [Hours.of(np.full(24, 4))] * 36
    terms = [Term("3 years", 36, 0.45)]

    full = ladder(wanted[:24], terms, 1.0)
    within = ladder(wanted[:24], terms, 1.0, charge=WITHIN)

    # 24 of 36 months at 0.45 cost 0.675 of on demand when the whole term is charged.
    assert full.bought.sum() == 4
    assert full.objective_usd == pytest.approx(4 * 36 * 730 * 0.45)
    assert within.objective_usd == pytest.approx(4 * 24 * 730 * 0.45)


def test_a_term_is_sold_in_lots():
    wanted = [Hours.of(np.full(24, 3))] * 12
    alone = [Term("1 year", 12, 0.6, min_nodes=4)]
    dear = [Term("1 year", 12, 0.9, min_nodes=4)]

    # 4 nodes at 0.6 cost 2.4, less than 3 on demand; at 0.9 they cost 3.6.
    assert ladder(wanted, alone, 1.0).bought.sum() == 4
    assert ladder(wanted, dear, 1.0).bought.sum() == 0


def test_quotas_too_small_say_which_and_when():
    wanted = [Hours.of(np.array([3])), Hours.of(np.array([3, 9]))]
    quota = Quota(committed=4, on_demand=2, spot=1)

    refusal = quota.refusal(wanted, [0, 0], SpotTerms(0.3, 0.5))

    assert refusal == (
        "month 2 needs 9 nodes at its peak, and the quotas allow 7: 4 committed, "
        "2 on demand, 1 spot"
    )
    assert quota.refusal(wanted[:1], [0], None) == ""


@given(
    st.lists(DAY, min_size=1, max_size=5),
    st.integers(0, 8),
    st.integers(0, 8),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_a_ladder_exists_exactly_where_no_quota_is_refused(
    days, committed, on_demand, spot, held
):
    wanted = [Hours.of(np.array(day)) for day in days]
    fixed = [held if month < 2 else 0 for month in range(len(days))]
    quota, terms = Quota(committed, on_demand, spot), [Term("a", 2, 0.5)]
    spots = SpotTerms(0.3, 0.5)

    refused = quota.refusal(wanted, fixed, spots)

    if refused:
        with pytest.raises(InputError, match="no commitments within the quotas"):
            ladder(wanted, terms, 1.0, fixed=fixed, spot=spots, quota=quota)
    else:
        ladder(wanted, terms, 1.0, fixed=fixed, spot=spots, quota=quota)


def test_a_contract_is_read():
    assert parse_contract("6@$24.60:18") == Contract(6, 24.6, 18)


@pytest.mark.parametrize("text", ["6", "6@3", "0@3:4", "6@-1:4", "6@3:0", "x@3:4"])
def test_a_contract_that_is_none_is_refused(text):
    with pytest.raises(InputError, match="contract"):
        parse_contract(text)
