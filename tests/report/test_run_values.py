"""Values of a run of 200 requests, 20 a second, of 50 to 56 prompt tokens."""

from dataclasses import replace

import pytest

from capplan.fleet.price import Price
from capplan.planning.classes import ClassResult
from capplan.planning.run import simulate_deployment
from capplan.report.run_values import METRICS, STATISTICS, run_values
from capplan.report.write_json import plain
from capplan.report.write_run import run_facts, run_html
from tests.deployments import changed


def test_the_workload_is_that_of_the_trace(run):
    values = run_values(run)

    # 200 arrivals in 9.95 s; prompts of 50 + i % 7, 28 cycles of 53 and 50 to 53.
    assert values["request_count"] == values["completed"] == 200
    assert values["duration_s"] == pytest.approx(9.95)
    assert values["rate_per_s"] == pytest.approx(199 / 9.95)
    assert values["mean_prompt_tokens"] == pytest.approx((28 * 7 * 53 + 206) / 200)
    assert values["mean_output_tokens"] == 1.0


def test_every_latency_has_its_mean_and_percentiles_in_order(run):
    latency = run_values(run)["latency"]

    assert set(latency) == set(METRICS)
    for statistics in latency.values():
        assert tuple(statistics) == STATISTICS
    ttft = list(latency["ttft_s"].values())[1:]
    assert ttft == sorted(ttft)


def test_money_is_null_without_a_price_and_by_the_hour_with_one(run):
    priced = run_values(changed(run, price=Price(2.0, "me", "2026-06")))
    free = run_values(run)

    # Two replicas of one GPU.
    assert free["usd_per_h"] is free["usd_per_month"] is free["usd_per_year"] is None
    assert (priced["usd_per_h"], priced["usd_per_month"]) == (4.0, 4.0 * 730)
    assert priced["usd_per_year"] == 4.0 * 8760


def test_without_an_slo_its_values_are_null(run):
    judgement = replace(run.judgement, attainment=None)

    values = run_values(replace(run, slo=None, judgement=judgement))

    for name in ("slo_attainment", "attainment_by_limit", "slo_text", "goodput_per_s"):
        assert values[name] is None


def test_only_a_streamed_run_names_the_error_of_its_percentiles(run, small_settings):
    streamed = simulate_deployment(small_settings.model_copy(update={"stream": True}))

    assert "percentile_error" not in run_values(run)
    assert 0 < run_values(streamed)["percentile_error"] < 0.01


def test_facts_are_those_that_apply(run):
    facts = dict(run_facts(run))

    assert facts["serves"] == (
        "20 requests/s, on average 53 prompt and 1 output tokens"
    )
    assert facts["within"] == "ttft ≤ 1 s"
    assert facts["each limit"] == "ttft 100 %, tpot 100 %, tbt 100 %, e2e 100 %"
    assert facts["preemptions"] == "0"
    assert not {"interrupted", "costs", "backlog", "each class"} & set(facts)


def test_facts_say_costs_and_a_growing_backlog(run):
    priced = changed(run, price=Price(2.0, "me", "2026-06"))
    judgement = replace(run.judgement, stable=False)

    facts = dict(run_facts(replace(priced, judgement=judgement)))

    assert facts["costs"] == "2 × $2.00 per GPU-hour = $4.00 per hour"
    assert facts["backlog"] == "keeps growing: too few replicas"


def test_classes_have_an_attainment_each_where_there_are_several(run):
    row = ClassResult("a", "ttft ≤ 1 s", 0.99, ("a",), 1.0, (0.9, 1.0), 9, 1, 1, 1)
    rows = (row, replace(row, class_name="b", attainment_of=("b",), slo_attainment=0.5))
    judgement = replace(run.judgement, classes=rows, missing=("b",))
    served = replace(run, judgement=judgement)

    facts = dict(run_facts(served))

    assert facts["attained by"].startswith("1 of 2 classes; asked 99 %; ")
    assert [
        each["slo_attainment"] for each in plain(run_values(served)["classes"])
    ] == [
        1.0,
        0.5,
    ]
    page = run_html(served)
    assert "<h2>Classes</h2>" in page
    assert '<td class="num" data-label="attained">50 %</td>' in page
