"""Autoscalers against fixed fleets: laws, and cases worked by hand."""

from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest

from capplan.deployment.changes import Change
from capplan.errors import InputError
from capplan.planning.autoscale import autoscale as module
from capplan.planning.autoscale.autoscale import autoscale
from capplan.planning.autoscale.break_even import break_even
from capplan.planning.autoscale.cases import Cases
from capplan.planning.autoscale.known_to_policies import informed
from capplan.planning.autoscale.losses import absences, fixed_loss, losses_of
from capplan.planning.autoscale.perfect_fleet import cheapest
from capplan.planning.autoscale.result import Autoscaled
from capplan.planning.autoscale.settings import DEFAULT_POLICIES, AutoscaleSettings
from capplan.planning.evaluate.replica_load import ReplicaLoad
from capplan.planning.evaluate.run import simulate_deployment
from capplan.planning.load.load import Load
from capplan.planning.load.traffic import read_requests
from capplan.planning.settings.plan import SimulateSettings
from capplan.report.charts.autoscale import figures, finding
from capplan.settings import SettingError
from capplan.simulator.autoscalers import parse_autoscaler

FLEET = {
    "latency_ms": "20,0.2,0,1,0.0001",
    "kv_blocks": 4000,
    "slo": "ttft=1s,tpot=60ms",
    "cold_start": "30s",
}
ON_NODES = {
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM",
    "tp": 4,
    "nodes": "p5.48xlarge",
    "policies": "hpa",
    "break_even": False,
}


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """Two waves of 33 minutes each, from 1 to 9 requests a second and back."""
    rng = np.random.default_rng(3)
    at_s = np.arange(0, 4000, 0.02)
    per_s = 5 - 4 * np.cos(2 * np.pi * at_s / 2000)
    arrival_s = at_s[rng.random(len(at_s)) < per_s * 0.02]
    rows = [f"{a:.2f},{200 + k % 90},{40 + k % 31}" for k, a in enumerate(arrival_s)]
    path = tmp_path_factory.mktemp("waves") / "waves.csv"
    path.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]) + "\n")
    return path


@pytest.fixture(scope="module")
def found(trace) -> Autoscaled:
    asked = {
        "policies": "hpa,schedule,keda",
        "outage": "1@peak:10m",
        "rolling_update": "2m",
        "break_even": False,
    }
    return autoscale(AutoscaleSettings(trace=trace, **FLEET, **asked))


def test_replicas_are_paid_ready_and_busy_in_this_order(found):
    rows = (found.fixed, *found.policies)

    for row in rows:
        assert row.outcome.gpu_hours_paid >= row.outcome.gpu_hours_ready * (1 - 1e-9)
        assert row.outcome.gpu_hours_ready >= row.outcome.gpu_hours_busy > 0
        assert row.outcome.hours.peak_replicas >= row.outcome.hours.mean_replicas


def test_no_fleet_that_attains_the_target_is_paid_for_less_than_the_bound(found):
    able = [row for row in (found.fixed, *found.policies) if row.meets]

    assert len(able) >= 3
    for row in able:
        assert row.outcome.gpu_hours_paid >= found.lower_bound_gpu_hours > 0


def test_the_fixed_fleet_is_the_smallest_that_attains_as_much(found):
    for row in found.policies:
        assert row.fixed.attains(row.outcome)
        if row.fixed.replica_count > 1:
            fewer = fixed_fleet(found, row.fixed.replica_count - 1)
            assert not fewer.attains(row.outcome)


def test_a_fleet_with_drafts_is_autoscaled_and_loses_replicas(trace):
    drafts = {
        "speculative_config": '{"method": "eagle3", "num_speculative_tokens": 1}',
        "acceptance_rates": "0.8",
        "draft_ms": 1.0,
    }
    asked = {"policies": "hpa", "outage": "1@peak:10m", "break_even": False}

    found, plain = (
        autoscale(AutoscaleSettings(trace=trace, **FLEET, **asked, **more))
        for more in (drafts, {})
    )

    speculation = found.deployment.pool.configuration.engine.speculation
    assert speculation is not None
    assert found.fixed.fixed.replica_count <= plain.fixed.fixed.replica_count
    (row, *_) = found.policies
    assert row.outcome.gpu_hours_paid >= found.lower_bound_gpu_hours > 0
    assert found.losses


