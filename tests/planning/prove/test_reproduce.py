"""A plan's file can be checked by anybody, and a spoiled copy is refused."""

import json
from pathlib import Path

import pytest

from capplan.bounds.certificate import check_document, seal
from capplan.planning.plan.plan import plan
from capplan.planning.prove.proof import MIX, reproduce
from capplan.planning.settings.plan import PlanSettings
from tests.documents import plan_json

ASKED = {
    "workload": "synthetic:prompt=300,output=lognormal(median=80,sigma=0.6),n=3000",
    "rate": 120.0,
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM",
    "tp": 1,
    "slo": "ttft=500ms,tpot=12ms",
    "price": "H100-SXM=2.5",
}


def planned(**settings):
    return json.loads(plan_json(plan(PlanSettings(**{**ASKED, **settings}))))


@pytest.fixture(scope="module")
def document():
    return planned()


@pytest.mark.thorough
def test_plan_holds_when_everything_is_made_again(document):
    assert check_document(document, reproduce) == []


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("best", "usd_per_h"), 1.0),
        (("certificate", "replica_count"), 1),
        (("certificate", "bound", "work_s"), 1.0),
        (("settings", "rate"), 121.0),
        (("candidates", 0, "slo_attainment"), 0.5),
    ],
)
def test_changed_figure_is_refused(document, where, value, changed):
    spoiled = changed(document, where, value)

    assert "digest" in check_document(spoiled)[0]


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("best", "gpu_count"), 1),
        (("best", "slo_attainment"), 0.5),
        (("best", "usd_per_h"), 1.0),
        (("best", "lower_bound_gpu_count"), 7),
        (("candidates", 0, "replica_count"), 1),
        (("status",), "infeasible"),
    ],
)
def test_answer_that_is_not_what_is_proven_is_refused(document, where, value, changed):
    spoiled = changed(document, where, value)

    (reason,) = check_document(seal(spoiled))

    assert where[-1] in reason
    assert "is proven" in reason


def test_other_request_under_a_fresh_digest_is_refused(document):
    spoiled = json.loads(json.dumps(document))
    spoiled["settings"]["rate"] = 110.0

    reasons = check_document(seal(spoiled), reproduce)

    assert "not those of the plan" in reasons[0]


def test_claimed_attainment_is_simulated_again(document):
    spoiled = json.loads(json.dumps(document))
    spoiled["certificate"]["simulated"]["passing"] = 0.9999
    for answer in (spoiled["best"], spoiled["candidates"][0]):
        answer["slo_attainment"] = 0.9999

    reasons = check_document(seal(spoiled), reproduce)

    assert any("simulated again" in reason for reason in reasons)


@pytest.mark.thorough
def test_a_bound_of_the_mix_holds_and_is_none_of_given_arrivals(tmp_path):
    path = tmp_path / "given.csv"
    rows = "".join(f"{k * 0.01:.2f},300,80\n" for k in range(3000))
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + rows)

    of_mix = planned(slo="e2e=100s", rate=150.0)
    given = planned(workload=None, trace=path, rate=None)
    given["certificate"]["sample"] = MIX

    assert of_mix["certificate"]["sample"] == MIX
    assert check_document(of_mix, reproduce) == []
    (reason,) = check_document(seal(given), reproduce)
    assert "the arrivals are given" in reason


@pytest.mark.thorough
def test_the_example_report_holds_when_everything_is_made_again():
    path = Path(__file__).parents[3] / "reports" / "plan" / "plan.json"

    document = json.loads(path.read_text(encoding="utf-8"))

    assert check_document(document, reproduce) == []
