import math
from itertools import product

import numpy as np
import pytest

from capplan.errors import InputError
from capplan.planning.money.owned import (
    Owned,
    capital_recovery,
    kwh,
    owned_node,
    parse_owned,
)
from capplan.planning.money.spot import availability, spot_nodes

# The worked example of the design: 8 x H100, 4 years, 10 % left, 5 % support, no staff.
OWN = Owned(300_000, 8, 10.2, life=4, residual=0.10, support=0.05, usd_per_kwh=0.089)
COLOCATED = Owned(300_000, 8, 10.2, life=4, residual=0.10, support=0.05, colocation=200)


def test_an_owned_gpu_costs_as_the_worked_example_says():
    parts = {name: usd / (8760 * 8) for name, usd in OWN.usd_per_node_year().items()}

    assert round(OWN.usd_per_gpu_h(), 2) == 1.70
    assert round(COLOCATED.usd_per_gpu_h(), 2) == 1.92
    assert round(parts["capital"], 2) == 1.35
    assert round(parts["power"], 2) == 0.13
    assert round(parts["support"], 2) == 0.21


@pytest.mark.parametrize(
    ("rent", "own", "colocated"), [(2.49, 0.68, 0.77), (6.88, 0.25, 0.28)]
)
def test_owning_pays_from_a_utilisation_on(rent, own, colocated):
    assert round(OWN.break_even(rent), 2) == own
    assert round(COLOCATED.break_even(rent), 2) == colocated


def test_straight_line_has_no_interest():
    # 300,000 x 1.12 less 30,000, over 4 years.
    year = OWN.usd_per_node_year(straight_line=True)

    assert year["capital"] == pytest.approx((336_000 - 30_000) / 4)
    assert OWN.usd_per_gpu_h(straight_line=True) < OWN.usd_per_gpu_h()


def test_level_payments_repay_what_was_borrowed():
    owed = 1.0
    for _ in range(7):
        owed = owed * 1.08 - capital_recovery(0.08, 7)

    assert owed == pytest.approx(0.0, abs=1e-12)


def test_energy_is_power_times_hours_and_the_site():
    assert kwh(3 * 730, 10.2, 0.75, 1.54) == pytest.approx(3 * 730 * 10.2 * 0.75 * 1.54)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("capx=3", "did you mean capex"),
        ("life=-1", "expected 0.25 to 50"),
        ("life", "expected a number"),
        ("life=3,life=4", "given twice"),
        ("gpus=2.5", "whole number"),
        ("gpus=nan", "whole number"),
        ("wacc=nan", "expected 0 to 1"),
    ],
)
def test_a_wrong_input_of_an_owned_node_is_refused(text, part):
    with pytest.raises(InputError, match=part):
        owned_node(parse_owned(text), "H100-SXM", 0.08)


def test_no_price_is_made_up_for_other_nodes():
    with pytest.raises(InputError, match="give capex"):
        owned_node({}, "L40S", 0.08)

    assert owned_node({}, "H100-SXM", 0.08).capex == 300_000


def there(nodes: int, share: float, needed: int) -> float:
    """Return the chance that enough nodes are there, of all outcomes one by one."""
    chance = 0.0
    for outcome in product((0, 1), repeat=nodes):
        if sum(outcome) >= needed:
            up = sum(outcome)
            chance += share**up * (1 - share) ** (nodes - up)
    return chance


@pytest.mark.parametrize("needed", [1, 2, 4])
@pytest.mark.parametrize("share", [0.9, 0.99])
def test_spot_nodes_are_the_fewest_of_which_enough_are_there(needed, share):
    nodes = spot_nodes(needed, share, 0.01)

    assert there(nodes, share, needed) >= 0.99
    assert nodes == needed or there(nodes - 1, share, needed) < 0.99


def test_a_spot_node_is_away_as_long_as_another_takes_to_come():
    rng = np.random.default_rng(1)
    up_h = rng.exponential(-730 / math.log(0.2), 200_000)  # 80 % taken in a month

    share = up_h.sum() / (up_h.sum() + 2.0 * len(up_h))

    assert availability(0.8, 7200) == pytest.approx(share, rel=1e-3)
    assert availability(0.0, 7200) == 1.0


def test_all_spot_nodes_taken_every_month_are_refused():
    with pytest.raises(InputError, match="less than 100 %"):
        availability(1.0, 60)
