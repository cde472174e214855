"""Eq. 7 of Aladdin."""

import numpy as np
import pytest

from capplan.errors import InputError
from capplan.placement.demand_law import fit_demand_law


def test_a_line_rounded_up_is_recovered():
    rates = np.arange(10.0, 210, 5)

    law = fit_demand_law(rates, np.ceil(0.23 * rates + 1.4))

    low, high = law.workers_per_rate_interval
    assert low <= 0.23 <= high
    low, high = law.workers_fixed_interval
    assert low <= 1.4 <= high
    assert law.linear_from_per_s == 10


def test_linearity_begins_after_the_last_rate_that_is_off_the_line():
    rates = np.array([1.0, 2, 4, 10, 20, 30, 40, 50, 60])
    workers = np.ceil(0.5 * rates)
    workers[:3] = [6, 6, 7]

    law = fit_demand_law(rates, workers)

    assert law.linear_from_per_s == 10
    assert abs(law.workers(1000) - 500) <= 5
    with pytest.raises(InputError, match="holds from 10 requests/s on; 4 is below"):
        law.workers(4)


def test_three_rates_are_too_few():
    with pytest.raises(InputError, match="3 different rates"):
        fit_demand_law(np.array([1.0, 2, 3]), np.array([1, 2, 3]))


def test_a_curve_is_not_called_a_line():
    rates = np.arange(1.0, 12)

    with pytest.raises(InputError, match="not within 1 of a line"):
        fit_demand_law(rates, rates**3)