def cases_of(found):
    load = Load(read_requests(found.settings), None)
    return Cases(found.settings, load, found.slo, found.deployment)


def pays_at(found, policy, cold_start_s):
    cases = cases_of(found)
    scaled = cases.scaled(policy, cold_start_s)
    fixed = cases.as_good_as(scaled)
    cheaper = fixed is not None and scaled.hours.paid_h < fixed.hours.paid_h
    return scaled.meets and cheaper


def fixed_fleet(found, count):
    """Return what a fixed fleet attains on the same requests."""
    return cases_of(found).fixed(count)


def test_who_knows_the_arrivals_pays_less_than_the_fixed_fleet(found):
    perfect = found.policies[-1]

    assert perfect.name == "perfect"
    assert perfect.meets
    assert perfect.outcome.gpu_hours_paid < found.fixed.outcome.gpu_hours_paid


def test_a_policy_is_given_what_a_replica_sustains(found):
    by_name = {row.name: row.policy for row in found.policies}

    sustained = found.sustained
    assert by_name["hpa"] == f"hpa:target={0.8 * sustained.in_flight:.6g}"
    assert by_name["schedule"] == f"schedule:rate={sustained.rate_per_s:.6g}"
    assert by_name["keda"] == "keda"


def test_a_constant_schedule_is_the_fixed_fleet(trace):
    count = 3
    asked = {"policies": f"schedule:0={count}", "replicas": count, "break_even": False}

    found = autoscale(AutoscaleSettings(trace=trace, **FLEET, **asked))

    row = found.policies[0]
    cases, fixed = cases_of(found), fixed_fleet(found, count)
    hours = asdict(row.outcome.hours)
    for name, of_fixed in asdict(fixed.hours).items():
        assert hours[name] == pytest.approx(of_fixed, rel=1e-12)
    scaled = cases.scaled_by(row.policy, found.cold_start_s)
    ours, theirs = (
        cases.run(deployment).simulation.times
        for deployment in (scaled, fixed.deployment)
    )
    assert (ours.replica == theirs.replica).all()
    # Ticks cut the jumps of a replica, whose sums are rounded otherwise.
    np.testing.assert_allclose(ours.finish_s, theirs.finish_s, rtol=0, atol=1e-9)
    assert row.outcome.slo_attainment == fixed.slo_attainment
    assert row.fixed.replica_count == count
    assert row.of_static == 1.0
    assert not row.pays


def test_a_row_is_what_simulate_reports_of_its_policy(found):
    row = found.policies[0]
    shared = found.settings.without_losses().shared_with(SimulateSettings)
    asked = {
        **shared,
        "replicas": found.deployment.replica_count,
        "autoscaler": row.policy,
    }

    run = simulate_deployment(SimulateSettings(**asked))

    assert run.judgement.attainment.share == row.outcome.slo_attainment
    assert run.hours.paid_h == row.outcome.hours.paid_h
    assert run.hours.peak_replicas == row.outcome.hours.peak_replicas
    assert run.judgement.meets == row.meets


def test_the_best_rate_and_period_of_who_knows_the_arrivals_are_found():
    # Meets up to 2.5 requests/s a replica at 300 s, up to 2 at the other periods; paid
    # for as the rate says.
    tried = []

    def run_with(policy):
        settings = parse_autoscaler(policy).settings
        tried.append(policy)
        most = 2.5 if settings["period"] == 300 else 2.0
        hours = SimpleNamespace(paid_h=100 / settings["rate"])
        return SimpleNamespace(meets=settings["rate"] <= most, hours=hours)

    policy, outcome = cheapest(run_with, "perfect:max=9", 1.0, 4000.0)

    assert policy.startswith("perfect:max=9,period=300s,rate=2.3")
    assert 2.5 / 1.06 < 100 / outcome.hours.paid_h <= 2.5
    assert len(tried) <= 24


def test_who_knows_the_arrivals_is_as_measured_where_that_attains_nothing():
    def run_with(policy):
        return SimpleNamespace(meets=False, hours=SimpleNamespace(paid_h=1.0))

    policy, outcome = cheapest(run_with, "perfect", 1.5, 4000.0)

    assert policy == "perfect:rate=1.5"
    assert not outcome.meets


