"""Shared nodes: bills that add up, peaks that do not, and what is said of plans."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.errors import InputError
from capplan.planning.load.demand_curve import DemandCurve
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import PlanSettings
from capplan.planning.shared_fleet.planned_llm import PlannedLlm, PlannedPool
from capplan.planning.shared_fleet.replicas_by_hour import folded, replicas_by_hour
from capplan.planning.shared_fleet.result import OFF_PEAK, SPARES, STRANDED, in_cents
from capplan.planning.shared_fleet.settings import SharedFleetSettings
from capplan.planning.shared_fleet.share_nodes import (
    APART,
    AT_ONCE,
    BY_HOUR,
    JOINT,
    share_nodes,
)
from tests.node_maps import survives
from tests.planned_llms import DAY, PRICE, llm, price

NEVER_FAILS = {"failures": 0}
NIGHT = DAY[::-1]


def shared(*llms, **asked):
    return share_nodes(llms, SharedFleetSettings(**{**NEVER_FAILS, **asked}))


def test_peaks_of_day_and_night_do_not_add():
    # 8 x TP 4 take 4 nodes at the peak, and 3 replicas of 1 + 7 / 4 else: 11 x 4 GPUs.
    fleet = shared(llm("a", 4, 8, DAY), llm("b", 4, 8, NIGHT))

    (pool,) = fleet.pools
    assert (fleet.separate, pool.at_once, fleet.joint_peak) == (8, 8, 6)
    assert pool.nodes.tolist() == [6] * 24
    assert [way.name for way in fleet.arrangements] == [APART, AT_ONCE, JOINT, BY_HOUR]
    assert [way.nodes for way in fleet.arrangements] == [8, 8, 6, 6]


def test_a_fleet_of_one_bills_what_its_plan_bills():
    small = price(usd=2.1, node="n1", gpus=1)
    paid = price(asked=(price(), small))

    fleet = shared(llm("a", 1, 9, paid=paid), availability=0.999, failures=None)

    assert fleet.usd_per_month == pytest.approx((8 * 2.0 + 2.1) * 730)
    assert fleet.usd_with_spares > fleet.usd_per_month


def test_a_bill_is_by_gpu_hours_and_idle_is_its_own_line():
    fleet = shared(llm("a", 4, 5, DAY), llm("b", 8, 1))

    # a: 5 replicas by day, 1 + 4 / 4 = 2 by night: 3.5 x 4 = 14 GPUs in the mean.
    # Nodes: 1 + 3 by day, with 4 GPUs stranded; 1 + 2 by night, as one node of a's
    # two replicas may not fail with both, with 8 stranded.
    hours = {(line.who, line.why_idle): line.gpu_hours_per_month for line in fleet.bill}
    assert hours == pytest.approx(
        {
            ("a", ""): 14 * 730,
            ("b", ""): 8 * 730,
            ("", STRANDED): 6 * 730,
            ("", OFF_PEAK): 4 * 730,
            ("", SPARES): 0,
        }
    )
    assert fleet.usd_with_spares == 4 * 8 * 2.0 * 730


def test_one_k_of_spares_serves_all_llms():
    # Each alone needs a spare for its two nodes; together they need one as well.
    fleet = shared(llm("a", 8, 2), llm("b", 8, 2), failures=3.79, repair="4h")

    apart, _, joint, _ = fleet.arrangements
    assert (apart.nodes, apart.spares) == (4, 2)
    assert (joint.nodes, joint.spares) == (4, 1)
    assert joint.usd_per_month == fleet.usd_with_spares == 5 * 8 * 2.0 * 730


@pytest.mark.parametrize(("repair", "spares"), [("12m", 0), ("24h", 2), ("72h", 3)])
def test_spares_follow_the_time_of_repair(repair, spares):
    # 16 nodes: the table of N+k for Llama 3's rate.
    fleet = shared(llm("a", 8, 16), failures=None, repair=repair)

    assert fleet.spares == spares


def test_small_nodes_fail_less_often():
    small = price(node="n1", gpus=1)

    fleet = shared(llm("a", 1, 64, paid=small), failures=None, repair="24h")

    # 64 GPUs fail as often as 8 nodes of 8; of those one spare is enough, and of 64
    # small nodes each is away an eighth as often.
    assert fleet.spares == 1


rates = st.one_of(st.none(), st.lists(st.floats(0.01, 9), min_size=24, max_size=60))
llms = st.lists(
    st.tuples(st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 12), rates),
    min_size=1,
    max_size=4,
)
asked = st.fixed_dictionaries(
    {
        "failures": st.sampled_from([None, 0.0, 50.0]),
        "availability": st.sampled_from([0.9, 0.999]),
    }
)


@given(llms, asked, st.floats(0.01, 12), st.sampled_from([1, 4, 8]))
def test_shares_and_idle_add_up_to_the_bill_to_the_cent(rows, given_, usd, size):
    paid = price(usd, gpus=size)
    fleet = shared(
        *[llm(f"llm {k}", *row, paid=paid) for k, row in enumerate(rows)], **given_
    )

    (pool,) = fleet.pools
    nodes = pool.joint_peak + pool.spares.count
    cents = [Fraction(str(line.usd_per_month)) for line in fleet.bill]
    assert sum(cents) == Fraction(str(fleet.usd_with_spares))
    exact = Fraction(nodes * size * 730) * Fraction(usd)
    assert abs(sum(cents) - exact) <= Fraction(1, 200) + exact / 10**12
    assert all(line.gpu_hours_per_month >= -1e-6 for line in fleet.bill)
    assert math.fsum(line.gpu_hours_per_month for line in fleet.bill) == pytest.approx(
        nodes * size * 730
    )
    for line in fleet.bill:
        assert line.usd_per_month == pytest.approx(
            line.gpu_hours_per_month * usd, abs=0.02
        )


@given(llms, st.sampled_from([1, 4, 8]))
def test_the_joint_peak_is_never_above_separate_ones(rows, size):
    paid = price(gpus=size)
    planned = [llm(f"llm {k}", *row, paid=paid) for k, row in enumerate(rows)]

    fleet = shared(*planned)

    (pool,) = fleet.pools
    assert fleet.joint_peak <= pool.at_once <= fleet.separate
    assert pool.nodes.mean() <= fleet.joint_peak
    for index, tenant in enumerate(pool.tenants):
        assert pool.replicas[index].max() == tenant.pool.replica_count
        count = int(pool.replicas[index, pool.peak_hour])
        assert count >= min(2, tenant.pool.replica_count)
        if count > 1:
            assert survives(pool.peak_map, index, count)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=9))
def test_cents_add_up_and_none_is_off_by_one(amounts):
    cents = in_cents(amounts)

    total = sum(Fraction(str(each)) for each in cents)
    assert abs(total - Fraction(math.fsum(amounts))) <= Fraction(51, 10_000)
    for each, amount in zip(cents, amounts, strict=True):
        assert abs(each - amount) < 0.0100001


@given(st.integers(1, 500), st.floats(0, 1), st.floats(0, 1))
def test_replicas_of_an_hour_are_one_more_than_in_proportion_at_most(count, one, other):
    low, high = sorted((one, other))

    few, many = replicas_by_hour(count, np.array([low, high]))

    assert min(2, count) <= few <= many <= count
    assert few >= math.floor(count * low)
    assert few <= max(math.ceil(count * low) + 1, min(2, count))


@pytest.mark.slow
def test_plans_at_part_of_a_rate_need_the_replicas_of_the_line_or_one_beside():
    asked = {
        "workload": "synthetic:prompt=300,output=80,n=2000",
        "llm": "Llama-3.1-8B",
        "latency_ms": "60,0.3,0,2,0.0005",
        "kv_blocks": 1500,
        "slo": "ttft=1s,tpot=90ms",
        "gpu": "H100-SXM",
        "tp": 1,
    }
    whole = plan(PlanSettings(**asked, rate=40)).best.replica_count

    for share in (0.5, 0.1):
        part = plan(PlanSettings(**asked, rate=40 * share)).best.replica_count

        assert abs(replicas_by_hour(whole, np.array([share]))[0] - part) <= 1
    assert whole > 5


def test_hours_beyond_whole_days_are_laid_over_the_first():
    curve = DemandCurve(np.array([1.0] * 24 + [4.0, 0.5]), np.ones(26), 600.0, "t")

    assert folded(curve).tolist() == [1.0, 0.25, *[0.25] * 22]


def test_a_shifted_trace_meets_the_other_at_its_peak():
    a, b = llm("a", 4, 8, DAY), llm("b", 4, 8, NIGHT)

    fleet = shared(a, b, shift="b=12h")

    assert fleet.joint_peak == 8
    assert shared(a, b, shift="b=-12h").joint_peak == 8
    assert shared(a, b, shift="b=24h").joint_peak == 6


def test_a_short_trace_is_repeated_beside_a_long_one():
    week = [1.0] * 24 * 6 + DAY

    fleet = shared(llm("a", 4, 8, week), llm("b", 4, 8, NIGHT))

    (pool,) = fleet.pools
    assert fleet.hours == 168
    assert pool.replicas[1].tolist() == pool.replicas[1, :24].tolist() * 7


def test_llms_on_other_nodes_or_gpus_share_none_and_it_is_said():
    fleet = shared(
        llm("a", 4, 2),
        llm("b", 4, 2, paid=price(3.0, provider="Q")),
        llm("c", 4, 2, gpu="L4", paid=price(0.5, node="g6")),
    )

    assert [pool.joint_peak for pool in fleet.pools] == [2, 2, 2]
    assert "H100-SXM is planned on P n8 and Q n8, which share no nodes" in " ".join(
        fleet.warnings
    )
    assert not [text for text in fleet.warnings if text.startswith("L4 is planned")]


def test_prices_that_differ_for_one_node_are_refused():
    with pytest.raises(InputError, match=r"P n8 is \$2 a GPU-hour .* and \$3 a GPU"):
        shared(llm("a", 4, 2), llm("b", 4, 2, paid=price(3.0)))


def test_without_a_price_there_are_nodes_and_no_bill():
    fleet = shared(llm("a", 4, 3, paid=None), llm("b", 4, 2))

    assert [pool.joint_peak for pool in fleet.pools] == [2, 2]
    assert fleet.usd_with_spares is None
    assert fleet.arrangements[0].usd_per_month is None
    said = " ".join(fleet.warnings)
    assert "H100-SXM: planned without a price" in said
    assert "node size not known, 8 GPUs a node assumed" in said


def test_spot_nodes_and_doubtful_prices_are_said():
    fleet = shared(llm("a", 4, 2, paid=price(kind="spot", is_guess=True)))

    said = " ".join(fleet.warnings)
    assert "P n8: spot nodes are taken back" in said
    assert "P n8: its price is a guess, old or undated" in said


def test_what_two_failure_domains_cost_and_where_there_is_none_is_said():
    fleet = shared(llm("whole", 8, 1), llm("pair", 1, 2))

    said = " ".join(fleet.warnings)
    assert "whole: one replica: if its node fails, it is down" in said
    assert "two failure domains for each LLM cost 1 node" in said
    assert fleet.joint_peak == 3


def test_prompts_and_decoding_apart_outlive_a_node_each():
    pools = (
        PlannedPool("prefill", "H100-SXM", 2, 2, PRICE, 2),
        PlannedPool("decode", "H100-SXM", 1, 4, PRICE, 1),
    )

    fleet = shared(PlannedLlm("a", "a/plan.json", pools, None, "a test"))

    (pool,) = fleet.pools
    assert fleet.joint_peak == fleet.separate == 2
    assert [tenant.name for tenant in pool.tenants] == ["a prefill", "a decode"]
    assert survives(pool.peak_map, 0, 2)
    assert survives(pool.peak_map, 1, 4)
    assert [line.who for line in fleet.bill] == ["a", "", "", ""]


@pytest.mark.parametrize(
    ("shift", "named"),
    [
        ("c=9h", "--shift c: expected one of a, b"),
        ("b=9h", "--shift b: it needs as many at all hours, for a test"),
    ],
)
def test_shifts_of_none_are_refused(shift, named):
    with pytest.raises(InputError, match=named):
        shared(llm("a", 4, 8, DAY), llm("b", 4, 8), shift=shift)


@pytest.mark.parametrize(
    ("asked_", "named"),
    [
        ({"shift": "a=90m"}, "whole hours"),
        ({"shift": "9h"}, "expected LLM=9h"),
        ({"shift": ["a=1h", "a=2h"]}, "a is given twice"),
        ({"availability": "100%"}, "availability is"),
        ({"availability": "0%"}, "availability is"),
        ({"availability": "x%"}, "expected 99.9% or 0.999"),
        ({"repair": "soon"}, "repair"),
        ({"failures": -1}, "failures is -1"),
    ],
)
def test_wrong_settings_are_refused(asked_, named):
    with pytest.raises(InputError, match=named):
        SharedFleetSettings(**asked_)
