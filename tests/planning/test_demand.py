"""Replicas against the rate: simulated points, a law, and what it extrapolates."""

import json

import pytest

from capplan.errors import InputError
from capplan.planning.demand import demand
from capplan.planning.plan import plan
from capplan.planning.settings import PlanSettings
from capplan.report.write_demand import write_demand

RATES = (20.0, 40.0, 60.0, 80.0, 100.0)


@pytest.fixture(scope="module")
def request_():
    return PlanSettings(
        workload="synthetic:prompt=200,output=50,n=2000",
        llm="Llama-3.1-8B",
        gpu="H100-SXM",
        tp="1",
        slo="ttft=500ms,tpot=8ms",
        price="H100-SXM=2",
    )


@pytest.fixture(scope="module")
def found(request_):
    return demand(request_, RATES)


def test_counts_are_those_of_a_plan_at_each_rate(request_, found):
    alone = plan(request_.model_copy(update={"rate": RATES[1]}))

    assert found.rates_per_s == RATES
    assert found.replica_counts[1] == alone.best.replica_count


def test_law_meets_the_rate_that_was_not_simulated(request_, found):
    rate = 130.0

    simulated = plan(request_.model_copy(update={"rate": rate})).best.replica_count

    assert abs(found.law.workers(rate) - simulated) <= 1
    assert f"{found.law.workers(rate)} GPUs" in found.gpus_text_at(rate)


def test_too_few_rates_are_refused(request_):
    with pytest.raises(InputError, match="at least 4"):
        demand(request_, (1.0, 2.0, 2.0, 3.0))


def test_file_holds_points_and_extrapolations(found, tmp_path):
    (path,) = write_demand(found, [500.0], tmp_path)

    written = json.loads(path.read_text())

    assert [point["rate_per_s"] for point in written["points"]] == list(RATES)
    extrapolated = written["extrapolated"][0]
    low, high = extrapolated["replica_count_interval"]
    assert extrapolated["replica_count"] == found.law.workers(500.0)
    assert low <= extrapolated["replica_count"] <= high