def test_an_outage_takes_spares_to_keep_the_slo(found):
    by_fleet = {loss.fleet: loss for loss in found.losses if "outage" in loss.what}

    fixed = by_fleet["fixed"]
    assert set(by_fleet) == {"fixed", "hpa", "schedule", "keda", "perfect"}
    assert not fixed.meets
    assert (
        fixed.gone_attainment
        < fixed.slo_attainment
        < found.fixed.outcome.slo_attainment
    )
    # Of its spares none is left over, and with them it needs none.
    cases, losing = cases_of(found), losses_of(found.settings)[0]
    enough = fixed.replica_count + fixed.spares
    assert fixed.spares > 0
    assert fixed_loss(cases, *losing, enough).spares == 0
    assert fixed_loss(cases, *losing, enough - 1).spares == 1
    assert by_fleet["hpa"].spares is None
    update = [loss for loss in found.losses if "rolling" in loss.what]
    assert [loss.fleet for loss in update] == ["fixed"]


def test_an_outage_of_a_node_takes_all_replicas_of_it(trace):
    asked = {**FLEET, **ON_NODES, "outage": ("1node@peak:10m", "1@peak:10m")}

    found = autoscale(AutoscaleSettings(trace=trace, **asked))

    node, one = (loss for loss in found.losses if loss.fleet == "fixed")
    assert (node.replicas_gone, node.nodes_gone) == (2, 1.0)  # of 4 GPUs on 8
    assert (one.replicas_gone, one.nodes_gone) == (1, 0.5)
    assert node.gone_attainment <= one.gone_attainment


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({**FLEET, **ON_NODES, "outage": "99nodes@peak:10m"}, "replicas are on"),
        ({**FLEET, "outage": "1node@peak:10m"}, "size of a node is not known"),
    ],
)
def test_more_nodes_than_there_are_are_refused_and_so_are_unknown_ones(
    trace, given, why
):
    with pytest.raises(InputError, match=why):
        autoscale(AutoscaleSettings(trace=trace, **{"policies": "hpa", **given}))


@pytest.mark.thorough
def test_a_policy_pays_up_to_a_cold_start_and_not_at_a_longer_one(trace):
    settings = AutoscaleSettings(trace=trace, **FLEET, policies="hpa,ray,keda")

    found = autoscale(settings)

    assert any(row.pays for row in found.policies)
    for row in found.policies:
        low, high = row.break_even_s
        if row.pays:
            assert low >= found.cold_start_s
        if low is None or high is None:
            continue
        assert 0 < high - low <= max(15.0, 0.1 * high)
        pays = [
            pays_at(found, row.policy, cold_start_s) for cold_start_s in (low, high)
        ]
        assert pays == [True, False]


@pytest.mark.parametrize(
    ("limit_s", "first_s", "expected"),
    [
        (500, 240, (480, 510)),
        (100, 240, (90, 105)),
        (0, 240, (None, 0)),
        (1e9, 240, (3600, None)),
        (1e9, 0, (3600, None)),
    ],
)
def test_the_break_even_is_between_two_cold_starts(limit_s, first_s, expected):
    def pays(cold_start_s):
        return cold_start_s < limit_s

    assert break_even(pays, pays(first_s), first_s) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("policy", "fixed", "expected"),
    [
        ("hpa", 4, "hpa:target=16"),
        ("hpa:target=3", 4, "hpa:target=3"),
        ("hpa:metric=rate", 4, "hpa:metric=rate,target=2"),
        ("hpa:metric=waiting", 4, "hpa:metric=waiting"),
        ("keda", 4, "keda"),
        ("keda", 70, "keda:max=140"),
        ("keda:max=9", 70, "keda:max=9"),
        ("schedule:0=3,8=4", 4, "schedule:0=3,8=4"),
        ("schedule", 4, "schedule:rate=2.5"),
        ("aladdin:k5=0.4", 4, "aladdin:k5=0.4"),
        ("llumnix", 9, "llumnix:max=18"),
    ],
)
def test_what_the_user_gave_stays(policy, fixed, expected):
    assert informed(policy, ReplicaLoad(2.5, 20.0), fixed) == expected


