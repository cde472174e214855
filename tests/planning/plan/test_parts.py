from dataclasses import dataclass, fields, replace

import pytest

from capplan.planning.evaluate.inputs import plan_inputs, unseen
from capplan.planning.plan.plan import plan
from capplan.planning.plan.result import Plan, in_full
from capplan.planning.plan.told import Told, part
from capplan.planning.settings.plan import PlanSettings
from capplan.report.pages.plan import plan_page, plan_values

SETTINGS = {
    "workload": "synthetic:prompt=500,output=50,n=1000",
    "rate": 4.0,
    "llm": "Llama-3.1-8B",
    "gpu": ("H100-SXM",),
    "tp": (1,),
    "slo": ("ttft=1s,tpot=30ms",),
}


@dataclass(frozen=True, eq=False, repr=False)
class WithHeadroom(Plan):
    """A plan with a part that is declared in one line, and rests on another."""

    headroom: float | None = part(
        lambda told: told.plan.replica_load.rate_per_s * told.run.replica_count,
        said="sustained in all",
    )


@pytest.fixture(scope="module")
def made():
    settings = PlanSettings(**SETTINGS)
    found = plan(settings)
    bare = {each.name: getattr(found, each.name) for each in fields(Plan)}
    inputs, tried = plan_inputs(settings)
    return in_full(Told(inputs, tried, WithHeadroom(**bare), unseen, with_load=True))


def test_a_part_is_made_of_those_before_it_is_a_key_of_the_json_and_a_fact(made):
    values = plan_values(made)

    assert made.headroom == made.replica_load.rate_per_s * made.best.replica_count
    assert values["headroom"] == made.headroom
    facts = [fact for each in plan_page(made).sections for fact in each.known_facts]
    assert ("sustained in all", str(made.headroom)) in facts
    assert values["certificate"]["document_digest"]


def test_a_plan_without_a_best_candidate_has_no_parts():
    impossible = PlanSettings(**SETTINGS | {"slo": ("ttft=1s,tpot=1ms",)})

    found = plan(impossible)

    made = [each for each in fields(Plan) if "of" in each.metadata]
    assert found.best is None
    assert len(made) > 10
    assert all(getattr(found, each.name) in (None, ()) for each in made)


def test_keys_of_the_json_keep_their_order_whatever_order_parts_are_made_in(made):
    names = list(plan_values(replace(made)))

    kept = [name for name in names if name in ("placement", "settings", "risk", "api")]
    assert kept == ["placement", "settings", "risk", "api"]
    assert names[-2:] == ["sticky", "costs"]
