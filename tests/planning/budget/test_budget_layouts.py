"""Budgets, capacities and demand of replicas with ranks, whole experts and stages."""

import gzip
import io
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from capplan.deployment.pools import Deployment
from capplan.errors import InputError
from capplan.llm.layout import Layout
from capplan.planning.autoscale.autoscale import autoscale
from capplan.planning.autoscale.settings import AutoscaleSettings
from capplan.planning.budget.budget import budget
from capplan.planning.budget.settings import BudgetSettings
from capplan.planning.configure.configuration import (
    Configuration,
    configurations,
    only_configuration,
)
from capplan.planning.evaluate.run import simulate_deployment
from capplan.planning.plan import demand as demand_module
from capplan.planning.plan.demand import planned_at
from capplan.planning.plan.plan import plan
from capplan.planning.settings.layouts import LayoutSettings
from capplan.planning.settings.plan import (
    CapacitySettings,
    DemandSettings,
    PlanSettings,
    SimulateSettings,
)
from capplan.planning.size import capacity as capacity_module
from capplan.planning.size.capacity import capacity
from capplan.report.pages.budget import budget_page, budget_values
from capplan.report.pages.capacity import capacity_values
from capplan.report.pages.run import run_page, run_values
from capplan.report.received.planned_settings import planned_settings
from capplan.report.received.verify_budget import verify_budget
from capplan.report.render.json_text import json_text
from capplan.report.render.terminal import print_page
from capplan.report.to_files import plan as plan_to_files
from tests.budgets import stub_plans

pytestmark = pytest.mark.filterwarnings("ignore")
LONG = {
    "workload": "synthetic:prompt=6000,output=600,n=200",
    "llm": "DeepSeek-R1",
    "gpu": "B200",
    "slo": "ttft=10s,tpot=150ms",
}
MONTH = {"horizon_months": 1, "fleet": "static", "commit": "none"}
MTP = '{"method":"mtp"}'


def made(**more):
    return budget(BudgetSettings(**{**LONG, "rate": 20, **MONTH, **more}))


def console_text(page):
    out = io.StringIO()
    print_page(page, Console(file=out, width=200, highlight=False))
    return out.getvalue()


def able(settings):
    found = configurations(settings)
    return [row for row in found if isinstance(row, Configuration)]


def test_a_layout_that_was_chosen_is_looked_at_alone():
    for more in ({}, {"all2all_backend": "deepep_low_latency"}):
        asked = PlanSettings(
            llm="Qwen3.5-397B-A17B",
            gpu="GB300",
            max_num_batched_tokens=512,
            max_num_seqs=256,
            **more,
        )
        rows = able(asked)

        assert len(rows) > 1
        for row in rows:
            again = able(asked.model_copy(update=asked.of(row.layout)))
            assert [str(each.layout) for each in again] == [str(row.layout)]


def test_all_rates_keep_the_layout_and_the_drafts_of_the_highest(monkeypatch):
    seen = []
    asked = PlanSettings(llm="DeepSeek-R1", gpu="B200,H200", speculative_config=MTP)
    two = asked.model_copy(
        update={"speculative_config": '{"method":"mtp","num_speculative_tokens":2}'}
    )
    chosen = next(row for row in able(two) if str(row.layout) == "dp8-ep8")

    def planned(settings, progress):
        seen.append(settings)
        run = SimpleNamespace(configuration=chosen)
        best = SimpleNamespace(gpus=(chosen.gpu,), run=run)
        return SimpleNamespace(best=best, warnings=())

    monkeypatch.setattr(demand_module, "plan", planned)
    planned_at((1.0, 2.0, 3.0), lambda rate: asked)

    assert seen[0] == asked
    for settings in seen[1:]:
        (row,) = able(settings)
        assert row.key == chosen.key
        assert row.engine.speculation.drafts == 2


def test_replicas_on_several_nodes_are_bought_as_whole_nodes(monkeypatch):
    stub_plans(monkeypatch)  # a replica serves 8 requests/s
    settings = {"gpu": "GB200", "data_parallel_size": "16", "tp": "1"}

    # Three replicas of 16 GPUs on nodes of four.
    found = made(**settings, enable_expert_parallel=True, price="GB200=10")
    prices = found.prices

    (month,) = found.months
    assert str(found.configuration.layout) == "dp16-ep16"
    assert month.replicas == 3
    assert int(month.nodes.max()) * prices.gpus_per_node == 48
    assert month.bill.usd == pytest.approx(730 * 48 * 10)


