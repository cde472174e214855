"""The scheduler of a plan: its engine, its proof, and what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest

from capplan.bounds.certificate import check_document, seal
from capplan.bounds.prices import engine_bounds, fit_prices
from capplan.cli.main import exit_code
from capplan.deployment.engine import EngineSettings
from capplan.engines.catalog import VLLM
from capplan.errors import InputError
from capplan.latency.contract import linear_tables
from capplan.planning.configure.scheduling import (
    scheduled,
    scheduling,
    widest_iterations,
)
from capplan.planning.plan.plan import plan
from capplan.planning.prove.proof import reproduce
from capplan.planning.settings.asked import asked
from capplan.planning.settings.place import PlaceSettings
from capplan.planning.settings.plan import PlanSettings, SimulateSettings
from capplan.simulator.schedulers import SCHEDULERS, parse_scheduler
from tests.documents import plan_json

LENGTHS = "synthetic:prompt=300,output=lognormal(median=80,sigma=0.6),n=3000"
ASKED = {
    "workload": LENGTHS,
    "rate": 60,
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM",
    "tp": 1,
    "slo": "ttft=500ms,tpot=20ms",
    "price": "H100-SXM=2.5",
    "drop_oversized": True,
}
DEFAULT = EngineSettings(prefix_caching=True)


@pytest.mark.parametrize("name", sorted(SCHEDULERS))
def test_what_nobody_asked_for_and_a_scheduler_has_not_is_turned_off(name):
    engine = scheduled(DEFAULT, asked(PlanSettings(scheduler=name)))

    assert engine.scheduler == parse_scheduler(name)
    rules = engine.scheduler.rules
    assert (engine.prefix_caching, engine.async_scheduling) == (
        rules.prefix_caching,
        rules.async_scheduling,
    )
    if name.startswith("vllm-v1") or name == "sglang":
        assert rules.prefix_caching
        assert rules.async_scheduling


@pytest.mark.parametrize("name", ["prefix_caching", "async_scheduling"])
def test_what_is_asked_for_and_a_scheduler_has_not_is_refused(name):
    settings = asked(PlanSettings(scheduler="sarathi", **{name: True}))

    with pytest.raises(InputError, match=f"{name} is True; scheduler sarathi has"):
        scheduled(DEFAULT, settings)


@pytest.mark.parametrize("name", ["link_gb_per_s", "host_kv_gib"])
def test_a_link_for_a_scheduler_that_swaps_nothing_is_refused(name):
    with pytest.raises(InputError, match="scheduler vllm-v1 swaps nothing"):
        scheduled(DEFAULT, asked(PlanSettings(**{name: 2.0})))


def test_a_link_is_of_a_scheduler_whose_settings_swap():
    settings = asked(PlanSettings(scheduler="vllm-v0:swap=1", link_gb_per_s=12.0))

    assert str(scheduled(DEFAULT, settings).scheduler).startswith("vllm-v0:swap=1")
    with pytest.raises(InputError, match="swaps nothing"):
        scheduled(DEFAULT, settings.model_copy(update={"scheduler": "vllm-v0"}))


@pytest.mark.parametrize(
    ("model", "searches"), [(PlanSettings, True), (SimulateSettings, False)]
)
def test_what_is_asked_of_replicas_is_what_the_command_was_given(model, searches):
    settings = model(llm="Llama-3.1-8B", tp="2", data_parallel_size="1,8")

    found = asked(settings)

    assert (found.llm, found.tp, found.data_parallel_size) == (
        "Llama-3.1-8B",
        (2,),
        (1, 8),
    )
    assert found.searches_layouts is searches
    assert {"price", "scheduler", "router"} <= found.offered


def test_what_a_command_does_not_offer_is_as_by_default():
    found = asked(PlaceSettings(llm="Llama-3.1-8B", solver="best-fit"))

    assert {"price", "scheduler", "router", "data_parallel_size"}.isdisjoint(
        found.offered
    )
    assert (found.price, found.router, found.data_parallel_size) == ({}, None, ())
    assert not found.searches_layouts


def test_an_iteration_without_a_budget_holds_what_the_kv_holds():
    tables = linear_tables(1e-3, 1e-5, 0, 0, 0, max_batch=8, max_tokens=64)
    engine = EngineSettings(64, 8, 16, kv_blocks=101, scheduler=parse_scheduler("orca"))

    unlimited, reaching = widest_iterations(engine, tables)

    assert unlimited.max_num_batched_tokens == 100 * 16
    assert reaching.fused_s[1600] == pytest.approx(1e-3 + 1600 * 1e-5)
    given = replace(engine, scheduler=parse_scheduler("sarathi"))
    assert widest_iterations(given, tables) == (given, tables)


@pytest.mark.parametrize("name", ["fastserve", "alise"])
def test_decodes_come_on_top_of_a_budget_of_prompts(name):
    # Concave: a price for 64 tokens is above the time of 64 and 8 decodes.
    tables = linear_tables(1e-3, 1e-5, 0, 0, 0, max_batch=8, max_tokens=64)
    tables = tables._replace(fused_s=1e-3 + 1e-3 * np.sqrt(np.arange(65)))
    engine = EngineSettings(64, 8, 16, kv_blocks=101, scheduler=parse_scheduler(name))

    widest, reaching = widest_iterations(engine, tables)

    assert widest.max_num_batched_tokens == 72
    prices = fit_prices(reaching, engine_bounds(widest), 16, 64, 1.0)
    wide_s = reaching.fused_s[72] + reaching.fused_decode_s[8]
    assert prices.fixed_s + 8 * prices.decode_s + 64 * prices.prefill_s <= wide_s
    narrow = fit_prices(tables, engine_bounds(engine), 16, 64, 1.0)
    assert narrow.fixed_s + 8 * narrow.decode_s + 64 * narrow.prefill_s > wide_s


def test_a_scheduler_says_what_it_does_not_have():
    assert scheduling(
        replace(DEFAULT, scheduler=parse_scheduler("orca:max_len=4096"))
    ) == (
        "schedules as orca:max_len=4096, without async scheduling, prefix caching, "
        "token budget"
    )


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.*its time was extrapolated")
@pytest.mark.parametrize("name", sorted(set(SCHEDULERS) - set(VLLM.schedulers)))
def test_a_plan_with_another_scheduler_names_it_and_is_verified(name):
    asked = {**ASKED, "workload": LENGTHS.replace("n=3000", "n=1000"), "rate": 20}
    asked |= {"slo": f"{ASKED['slo']},tbt=500ms"}  # which AccelGen needs
    result = plan(PlanSettings(**asked, scheduler=name))

    document = json.loads(plan_json(result))
    text = str(parse_scheduler(name))
    assert document["best"]["scheduler"] == text
    assert document["best"]["engine"]["scheduler"] == text
    assert document["certificate"]["engine"]["scheduler"] == text
    assert result.assumptions[-1].source.startswith("schedules as ")
    assert text in result.assumptions[-1].source
    assert result.best is not None
    assert result.best.gpu_count >= result.best.bound.replica_count
    assert "no vllm serve command: vLLM does not" in result.best.launch.notes[0]
    assert check_document(document, reproduce) == []


@pytest.mark.thorough
def test_a_plan_by_priority_is_started_with_vllms_own_flag():
    result = plan(PlanSettings(**ASKED, scheduler="vllm-v1-priority", tune=False))

    assert "--scheduling-policy priority" in result.assumptions[-1].source
    assert result.best is not None
    assert result.best.launch.line.endswith("--scheduling-policy priority")
    assert check_document(json.loads(plan_json(result)), reproduce) == []


def test_a_certificate_of_another_scheduler_is_refused():
    document = json.loads(plan_json(plan(PlanSettings(**ASKED, scheduler="sarathi"))))
    spoiled = {**document, "settings": {**document["settings"], "scheduler": "vllm-v0"}}

    reasons = check_document(seal(spoiled), reproduce)

    assert any("engine is not that" in reason for reason in reasons)


def test_a_candidate_whose_scheduler_refuses_requests_is_infeasible():
    # 2,048 tokens on an A100 and 8,192 on an H100, where prompts are not cut.
    asked = {**ASKED, "workload": LENGTHS.replace("=300,", "=3000,"), "slo": "e2e=60s"}
    asked |= {"gpu": "H100-SXM,A100-80GB-SXM", "price": "A100-80GB-SXM=1.5"}

    result = plan(PlanSettings(**asked, scheduler="vllm-v0"))

    rows = {row.gpu: row for row in result.candidates}
    assert rows["H100-SXM"].status == "feasible"
    assert rows["A100-80GB-SXM"].status == "infeasible"
    assert rows["A100-80GB-SXM"].infeasible_reason.startswith(
        f"scheduler {parse_scheduler('vllm-v0')} cannot serve 3,000 requests; the "
        "first is row 1 with 3000 prompt"
    )


PLAN = (
    "plan --workload synthetic:prompt=5000,output=20,n=300 --rate 1 --slo e2e=60s "
    "--llm Llama-3.1-8B --gpu H100-SXM --tp 1 "
)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ("--scheduler sarathy", "did you mean sarathi"),
        ("--scheduler orca:maxlen=3", "did you mean max_len"),
        ("--scheduler orca:max_len=x", "max_len is 'x'; expected a number"),
        ("--scheduler orca --prefix-caching", "prefix_caching is True; scheduler orca"),
        ("--scheduler orca", "cannot serve 300 requests; the first is row 1"),
        ("--link-gb-per-s 12", "scheduler vllm-v1 swaps nothing"),
        ("--link-gb-per-s 0", "link_gb_per_s is 0"),
    ],
)
def test_what_cannot_be_scheduled_is_one_line_and_exit_2(asked, complaint, capsys):
    assert exit_code((PLAN + asked).split()) == 2

    error = capsys.readouterr().err
    assert complaint in error
    assert len(error.splitlines()) == 1


def test_a_scenario_names_the_line_of_an_unknown_scheduler(tmp_path, capsys):
    scenario = tmp_path / "plan.yaml"
    scenario.write_text("rate: 3\nscheduler: vlm-v1\n")

    assert exit_code(["plan", str(scenario)]) == 2

    assert "plan.yaml:2: scheduler: scheduler 'vlm-v1' is not known; did you mean" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("name", sorted(SCHEDULERS))
def test_a_scheduler_is_described_with_all_its_settings(name):
    assert parse_scheduler(str(parse_scheduler(name))) == parse_scheduler(name)


@pytest.mark.parametrize(
    ("asked", "remedy"),
    [
        ({"engine": "trtllm"}, "trtllm:chunked=1"),
        ({"scheduler": "vllm-v0:swap=1"}, "vllm-v0:swap=1,chunked=1,padded_budget=0"),
    ],
)
def test_prompts_that_are_not_cut_are_refused_with_what_cuts_them(asked, remedy):
    given = {**ASKED, **asked, "drop_oversized": False, "tune": False, "rate": 1}
    given["workload"] = "synthetic:prompt=9000,output=20,n=200"
    given |= {"max_num_batched_tokens": 8192, "slo": "e2e=60s"}

    with pytest.raises(InputError, match="are not cut") as refusal:
        plan(PlanSettings(**given))

    assert f"cut prompts with --scheduler {remedy}, or drop them with" in str(
        refusal.value
    )
    assert plan(PlanSettings(**given | {"scheduler": remedy})).status == "feasible"
