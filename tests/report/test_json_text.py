"""plan.json: the names others script against, and nothing that JSON lacks."""

import json
from dataclasses import replace

import pytest

from capplan.planning.evaluate.judgement import LEVELS
from tests.documents import plan_json

NAMES = [
    "gpu",
    "tp",
    "replica_count",
    "gpu_count",
    "lower_bound_gpu_count",
    "slo_attainment",
    "slo_attainment_interval",
    "ttft_p99_s",
    "tpot_p99_s",
    "usd_per_h",
    "usd_per_million_input_tokens",
    "usd_per_million_output_tokens",
    "binding",
]


def test_the_names_that_others_script_against_are_there(plan):
    document = json.loads(plan_json(plan))

    assert document["schema"] == "capplan.plan/2"
    assert document["status"] == "feasible"
    assert document["infeasible_reason"] is None
    assert document["best"]["gpu_count"] == 3
    for candidate in [document["best"], *document["candidates"]]:
        assert set(NAMES) <= set(candidate)
    assert document["settings"]["gpu"][0] == "H100-SXM"
    assert document["best"]["engine"]["max_num_batched_tokens"] == 8192
    assert [row["replica_count"] for row in document["best"]["bounds"]] == [2]


def test_what_is_not_finite_is_null(plan, best):
    judgement = best.run.judgement
    judgement = replace(
        judgement,
        percentiles=judgement.percentiles | {"ttft_s": (float("nan"),) * 6},
        attainment=replace(judgement.attainment, interval=(float("-inf"), 1.0)),
    )
    spoiled = replace(best, run=replace(best.run, judgement=judgement))

    document = json.loads(plan_json(replace(plan, best=spoiled)))

    assert document["best"]["ttft_p99_s"] is None
    assert document["best"]["slo_attainment_interval"] == [None, 1.0]


def test_runtime_does_not_change_the_bytes(plan):
    assert plan_json(plan) == plan_json(replace(plan, runtime_s=99.0))


def test_distributions_stand_with_the_candidates_and_not_twice(plan):
    document = json.loads(plan_json(plan))

    assert len(document["candidates"][0]["ttft_quantiles_s"]) == len(LEVELS)
    assert len(document["candidates"][0]["series"]["kv_share"]) > 100
    assert "series" not in document["best"]


def test_an_infeasible_plan_says_why(infeasible):
    document = json.loads(plan_json(infeasible))

    assert document["status"] == "infeasible"
    assert document["best"] is None
    assert "TPOT takes 7.03 ms at least, not 1 ms" in document["infeasible_reason"]


def test_months_and_years_are_hours_of_the_hourly_price(plan):
    best = json.loads(plan_json(plan))["best"]

    assert best["usd_per_month"] == pytest.approx(730 * 7.47)
    assert best["usd_per_year"] == pytest.approx(8760 * 7.47)


def test_the_classes_stand_in_the_document_with_limits_and_targets(classed):
    best = json.loads(plan_json(classed))["best"]

    chat, code = best["classes"]
    assert (chat["class_name"], chat["attainment"]) == ("chat", 0.99)
    assert (code["slo_text"], code["attainment"]) == ("ttft ≤ 1 s, tpot ≤ 20 ms", 0.95)
    rows = classed.best.run.judgement.classes
    assert code["slo_attainment_interval"] == list(rows[1].slo_attainment_interval)
    assert [len(probe["classes"]) for probe in best["probes"]] == [2] * len(
        best["probes"]
    )