def test_a_months_peak_is_the_count_that_was_simulated_at_it(monkeypatch):
    stub_plans(monkeypatch)

    # 7.9999996 is simulated as 8.0 and 16.0000001 as 16.0.
    low, high = (made(rate=rate, tp=8).months[0] for rate in (7.9999996, 16.0000001))

    assert (low.replicas, high.replicas) == (1, 2)
    assert (int(low.nodes.max()), int(high.nodes.max())) == (1, 2)


STAGES = {"llm": "Llama-3.1-70B", "tp": 2, "pipeline_parallel_size": 2}


def test_what_does_not_come_and_go_is_not_simulated_on_the_trace(monkeypatch):
    stub_plans(monkeypatch)

    found = made(**STAGES, workload="azure-week-like", rate=None)

    assert found.fleets == ()
    assert any(
        text.startswith("fleets on the trace are not simulated")
        and "pipeline_parallel_size 2" in text
        for text in found.warnings
    )
    assert len(found.months) == 1


@pytest.fixture(scope="module")
def day(tmp_path_factory):
    """The first day of the shipped week."""
    week = Path(__file__).parents[3] / "workloads" / "azure-week-like.csv.gz"
    head, *rows = gzip.decompress(week.read_bytes()).decode().splitlines()
    path = tmp_path_factory.mktemp("day") / "day.csv"
    kept = [row for row in rows if float(row.partition(",")[0]) < 86_400]
    path.write_text("\n".join([head, *kept]))
    return path


@pytest.mark.thorough
@pytest.mark.parametrize(
    "given",
    [
        {"data_parallel_size": 8, "enable_expert_parallel": True},
        {"tp": 8, "speculative_config": MTP[:-1] + ',"num_speculative_tokens":1}'},
    ],
)
def test_ranks_and_drafts_come_and_go_on_the_trace(monkeypatch, given, day):
    stub_plans(monkeypatch)

    found = made(**given, workload=None, trace=str(day), rate=None)

    assert {"fixed", "schedule"} & {row.name for row in found.fleets}
    assert len(found.months) == 1


def test_stages_do_not_come_and_go_and_are_refused_before_any_run():
    with pytest.raises(InputError, match="pipeline_parallel_size 2"):
        autoscale(
            AutoscaleSettings(**{**LONG, "rate": 20, **STAGES}),
            lambda step, share=None: pytest.fail(step),
        )


def test_the_file_names_the_layout_and_is_verified(monkeypatch, tmp_path):
    stub_plans(monkeypatch)
    found = made(data_parallel_size=8, enable_expert_parallel=False)
    document = json.loads(json_text(budget_values(found)))
    path = tmp_path / "budget.json"

    assert (document["layout"], document["gpus_per_replica"]) == ("dp8", 8)
    page = budget_page(found)
    facts = [fact for section in page.sections for fact in section.facts]
    assert ("replicas of", "B200-SXM × DP 8 × TP 1") in facts
    assert "replicas of 8 GPUs for 20 requests/s" in page.answer.peak.text
    path.write_text(json.dumps(document))
    assert verify_budget(path, simulate=True) == []
    for name in ("layout", "gpus_per_replica", "launch_line", "launch_notes"):
        left = {key: value for key, value in document.items() if key != name}
        path.write_text(json.dumps(left))
        assert verify_budget(path, simulate=True)
    path.write_text(json.dumps({**document, "layout": "tp8"}))
    assert verify_budget(path, simulate=True)


def test_a_scenario_names_the_layout_that_it_chose(monkeypatch):
    stub_plans(monkeypatch)

    found = made(data_parallel_size=8, enable_expert_parallel=False,
                 scenarios={"high": {"scale": 2}})  # fmt: skip

    (row,) = budget_values(found)["scenarios"]
    assert (row["layout"], row["gpus_per_replica"]) == ("dp8", 8)
    assert "B200-SXM × DP 8 × TP 1" in console_text(budget_page(found))


def test_wrong_settings_of_layouts_are_refused_as_in_a_plan():
    for command in (BudgetSettings, DemandSettings, CapacitySettings):
        with pytest.raises(InputError, match="expected TP and stages alone"):
            command(**LONG, pipeline_parallel_size=2, enable_expert_parallel=True)
    with pytest.raises(InputError, match="has no experts"):
        made(llm="Llama-3.1-70B", data_parallel_size=2)


