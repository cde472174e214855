"""What the last replicas cost, where fewer miss the SLO by little."""

from dataclasses import replace

import pytest

from capplan.planning.evaluate.probe import Probe
from capplan.planning.plan.last_replica import last_points, last_replica
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import PlanSettings
from capplan.report.pages.served import last_points as told_points
from capplan.report.pages.served import last_replica as told

ASKED = {
    "workload": "synthetic:prompt=300,output=60,n=4000",
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM",
    "tp": 8,
    "tune": False,
    "nodes": "p5.48xlarge",
    "latency_ms": "9,0.04,0,0.08,0.00005",
    "kv_blocks": 3000,
    "slo": "ttft=500ms,tpot=20ms",
}


@pytest.fixture(scope="module")
def found():
    """A plan of several replicas, each a node."""
    result = plan(PlanSettings(**ASKED, rate=300))
    assert result.best.replica_count > 1
    return result


def last_of(found, share, *, stable=True, meets=False):
    run = found.best.run
    fewer = replace(
        Probe.of(run),
        replica_count=run.replica_count - 1,
        slo_attainment=share,
        meets=meets,
        stable=stable,
    )
    slo = PlanSettings(**ASKED, rate=300).objective()
    return last_replica(run, (fewer,), slo, ("all",))


def test_a_miss_of_0_2_points_or_less_says_what_the_last_replica_costs(found):
    last = last_of(found, 0.9885)

    nodes = found.best.cost.nodes[0]
    assert last.missed_by == pytest.approx(0.0015)
    assert last.usd_per_month == pytest.approx(730 * nodes.usd_per_h / nodes.count)
    said = told(last)
    assert said.startswith("one fewer misses by 0.15 percentage points; ")
    assert said.endswith(f"costs ${last.usd_per_month:,.0f} a month")


@pytest.mark.parametrize(
    ("share", "given"),
    [(0.9879, {}), (0.9885, {"stable": False}), (0.9885, {"meets": None})],
)
def test_a_larger_miss_a_backlog_and_an_open_count_say_nothing(found, share, given):
    assert last_of(found, share, **given) is None


def test_a_replica_in_a_node_that_is_paid_anyway_costs_nothing(found):
    free = replace(last_of(found, 0.9885), usd_per_month=0.0)

    assert told(free).endswith("is free, on nodes paid for anyway")


def points_of(found, count, share, **changed):
    run = found.best.run
    run = replace(run, deployment=run.deployment.with_replicas(11))
    fewer = replace(
        Probe.of(run), replica_count=count, slo_attainment=share, meets=False, **changed
    )
    slo = PlanSettings(**ASKED, rate=300).objective()
    return last_points(run, (fewer,), slo, ("all",))


def test_the_last_points_are_priced_where_far_fewer_replicas_miss_by_few(found):
    last = points_of(found, 5, 0.9649)

    assert (last.replica_count, last.replica_count_more) == (5, 6)
    assert last.missed_by == pytest.approx(0.0251)
    assert last.node_count_more == 6
    assert last.gpu_count_more == 6 * 8
    node = found.best.cost.nodes[0]
    assert last.usd_per_month == pytest.approx(6 * 730 * node.usd_per_h / node.count)
    assert told_points(last) == (
        "5 replicas miss by 2.5 percentage points; these cost 6 replicas, 6 nodes and "
        f"${last.usd_per_month:,.0f} a month"
    )


@pytest.mark.parametrize(
    ("count", "share", "given"),
    [(9, 0.9649, {}), (5, 0.9549, {}), (5, 0.9649, {"stable": False})],
)
def test_few_replicas_many_points_and_a_backlog_are_not_priced(
    found, count, share, given
):
    assert points_of(found, count, share, **given) is None
