"""Replicas against the rate: simulated points, a law, and what it extrapolates."""

import json

import pytest

from capplan.errors import InputError
from capplan.planning.plan.demand import demand
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import DemandSettings
from capplan.report.pages.demand import demand_values
from capplan.report.render.json_text import json_text

pytestmark = pytest.mark.thorough

RATES = (20.0, 40.0, 60.0, 80.0, 100.0)


@pytest.fixture(scope="module")
def settings():
    return DemandSettings(
        rates=RATES,
        at=500,
        workload="synthetic:prompt=200,output=50,n=2000",
        llm="Llama-3.1-8B",
        gpu="H100-SXM",
        tp="1",
        slo="ttft=500ms,tpot=8ms",
        price="H100-SXM=2",
    )


@pytest.fixture(scope="module")
def found(settings):
    return demand(settings)


def test_counts_are_those_of_a_plan_at_each_rate(settings, found):
    alone = plan(settings.at_rate(RATES[1]))

    assert found.rates_per_s == RATES
    assert found.candidates[1].replica_count == alone.best.replica_count


def test_law_meets_the_rate_that_was_not_simulated(settings, found):
    rate = 130.0

    simulated = plan(settings.at_rate(rate)).best.replica_count

    assert abs(found.law.workers(rate) - simulated) <= 1
    assert found.pool_at(rate).gpu_count == found.law.workers(rate)


def test_one_rate_is_refused(settings):
    with pytest.raises(InputError, match="1 different rate; expected at least 2"):
        demand(settings.model_copy(update={"rates": (2.0, 2.0)}))


def test_two_rates_are_compared_without_a_line(settings, found):
    two = demand(settings.model_copy(update={"rates": RATES[:2], "at": ()}))

    counts = [row.replica_count for row in found.candidates[:2]]
    assert [row.replica_count for row in two.candidates] == counts
    assert [row.cost.usd_per_h for row in two.candidates] == [2 * n for n in counts]
    assert two.law is None
    assert "a line needs at least 4" in two.no_law


def test_extrapolating_from_fewer_than_four_rates_is_refused(settings):
    with pytest.raises(InputError, match="line through the counts at 4 rates or more"):
        demand(settings.model_copy(update={"rates": (1.0, 2.0, 2.0, 3.0)}))


def test_file_holds_points_and_extrapolations(found):
    written = json.loads(json_text(demand_values(found)))

    assert [point["rate_per_s"] for point in written["points"]] == list(RATES)
    extrapolated = written["extrapolated"][0]
    low, high = extrapolated["replica_count_interval"]
    assert extrapolated["replica_count"] == found.law.workers(500.0)
    assert low <= extrapolated["replica_count"] <= high
