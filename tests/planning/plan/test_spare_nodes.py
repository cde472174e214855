"""Spare nodes of a plan: against the binomial, and an outage simulated by itself."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from capplan.fleet.node_failures import FAILURES_PER_1000_NODE_DAYS
from capplan.planning.evaluate.inputs import plan_inputs, unseen
from capplan.planning.evaluate.run import simulate_deployment
from capplan.planning.money.spares import spare_nodes
from capplan.planning.plan.plan import plan
from capplan.planning.plan.spare_nodes import spares_of
from capplan.planning.settings.plan import PlanSettings, SimulateSettings
from capplan.report.pages.plan import plan_page
from capplan.settings import SettingError
from capplan.units import parse_duration_s

FLEET = {
    "latency_ms": "20,0.2,0,1,0.0001",
    "kv_blocks": 60,
    "gpu": "H100-SXM",
    "tp": 4,
    "llm": "Llama-3.1-8B",
    "slo": "ttft=1s,tpot=60ms",
}


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """Two hours: one of 3 requests a second, then one of 6."""
    rng = np.random.default_rng(5)
    gaps_s = np.concatenate(
        [rng.exponential(1 / 6, 21600), rng.exponential(1 / 3, 10800)]
    )
    arrivals = np.cumsum(gaps_s)
    rows = [f"{at:.2f},{150 + k % 90},{30 + k % 31}" for k, at in enumerate(arrivals)]
    path = tmp_path_factory.mktemp("hours") / "hours.csv"
    path.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]) + "\n")
    return path


def settings_of(trace, **given):
    return PlanSettings(
        **({"trace": trace, "extend": False, "availability": "99.9%"} | FLEET | given)
    )


@pytest.fixture(scope="module")
def found(trace):
    return plan(settings_of(trace, nodes="p5.48xlarge", repair="24h"))


def test_spares_are_those_of_the_binomial_for_the_nodes_of_the_plan(found):
    spares, (nodes,) = found.n_plus_k, found.best.cost.nodes
    expected = spare_nodes(
        int(nodes.count), FAILURES_PER_1000_NODE_DAYS / 1000, 24.0, 0.999
    )

    assert spares.node_count == nodes.count
    assert spares.spare_nodes == expected
    node_usd = nodes.usd_per_h / nodes.count
    assert spares.usd_per_month == pytest.approx(730 * node_usd * expected)
    assert spares.replicas_per_node == 2  # of 4 GPUs on 8


def test_more_nodes_gone_never_attain_more_and_none_attains_nothing(found):
    rows = found.n_plus_k.gone

    shares = [row.slo_attainment for row in rows]
    assert shares == sorted(shares, reverse=True)
    assert [row.nodes_gone for row in rows] == [
        0,
        *(found.n_plus_k.spare_nodes + beyond for beyond in range(1, len(rows))),
    ]
    for row in rows:
        assert row.replica_count > 0 or row.slo_attainment == 0


def test_the_busiest_hour_without_a_node_is_that_of_an_outage_at_its_start(
    trace, found
):
    count, gone = found.best.replica_count, found.n_plus_k.gone[1]
    lost = count - gone.replica_count
    read = np.loadtxt(trace, delimiter=",", skiprows=1)[:, 0]
    within = [np.searchsorted(read, at + 3600) - k for k, at in enumerate(read)]
    begin_s = float(read[int(np.argmax(within))])
    assert gone.replica_count > 0

    run = simulate_deployment(
        SimulateSettings(
            trace=trace,
            extend=False,
            replicas=count,
            outage=f"{lost}@{float(begin_s - read[0])!r}s:24h",
            **FLEET,
        )
    )

    times = run.simulation.times
    rows = (times.arrival_s >= begin_s) & (times.arrival_s < begin_s + 3600)
    met = np.logical_and(times.ttft_s <= 1.0, times.tpot_s <= 0.06)
    met |= np.isnan(times.tpot_s) & (times.ttft_s <= 1.0)
    assert gone.slo_attainment == pytest.approx(met[rows].mean(), abs=1e-9)


def test_the_page_says_what_spares_keep_and_what_a_node_more_takes(found):
    (section,) = [s for s in plan_page(found).sections if s.heading == "Spare nodes"]
    facts = dict(section.known_facts)

    count = found.n_plus_k.spare_nodes
    assert facts["spares"].startswith(f"{count} spare node")
    assert "99.9 % of the time" in facts["spares"]
    assert f"with {count + 1} node" in facts["spares"]
    assert "rather many for serving" in facts["failures"]


def test_one_node_with_all_replicas_takes_all_with_it_and_a_second_costs():
    settings = PlanSettings(
        workload="synthetic:prompt=200,output=40,n=2000", rate=1, nodes="p5.48xlarge",
        availability="99.9%", **FLEET,
    )  # fmt: skip

    found = plan(settings)

    (section,) = [s for s in plan_page(found).sections if s.heading == "Spare nodes"]
    said = dict(section.known_facts)["spares"]
    node_usd = 730 * found.best.cost.nodes[0].usd_per_h
    assert said.startswith(
        "all replicas are on one node: if it fails, everything is down for the repair "
        f"of 4 h (expect 5.5 h a year); a second node costs ${node_usd:,.0f} a month"
    )
    assert "are in time" not in said


def test_nodes_of_two_sizes_are_all_counted_and_the_largest_is_taken_away():
    """Nine replicas on a node of 8 GPUs and one of a single GPU."""
    settings = PlanSettings(
        workload="synthetic:prompt=200,output=40,n=2000", rate=4, availability="99%",
        **{**FLEET, "tp": 1},
    )  # fmt: skip
    inputs, _ = plan_inputs(settings)
    best = plan(settings).best
    run = replace(best.run, deployment=best.run.deployment.with_replicas(9))
    candidate = replace(best, run=run, cost=run.cost)
    assert [row.gpus_per_node for row in candidate.cost.nodes] == [8, 1]

    found = spares_of(inputs, candidate, unseen)

    large = candidate.cost.nodes[0]
    assert found.node_count == 2
    assert found.usd_per_node_month == pytest.approx(730 * large.usd_per_h)
    assert [row.replica_count for row in found.gone][:2] == [9, 1]


def test_a_rate_that_stays_is_judged_with_fewer_replicas():
    settings = PlanSettings(
        workload="synthetic:prompt=200,output=40,n=2000", rate=4, nodes="p5.48xlarge",
        availability=0.9999, attainment=0.9, **FLEET,
    )  # fmt: skip
    spares = plan(settings).n_plus_k

    assert spares.busiest_s is None
    assert spares.gone[0].slo_attainment >= spares.gone[1].slo_attainment


def test_without_known_nodes_it_says_why_no_spares_are_counted(trace):
    found = plan(settings_of(trace, price={"H100-SXM": "2.5/gpu"})).n_plus_k

    assert found.spare_nodes is None
    assert "--nodes" in found.reason


def test_a_scheduler_whose_requests_no_other_takes_over_is_not_tested(trace):
    settings = settings_of(trace, nodes="p5.48xlarge", scheduler="sarathi")
    found = plan(settings).n_plus_k

    assert found.spare_nodes is not None
    assert found.gone == ()
    assert "replicas that die" in found.untested


def test_a_short_repair_is_looked_at_for_its_own_time(trace):
    found = plan(settings_of(trace, nodes="p5.48xlarge", repair="12min")).n_plus_k

    assert found.busiest_s == parse_duration_s("12min")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"availability": 0}, "greater than 0"),
        ({"availability": "100%"}, "less than 1"),
        ({"availability": "most"}, "valid number"),
        ({"repair": "0s"}, "more than 0"),
        ({"repair": "-4h"}, "repair"),
        (
            {"availability": None, "repair": "4h"},
            "expected --availability",
        ),
        (
            {"availability": None, "failures": 2.0},
            "expected --availability",
        ),
        ({"disaggregated": True}, "disaggregated"),
    ],
)
def test_wrong_settings_of_spares_are_refused(trace, given, said):
    with pytest.raises(SettingError, match=said):
        settings_of(trace, **given)


@given(
    replicas=st.integers(1, 4),
    together=st.integers(1, 3),
    failures=st.floats(0.001, 0.05),
    repair_h=st.sampled_from([4.0, 24.0, 100.0]),
    availability=st.sampled_from([0.9, 0.99, 0.999]),
)
@settings(max_examples=60, deadline=None)
def test_spares_of_replicas_on_several_nodes_are_those_of_all_cases_told_apart(
    replicas, together, failures, repair_h, availability
):
    found = spare_nodes(replicas, failures, repair_h, availability, together)

    # A slow judge: every node is up or away by itself.
    away = failures * repair_h / 24 / (1 + failures * repair_h / 24)

    def share_up(spares):
        of_one = [
            np.prod([away if gone else 1 - away for gone in nodes])
            for nodes in product((False, True), repeat=together)
            if not any(nodes)
        ]
        up = sum(of_one)
        cases = product((False, True), repeat=replicas + spares)
        return sum(
            np.prod([up if serves else 1 - up for serves in case])
            for case in cases
            if sum(case) >= replicas
        )

    if found <= 6:
        assert share_up(found) >= availability - 1e-9
        assert found == 0 or share_up(found - 1) < availability + 1e-9


STAGES = {
    "llm": "Llama-3.1-70B",
    "gpu": "H100-SXM",
    "tp": 8,
    "pipeline_parallel_size": 2,
    "nodes": "p5.48xlarge",
    "availability": "99.9%",
    "failures": 50.0,
    "slo": "ttft=4s,tpot=60ms",
}


def test_a_replica_on_two_nodes_is_spared_and_lost_whole(tmp_path):
    rng = np.random.default_rng(3)
    path = tmp_path / "hours.csv"
    at = np.cumsum(rng.exponential(0.06, 15000))
    rows = ["arrival_s,prompt_tokens,output_tokens", *(f"{x:.2f},4000,60" for x in at)]
    path.write_text("\n".join(rows) + "\n")

    found = plan(PlanSettings(**STAGES, trace=path, extend=False))
    spares, best = found.n_plus_k, found.best

    assert best.gpus_per_replica == 16
    assert best.replica_count >= 2
    assert spares.node_count == 2 * best.replica_count
    # By hand: a node fails 0.05 times a day for 4 h, a replica is away if one is.
    away = 1 - (1 / (1 + 0.05 / 6)) ** 2
    count = best.replica_count
    enough = next(k for k in range(9) if binom.cdf(k, count + k, away) >= 0.999)
    assert spares.spare_nodes == 2 * enough
    assert spares.usd_per_month == pytest.approx(
        best.cost.usd_per_month * enough / count
    )
    assert [row.replica_count for row in spares.gone] == [
        count - lost for lost in range(min(count, 2) + 1)
    ]
    assert spares.gone[1].nodes_gone == enough + 1
    assert spares.is_gone_throughout
    assert spares.untested == ""
    (section,) = [s for s in plan_page(found).sections if s.heading == "Spare nodes"]
    assert any("takes 2 nodes" in note for note in section.notes)
    assert any("moment of failure" in note for note in section.notes)


def test_ranks_within_a_node_go_with_it():
    # A rate that stays: nothing comes and goes.
    found = plan(
        PlanSettings(
            llm="DeepSeek-R1", gpu="B200", data_parallel_size=8,
            enable_expert_parallel=False, availability="99.9%", rate=6,
            workload="synthetic:prompt=6000,output=100,n=300",
            slo="ttft=10s,tpot=150ms", tune=False,
        )
    )  # fmt: skip
    spares = found.n_plus_k

    assert str(found.best.layout) == "dp8"
    assert spares.node_count == found.best.replica_count
    assert (spares.replicas_per_node, spares.nodes_per_replica) == (1, 1)
    assert not spares.is_gone_throughout  # no hour is busier than others
    assert spares.gone[0].slo_attainment >= spares.gone[1].slo_attainment
    assert spares.gone[1].replica_count == found.best.replica_count - 1
