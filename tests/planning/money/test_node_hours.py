import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.planning.budget.replicas_by_rate import (
    ABOVE,
    EXTRAPOLATED,
    LAW,
    SIMULATED,
    ReplicasByRate,
)
from capplan.planning.money.commitments import Hours
from capplan.planning.money.node_hours import paid_hours, whole_nodes


def test_replicas_fill_nodes_or_take_several():
    assert whole_nodes(np.array([1, 2, 3]), 4, 8).tolist() == [1, 1, 2]
    assert whole_nodes(np.array([2, 3]), 3, 8).tolist() == [1, 2]
    assert whole_nodes(np.array([3]), 16, 8).tolist() == [6]
    assert whole_nodes(np.array([0, 2]), 1, 1).tolist() == [0, 2]


def test_a_node_is_paid_while_it_starts_and_drains():
    # Two hours of 1 node, two of 3: two nodes start 15 min early and drain 6 min.
    hours = paid_hours(np.array([1, 1, 3, 3]), 900.0, 360.0)

    share = hours.hours / hours.hours.sum() * 4
    assert hours.nodes.tolist() == [1, 3]
    assert share == pytest.approx([2 - 0.25 - 0.1, 2 + 0.25 + 0.1])


def test_hours_begun_are_paid_whole_where_the_step_is_an_hour():
    hours = paid_hours(np.array([1, 1, 1, 3]), 900.0, 360.0, step_s=3600)

    assert hours.hours / hours.hours.sum() * 4 == pytest.approx([1, 3])


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=30),
    st.floats(0, 4 * 3600),
    st.floats(0, 3 * 3600),
)
def test_what_is_paid_is_the_most_of_the_hours_around(nodes, cold_s, drain_s):
    hours = paid_hours(np.array(nodes), cold_s, drain_s)

    # A slow judge: every ten seconds, the most from now to a cold start ahead.
    every = np.arange(5, 3600 * len(nodes), 10.0)
    around = np.linspace(-drain_s, cold_s, 400)
    index = np.floor((every[:, None] + around) / 3600).astype(int) % len(nodes)
    paid = np.array(nodes)[index].max(axis=1)
    assert hours.node_hours / 730 == pytest.approx(paid.mean(), abs=0.06 + 1e-9)
    assert hours.node_hours >= Hours.of(np.array(nodes)).node_hours - 1e-6


def test_counts_between_simulated_rates_lie_between_theirs():
    rates = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    known = ReplicasByRate.of(rates, np.ceil(3 * rates + 1))

    counts = known.replicas(np.linspace(0.1, 16.0, 500))

    assert known.law is not None
    assert (np.diff(counts) >= 0).all()
    assert known.replicas(rates).tolist() == known.counts.tolist()
    assert known.replicas(np.array([0.0])).tolist() == [4]
    assert known.replicas(np.array([20.0]))[0] >= 60


def test_counts_off_a_line_are_joined_by_straight_lines():
    known = ReplicasByRate.of(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1, 9, 9, 40]))

    assert known.no_law
    assert known.replicas(np.array([1.5, 2.5, 3.5, 8.0])).tolist() == [5, 9, 25, 80]


def test_one_replica_at_all_rates_is_not_one_at_any_rate():
    known = ReplicasByRate.of(np.array([1.0, 2.0, 3.0, 4.0]), np.ones(4))

    assert known.replicas(np.array([4.0, 4.1, 40.0])).tolist() == [1, 2, 10]


@pytest.mark.parametrize(
    ("rate", "how"), [(2.0, SIMULATED), (3.0, LAW), (0.5, ABOVE), (9.0, EXTRAPOLATED)]
)
def test_it_is_said_how_a_count_is_known(rate, how):
    known = ReplicasByRate.of(np.array([1.0, 2.0, 4.0]), np.array([1, 2, 4]))

    assert known.known_by(rate) == how


@given(
    st.lists(st.integers(1, 60), min_size=2, max_size=7),
    st.lists(st.floats(0, 40), min_size=1, max_size=20),
)
def test_more_traffic_never_needs_fewer_replicas(counts, rates):
    points = np.arange(1.0, len(counts) + 1) * 3
    known = ReplicasByRate.of(points, np.array(counts))

    found = known.replicas(np.sort(rates))

    assert (np.diff(found) >= 0).all()
    assert (found >= 1).all()