@pytest.mark.slow
def test_a_month_buys_what_the_plan_buys_and_layouts_cost_no_more_than_tp():
    # Of kernels alone: with an engine's time ranks are in doubt, and TP goes before.
    kernels = {"engine_overhead": "none"}
    given = {"data_parallel_size": "1,8", "enable_expert_parallel": False, **kernels}
    settings = BudgetSettings(**{**LONG, "rate": 10, **MONTH, **given})
    found, alone = budget(settings), made(tp=8, rate=10, **kernels)

    best = plan(settings.at_rate(10.0)).best

    assert found.configuration.key == best.key
    assert found.configuration.layout == Layout(1, 8)
    (month,) = found.months
    assert month.replicas == best.replica_count
    assert int(month.nodes.max()) * found.prices.gpus_per_node == best.gpu_count
    assert month.bill.usd == pytest.approx(best.cost.usd_per_month)
    assert found.launch == best.launch
    assert "--data-parallel-size 8" in found.launch.line
    assert alone.configuration.layout == Layout(8)
    assert found.usd <= alone.usd


@pytest.mark.slow
def test_a_plan_of_ranks_and_drafts_becomes_a_budget_of_them(tmp_path):
    small = {"workload": "synthetic:prompt=1000,output=60,n=100"}
    asked = {
        **LONG,
        **small,
        "rate": 5,
        "data_parallel_size": 8,
        "speculative_config": MTP,
    }
    result, _ = plan_to_files(
        PlanSettings(**asked, enable_expert_parallel=False, out=str(tmp_path))
    )

    given = BudgetSettings(**planned_settings(tmp_path / "plan.json", BudgetSettings))

    (row,) = able(given.at_rate(5.0))
    best = result.best.run.configuration
    assert row.key == best.key == ("B200-SXM", "dp8")
    assert row.engine.speculation == best.engine.speculation


@pytest.mark.slow
def test_what_fleets_of_layouts_serve_is_what_their_plans_need():
    loose = {**LONG, "workload": "synthetic:prompt=2000,output=50,n=100"}
    found = capacity(
        CapacitySettings(**loose, data_parallel_size=8, think="exp:3s", max_gpus=8)
    )

    layouts = {str(row.pool.configuration.layout) for row in found.rows}
    assert layouts == {"dp8", "dp8-ep8"}
    document = capacity_values(found)
    best = found.best
    assert document["layout"] == str(best.pool.configuration.layout)
    assert document["gpus_per_replica"] == document["gpu_count"] == 8
    only = LayoutSettings.of(best.pool.configuration.layout)
    at = PlanSettings(**{**loose, **only}, rate=best.max_rate_per_s, arrivals="poisson")
    assert plan(at).best.replica_count <= 2


def test_fleets_too_large_for_the_gpus_are_left_out_with_why(monkeypatch):
    monkeypatch.setattr(
        capacity_module,
        "_Search",
        lambda settings, trace, slo, configuration, stopped: SimpleNamespace(
            deployment=(of := Deployment.of(configuration, 1)),
            pool=of.pool,
            max_rate_per_s=None,
            max_users=None,
            is_failure=True,
        ),
    )
    monkeypatch.setattr(capacity_module, "_served", lambda search: search)

    found = capacity(CapacitySettings(**{**LONG, "gpu": "GB300"}, max_gpus=8))

    gpus = {row.deployment.pool.configuration.gpus for row in found.rows}
    assert gpus == {4, 8}
    text = "--max-gpus is 8; a replica of GB300 × DP 16 × TP 1, EP 16 takes 16"
    assert text in [row.reason for row in found.excluded]


def test_an_autoscaled_fleet_has_one_rank_and_experts_apart_where_asked():
    given = {"llm": "DeepSeek-R1", "gpu": "B200", "tp": 8, "slo": "ttft=10s"}
    plain = AutoscaleSettings(**given)
    apart = AutoscaleSettings(**given, enable_expert_parallel=True)

    assert str(only_configuration(plain).layout) == "tp8"
    assert str(only_configuration(apart).layout) == "tp8-ep8"
    for settings in (plain, apart):
        (row,) = able(settings.of_plan())
        assert row.key == only_configuration(settings).key
    asked = BudgetSettings(
        **LONG, data_parallel_size="1,8", prefill_schedule_interval=2
    )
    fleets = asked.of_fleets("B200-SXM", Layout(8, 1, 8), ("hpa",))
    assert str(only_configuration(fleets).layout) == "tp8-ep8"


def test_pools_with_ranks_are_named_by_their_layouts():
    run = simulate_deployment(
        SimulateSettings(
            **{**LONG, "workload": "synthetic:prompt=300,output=20,n=60"},
            rate=5,
            data_parallel_size=8,
            prefill_tp=8,
            prefill_replicas=1,
            decode_replicas=2,
        )
    )

    rows = run_values(run)["pools"]
    assert [row["layout"] for row in rows] == ["tp8", "dp8"]
    assert [row["gpus_per_replica"] for row in rows] == [8, 8]
    assert [row["gpu_count"] for row in rows] == [8, 16]
    text = console_text(run_page(run))
    assert re.search(r"decode +B200-SXM +1 × DP 8 +2 +16", text)
