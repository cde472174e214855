"""A serving system with disaggregated prefill and decode, beside those of one pool."""

import pytest

from capplan.planning.compare.compare import compare
from capplan.planning.compare.settings import CompareSettings
from capplan.planning.compare.systems import resolve
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import PlanSettings
from capplan.report.pages.comparison import comparison_values, notes

APART = "vllm-v1-disaggregated"
ASKED = {
    "workload": "synthetic:prompt=300,output=80,n=1000",
    "rate": 60,
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM",
    "tp": 1,
    "slo": "ttft=500ms,tpot=20ms",
    "as_of": "2026-11-01",
}


def compared(**more):
    return compare(CompareSettings(**{**ASKED, "rates": (60,), **more}))


@pytest.fixture(scope="module")
def both():
    return compared(systems=f"vllm-v1,{APART}", replicas=3)


@pytest.mark.thorough
def test_the_price_is_that_of_the_best_two_pools_of_a_plan(both):
    alone = plan(PlanSettings(**ASKED, disaggregated=True))

    apart = both.systems[1].candidate
    best = alone.best_disaggregated
    assert apart.gpu_count == best.gpu_count
    assert apart.lower_bound_gpu_count == best.lower_bound_gpu_count
    assert apart.cost.usd_per_h == pytest.approx(best.cost.usd_per_h)


@pytest.mark.thorough
def test_equal_replicas_are_split_between_the_pools(both):
    whole, apart = both.systems

    assert apart.not_served == ""
    assert apart.max_rate_per_s > 0
    assert len(apart.curve) == len(whole.curve) == 1
    values = comparison_values(both)["systems"]
    assert values[0]["pools"] == []
    assert [pool["role"] for pool in values[1]["pools"]] == ["prefill", "decode"]
    assert any("disaggregated prefill and decode: " in text for _, text in notes(both))


@pytest.mark.thorough
def test_one_replica_is_no_two_pools():
    found = compared(systems=f"vllm-v1,{APART}", replicas=1)

    whole, apart = found.systems
    assert whole.max_rate_per_s is not None
    assert apart.max_rate_per_s is None
    assert apart.not_served == "two pools take two replicas; give --replicas N"
    assert apart.candidate.pools


@pytest.mark.thorough
def test_a_gpu_without_a_network_refuses_the_system_and_no_other():
    found = compared(systems=f"vllm-v1,{APART}", gpu="RTX-4090", rate=5, rates=(5,))

    whole, apart = found.systems
    assert whole.status != "refused"
    assert apart.status == "refused"
    assert "give --link-gb-per-s" in apart.reason


def test_its_link_is_the_scenarios_and_no_request_moves_within_a_pool():
    given = PlanSettings(**ASKED, link_gb_per_s=12.0, rebalancer="llumnix")

    asked = resolve(APART, given, 700)

    assert asked.settings.disaggregated
    assert asked.settings.link_gb_per_s == 12.0
    assert asked.settings.rebalancer is None
    assert asked.budgets == ()
