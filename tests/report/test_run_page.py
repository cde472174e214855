"""The page of a run of 200 requests, 20 a second, of 50 to 56 prompt tokens."""

import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from capplan.fleet.price import Price
from capplan.planning.evaluate.classes import ClassResult
from capplan.planning.evaluate.run import simulate_deployment
from capplan.report.pages.run import METRICS, STATISTICS, run_page, run_values
from capplan.report.render.csv_table import table_csv
from capplan.report.render.html_page import html
from capplan.report.render.json_text import json_text, plain
from capplan.report.render.terminal import print_page
from tests.deployments import changed


def facts_of(run):
    return dict(run_page(run).sections[0].known_facts)


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
    facts = facts_of(run)

    assert facts["serves"] == (
        "20 requests/s, on average 53 prompt and 1 output tokens"
    )
    assert facts["within"] == "ttft ≤ 1 s"
    assert facts["each limit"] == "ttft 100 %, tpot 100 %, tbt 100 %, e2e 100 %"
    assert facts["preemptions"] == "0"
    assert facts["iterations"].endswith("of the time, if only with one request")
    assert not {"interrupted", "costs", "backlog", "each class"} & set(facts)


def test_facts_say_costs_and_a_growing_backlog(run):
    priced = changed(run, price=Price(2.0, "me", "2026-06"))
    judgement = replace(run.judgement, stable=False)

    facts = facts_of(replace(priced, judgement=judgement))

    assert facts["costs"] == "2 GPUs × $2.00 = $4.00 per hour"
    assert facts["backlog"] == "keeps growing: too few replicas"


def test_classes_have_an_attainment_each_where_there_are_several(run):
    row = ClassResult("a", "ttft ≤ 1 s", 0.99, ("a",), 1.0, (0.9, 1.0), 9, 1, 1, 1)
    rows = (row, replace(row, class_name="b", attainment_of=("b",), slo_attainment=0.5))
    judgement = replace(run.judgement, classes=rows, missing=("b",))
    served = replace(run, judgement=judgement)

    facts = facts_of(served)

    assert facts["in time"].startswith("1 of 2 classes; asked 99 %; ")
    assert [
        each["slo_attainment"] for each in plain(run_values(served)["classes"])
    ] == [
        1.0,
        0.5,
    ]
    page = html(run_page(served))
    assert ">Classes</h2>" in page
    assert '<td class="num" data-label="in time">50 %</td>' in page


def test_what_is_not_known_is_null(run):
    document = json.loads(json_text(run_values(run)))

    assert document["schema"] == "capplan.simulation/2"
    assert document["latency"]["tpot_s"]["p99"] is None
    assert document["usd_per_h"] is None
    assert document["slo_attainment"] == 1.0


def test_every_latency_is_a_row_in_seconds(run):
    lines = table_csv(run_page(run).csv["simulation.csv"]).splitlines()

    assert lines[0] == "metric,mean,p50,p90,p95,p99,p99.9"
    assert lines[1].startswith("ttft_s,0.0")
    assert lines[2] == "tpot_s,,,,,,"


def test_the_page_escapes_where_the_requests_are_from(run):
    page = html(run_page(replace(run, trace_source="<script>x</script>")))

    assert "<script" not in page
    assert "&lt;script&gt;" in page
    coordinates = re.findall(r' d="([^"]*)"', page)
    assert coordinates
    assert not any("nan" in each or "inf" in each for each in coordinates)


def test_the_busy_share_is_busy_time_over_replica_time(run):
    times = run.simulation.times
    span_s = np.nanmax(times.finish_s) - times.arrival_s[0]

    share = run_values(run)["busy_share"]

    assert share == pytest.approx(run.simulation.busy_s / span_s / 2)


def test_the_terminal_shows_deployment_facts_and_latencies(run):
    out = io.StringIO()

    print_page(run_page(run), Console(file=out, width=120, highlight=False))

    lines = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert lines[0].startswith("2 GPUs = 2 replicas × 1 (TP 1) one deployment")
    assert "within ttft ≤ 1 s" in lines
    assert "latency mean p50 p90 p95 p99 p99.9" in lines
    assert "time per output token – – – – – –" in lines
