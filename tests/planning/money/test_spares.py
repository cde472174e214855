"""Spare nodes against the sum of the binomial law, term by term, and known cases."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.errors import InputError
from capplan.fleet.node_failures import FAILURES_PER_1000_NODE_DAYS
from capplan.planning.money.spares import (
    failures_per_node_day,
    spare_nodes,
    unavailability,
)


def fewest(node_count, away, availability):
    """Return the spares by adding the binomial law's terms, one count on another."""
    spares = 0
    while True:
        n = node_count + spares
        up = sum(
            math.comb(n, k) * away**k * (1 - away) ** (n - k) for k in range(spares + 1)
        )
        if up >= availability:
            return spares
        spares += 1


# Computed for 3.79 failures of 1000 node-days and 99.9 %: nodes, then spares by repair.
TABLE = {
    0.2: {4: 0, 8: 0, 16: 0, 32: 1, 64: 1},
    4: {4: 1, 8: 1, 16: 1, 32: 1, 64: 1},
    24: {4: 1, 8: 1, 16: 2, 32: 2, 64: 3},
    72: {4: 2, 8: 2, 16: 3, 32: 3, 64: 5},
}


@pytest.mark.parametrize(
    ("repair_h", "nodes", "expected"),
    [(h, n, k) for h, row in TABLE.items() for n, k in row.items()],
)
def test_spares_are_those_of_the_table_for_all_causes(repair_h, nodes, expected):
    rate = failures_per_node_day(8)

    spares = spare_nodes(nodes, rate, repair_h, 0.999)

    assert spares == expected


def test_the_default_rate_follows_from_the_interruptions_of_llama_3():
    node_days = 16_384 / 8 * 54

    rate = 419 / node_days * 1000

    assert rate == pytest.approx(FAILURES_PER_1000_NODE_DAYS, abs=0.005)


def test_a_node_that_fails_as_often_as_it_is_repaired_is_away_half_the_time():
    assert unavailability(1.0, 24.0) == pytest.approx(0.5)


@given(
    st.integers(1, 40),
    st.fractions(Fraction(1, 1000), Fraction(1, 3), max_denominator=1000),
    st.sampled_from([Fraction(9, 10), Fraction(99, 100), Fraction(9999, 10000)]),
)
def test_spares_are_the_fewest_by_the_sum_of_exact_terms(nodes, away, availability):
    per_day = float(away / (1 - away))  # with a repair of a day

    spares = spare_nodes(nodes, per_day, 24.0, float(availability))

    assert spares == fewest(nodes, away, availability)


@given(
    st.integers(1, 500),
    st.floats(0, 0.05),
    st.floats(0, 100),
    st.sampled_from([0.9, 0.99, 0.999, 0.99999]),
)
def test_more_nodes_failures_or_repair_never_need_fewer_spares(
    nodes, rate, repair_h, availability
):
    spares = spare_nodes(nodes, rate, repair_h, availability)

    assert spare_nodes(nodes + 1, rate, repair_h, availability) >= spares
    assert spare_nodes(nodes, 1.5 * rate, repair_h, availability) >= spares
    assert spare_nodes(nodes, rate, 2 * repair_h, availability) >= spares


def test_nodes_that_never_fail_need_no_spares():
    assert spare_nodes(1000, 0.0, 72.0, 0.99999) == 0
    assert spare_nodes(0, 1.0, 72.0, 0.999) == 0


@pytest.mark.parametrize(
    "given_",
    [(1000, 100.0, 2400.0, 0.999), (9000, 11 / 9, 24.0, 0.999)],  # about 11,000
)
def test_more_spares_than_anyone_has_are_refused_in_one_line(given_):
    with pytest.raises(InputError, match="even 10,000 spares") as refused:
        spare_nodes(*given_)

    assert "\n" not in str(refused.value)