def test_absences_last_until_all_are_back():
    changes = [
        Change(20.0, "fail"),
        Change(5.0, "renew", 2),
        Change(9.0, "up"),
        Change(12.0, "up"),
    ]

    assert absences(changes) == [(5.0, 12.0), (20.0, np.inf)]
    assert absences([Change(5.0, "fail"), Change(50.0, "fail")], 30.0) == [
        (5.0, 35.0),
        (50.0, 80.0),
    ]


def test_policies_are_a_list_of_which_each_may_have_settings():
    settings = AutoscaleSettings(policies="hpa:target=9,max=5,keda,hpa:target=9,max=5")

    assert settings.policies == ("hpa:target=9,max=5", "keda")
    assert AutoscaleSettings().compared == DEFAULT_POLICIES


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"policies": "hpo"}, "'hpo' is not known; did you mean hpa"),
        ({"policies": "hpa:min=5,max=2"}, "min is 5 and max 2; expected min <= max"),
        ({"policies": "hpa:targ=5"}, "'targ' is not a setting of hpa"),
        ({"cold_start": "-3s"}, "cold_start"),
        ({"spot": "15"}, "expected a share a month"),
        ({"rolling_update": "soon"}, "expected"),
    ],
)
def test_what_cannot_be_is_refused_with_the_settings(asked, why):
    with pytest.raises((SettingError, InputError), match=why):
        AutoscaleSettings(**asked)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"cold_start": "3h"}, "a cold start takes 3 h, and the requests arrive"),
        ({"outage": "99@peak:4m"}, "99 replicas die of"),
        ({"outage": "1@5h:4m"}, "begins after the requests"),
        ({"attain_in": "100ms"}, "that a request takes alone"),
        ({"slo": ()}, "no SLO"),
        ({"cold_start": None}, "the weights of a replica are not known"),
    ],
)
def test_what_the_requests_do_not_allow_is_refused(asked, why, trace):
    with pytest.raises(InputError, match=why):
        autoscale(AutoscaleSettings(trace=trace, **{**FLEET, **asked}))


def test_a_target_that_no_fleet_attains_has_a_reason(trace):
    fleet = {**FLEET, "slo": "ttft=1s,tpot=5ms"}

    found = autoscale(AutoscaleSettings(trace=trace, **fleet))

    assert found.fixed is None
    assert found.policies == ()
    assert "tpot" in found.reason.lower()


def test_ctrl_c_leaves_what_was_simulated_by_then(trace):
    steps = []

    def stopped():
        return any("schedule stops" in step or "keda" in step for step in steps)

    settings = AutoscaleSettings(trace=trace, **FLEET, policies="schedule,keda,hpa")
    found = autoscale(settings, lambda step, share=None: steps.append(step), stopped)

    assert found.interrupted
    assert [row.name for row in found.policies] == ["schedule"]
    assert found.fixed is not None
    assert any("interrupted" in text for text in found.warnings)


def test_ctrl_c_before_there_is_an_answer_leaves_none(trace):
    with pytest.raises(KeyboardInterrupt):
        autoscale(
            AutoscaleSettings(trace=trace, **FLEET),
            lambda step, share=None: None,
            lambda: True,
        )


def test_without_a_measured_rate_policies_that_need_none_are_compared(
    trace, monkeypatch
):
    monkeypatch.setattr(module, "replica_load", lambda *given, **of: None)
    asked = {"policies": "ray:target=9", "break_even": False}

    found = autoscale(AutoscaleSettings(trace=trace, **FLEET, **asked))

    assert [row.policy for row in found.policies] == ["ray:target=9"]
    assert any("perfect is left out" in text for text in found.warnings)
    assert len(figures(found)) == 1
    assert finding(found) is not None
    with pytest.raises(InputError, match="the rate that a replica serves"):
        autoscale(AutoscaleSettings(trace=trace, **FLEET, policies="schedule"))


def test_drawn_arrivals_are_one_sample_that_all_fleets_serve():
    asked = {
        "workload": "synthetic:prompt=300,output=60,n=3000",
        "rate": 60,
        **FLEET,
        "cold_start": "2s",
        "policies": "hpa:period=1s",
        "break_even": False,
    }

    found = autoscale(AutoscaleSettings(**asked))

    assert len(found.arrivals_since_s) == 3000
    lasts_s = found.arrivals_since_s[-1]
    for row in (found.fixed, *found.policies):
        assert lasts_s < row.outcome.makespan_s < lasts_s + 60
