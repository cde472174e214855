"""Laws of every autoscaler in the table."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from capplan.simulator.autoscalers import AUTOSCALERS, Known, parse_autoscaler
from tests.simulator.autoscalers.views import Instant, counts, decider, view

NAMES = sorted(AUTOSCALERS)
FEW = settings(max_examples=30)
PERIOD_S = {name: parse_autoscaler(name).settings["period"] for name in NAMES}
FITTING = {  # a load on each of 4 replicas that a policy is meant to keep
    "schedule": {},
    "hpa": {"running": 20},
    "keda": {"waiting": 5},
    "wva": {"kv_share": 0.5, "waiting": 2},
    "wva-v2": {"kv_share": 0.62},
    "dynamo": {"arrived": 1440},
    "dynamo-load": {"kv_share": 0.7},
    "ray": {"running": 2},
    "llumnix": {"running": 20, "kv_share": 0.7},
    "aladdin": {"arrived": 80},
    "perfect": {},
}
ONCE = {  # those without a memory of load, or where it is switched off
    "hpa": "hpa:metric=running",
    "keda": "keda",
    "wva": "wva:up_window=0s,down_window=0s",
    # A queue makes it take what is in use for all that a replica can hold.
    "wva-v2": "wva-v2:up_window=0s,down_window=0s,queue=1000000",
    "dynamo": "dynamo",
    "dynamo-load": "dynamo-load",
    "ray": "ray:target=10,up_delay=0s,down_delay=0s",
    "llumnix": "llumnix:after=0s",
    "aladdin": "aladdin:window=10s",
}


@st.composite
def views(draw):
    """Draw views of one fleet, in order of time, that may follow no decision."""
    now_s, drawn = 0.0, []
    for _ in range(draw(st.integers(1, 12))):
        since_s = draw(st.sampled_from([0.1, 5.0, 15.0, 180.0, 3600.0]))
        now_s += since_s
        ready = draw(st.integers(0, 6))
        each = st.lists(st.integers(0, 60), min_size=ready, max_size=ready)
        share = st.lists(st.floats(0.0, 1.0), min_size=ready, max_size=ready)
        drawn.append(
            view(
                ready,
                draw(st.integers(0, 6)),
                now_s=now_s,
                running=draw(each),
                waiting=draw(each),
                kv_share=draw(share),
                draining=draw(st.integers(0, 2)),
                held=0 if ready else draw(st.integers(0, 50)),
                arrived=draw(st.integers(0, 2000)),
                since_s=since_s,
            )
        )
    return drawn


@pytest.mark.parametrize("name", NAMES)
@FEW
@given(seen=views(), least=st.integers(1, 8), more=st.integers(0, 8))
def test_it_stays_within_its_bounds(name, seen, least, more):
    given = f"{name}:min={least},max={least + more}"

    found = counts(given, seen)

    assert all(least <= count <= least + more for count in found)
    assert all(isinstance(count, int) for count in found)


@pytest.mark.parametrize("name", NAMES)
@FEW
@given(seen=views())
def test_it_is_deterministic_and_remembers_nothing_of_another_run(name, seen):
    assert counts(name, seen) == counts(name, seen)


@pytest.mark.parametrize("name", NAMES)
@FEW
@given(seen=views())
def test_it_changes_nothing_that_it_sees(name, seen):
    before = [[np.array(value) for value in one] for one in seen]

    counts(name, seen)

    after = [[np.array(value) for value in one] for one in seen]
    assert all(
        np.array_equal(a, b, equal_nan=True)
        for old, new in zip(before, after, strict=True)
        for a, b in zip(old, new, strict=True)
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_load_that_fits_moves_nothing(name):
    # 8 requests/s, of which a replica serves 2.
    known = Known(2.0, np.arange(0.0, 36_000.0, 0.125), in_flight_per_replica=25.0)
    given = "schedule:0=4" if name == "schedule" else name
    fleet = Instant(given, 4, PERIOD_S[name], known)

    assert set(fleet.ticks(100, **FITTING[name])) == {4}


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"perfect", "schedule"}))
def test_a_replica_that_was_lost_is_asked_for_again(name):
    decide = decider(name)
    load = {**FITTING[name], "since_s": PERIOD_S[name]}

    before = decide(view(4, **load))
    after = decide(view(3, now_s=PERIOD_S[name], **load))

    assert (before, after) == (4, 4)


@pytest.mark.parametrize("name", ONCE)
@FEW
@given(
    ready=st.integers(1, 12),
    running=st.integers(0, 200),
    waiting=st.integers(0, 50),
    kv_share=st.floats(0.0, 1.0),
    arrived=st.integers(0, 3000),
    more=st.tuples(
        st.integers(0, 100),
        st.integers(0, 50),
        st.floats(0.0, 1.0),
        st.integers(0, 3000),
    ),
)
def test_more_load_never_wants_fewer(
    name, ready, running, waiting, kv_share, arrived, more
):
    # The same load on each replica, and then more of all of it.
    def wanted(running, waiting, kv_share, arrived):
        seen = {"waiting": waiting, "kv_share": kv_share, "arrived": arrived}
        first = view(ready, running=running, now_s=10.0, since_s=10.0, **seen)
        return counts(ONCE[name], [first, first._replace(now_s=20.0)])[-1]

    low = (running, waiting, kv_share, arrived)
    high = tuple(a + b for a, b in zip(low, more, strict=True))
    high = (*high[:2], min(high[2], 1.0), high[3])

    assert wanted(*low) <= wanted(*high)


@given(
    arrival_s=st.lists(st.floats(0.0, 20_000.0), min_size=1, max_size=300),
    cold_s=st.sampled_from([0.0, 59.0, 60.0, 301.0, 900.0]),
    tick=st.integers(0, 350),
)
def test_perfect_and_the_proposed_schedule_have_enough_for_what_comes(
    arrival_s, cold_s, tick
):
    arrival_s = np.sort(np.array(arrival_s))
    known = Known(1 / 60, arrival_s, cold_start_s=cold_s)
    now_s = 60.0 * tick
    ready_s = now_s + cold_s  # of what is ordered now, and stays until the next tick

    found = [
        counts(name, [view(now_s=now_s)], known)[0]
        for name in ("perfect:max=1000", "schedule:max=1000")
    ]

    within = (arrival_s >= np.ceil(ready_s / 60) * 60) & (
        arrival_s < np.ceil(ready_s / 60) * 60 + 60
    )
    assert found[0] >= int(within.sum())
    # A quarter of an hour that has n arrivals needs n/15 replicas of 1 a minute.
    quarter = (arrival_s // 900 == ready_s // 900).sum()
    assert found[1] >= quarter / 15 - 1e-6
