"""Where hits collapse among the counts that a plan simulated."""

from types import SimpleNamespace

import pytest

from capplan.planning.plan.collapse import collapse_of


def probes_of(*rates):
    return [
        SimpleNamespace(
            users_per_replica=users, sessions=SimpleNamespace(hit_rate=hit_rate)
        )
        for users, hit_rate in rates
    ]


def test_it_lies_between_the_last_that_keeps_hits_and_the_first_that_loses_most():
    found = collapse_of(
        probes_of((100, 0.05), (50, 0.3), (33, 0.7), (20, 0.9), (10, 0.95))
    )

    assert (found.users_per_replica, found.hit_rate) == (20, 0.9)
    assert (found.users_per_replica_lost, found.hit_rate_lost) == (50, 0.3)
    assert str(found) == (
        "hits collapse beyond 20 sessions a replica: 90 % of prompt tokens are found "
        "in caches there, 30 % with 50"
    )


@pytest.mark.parametrize(
    "rates",
    [
        [],
        [(10, 0.95), (20, 0.6)],  # more than half of the highest is found
        [(10, 0.3), (20, 0.95)],  # fewer sessions lost more: chance
    ],
)
def test_where_no_count_lost_most_none_is_told(rates):
    assert collapse_of(probes_of(*rates)) is None


def test_requests_have_none():
    probe = SimpleNamespace(users_per_replica=0.0, sessions=None)

    assert collapse_of([probe]) is None
