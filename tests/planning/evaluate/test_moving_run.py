"""Runs of fleets in motion, as ``capplan simulate`` makes them."""

import numpy as np
import pytest

from capplan.deployment.pools import DECODE, PREFILL
from capplan.errors import InputError
from capplan.planning.configure.deployments import link_gb_per_s
from capplan.planning.evaluate.run import simulate_deployment
from capplan.planning.money.cost import usd_per_h
from capplan.planning.settings.plan import SimulateSettings
from capplan.settings import SettingError

ASKED = {
    "workload": "synthetic:prompt=300,output=60,n=1500",
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM",
    "tp": 1,
    "rate": 30,
    "slo": "ttft=1s,tpot=30ms",
}


def run_of(**more):
    return simulate_deployment(SimulateSettings(**{**ASKED, **more}))


def test_prompts_and_decoding_apart_take_two_pools():
    run = run_of(prefill_replicas=1, decode_replicas=2, prefill_tp=2)

    first, second = run.deployment.pools
    assert run.deployment.roles == (PREFILL, DECODE)
    assert (first.configuration.tp, first.replica_count) == (2, 1)
    assert (second.configuration.tp, second.replica_count) == (1, 2)
    assert run.deployment.link_gb_per_s == 50.0  # the H100's network
    assert run.replica_count == 3
    # Four GPUs share a node of eight.
    price = first.configuration.price
    assert (price.gpus_per_node, run.cost.nodes[0].stranded_gpus) == (8, 4)
    assert run.cost.usd_per_h == pytest.approx(8 * price.usd_per_gpu_h)
    assert run.judgement.meets
    assert (run.simulation.table.handed_s > 0).all()
    assert "NixlConnector" in run.launch.line
    assert "--tensor-parallel-size 2" in run.prefill_launch.line


@pytest.mark.thorough
def test_the_slower_pool_says_what_two_pools_complete():
    # An answer of 600 tokens takes its seat long; a prompt of 300 takes 7 ms.
    asked = {"workload": "synthetic:prompt=300,output=600,n=300", "rate": 10}
    loads = [
        run_of(
            **asked, prefill_replicas=p, decode_replicas=d
        ).judgement.steadiness.utilisation
        for p, d in ((1, 1), (1, 2), (1, 64), (2, 64))
    ]

    assert loads[1] == pytest.approx(loads[0] / 2, rel=0.05)
    assert loads[2] == pytest.approx(2 * loads[3])
    assert loads[2] > 2 * loads[0] / 64


@pytest.mark.parametrize(
    ("given", "gpus", "expected"),
    [
        (None, ["H100-SXM"], 50.0),
        (None, ["H100-SXM", "L40S"], 6.25),
        (None, ["H100-SXM", "RTX4090"], None),
        (None, ["a chip of mine"], None),
        (12.0, ["a chip of mine"], 12.0),
    ],
)
def test_a_link_is_the_slowest_of_the_gpus_networks(given, gpus, expected):
    settings = SimulateSettings(link_gb_per_s=given)
    of = [type("Configuration", (), {"gpu": gpu}) for gpu in gpus]

    assert link_gb_per_s(settings, of) == expected


def test_an_outage_costs_attainment_and_running_requests_are_computed_again():
    asked = {"rate": 100, "replicas": 2}
    without, losing = run_of(**asked), run_of(**asked, outage="1@3s:10s")

    assert losing.hours.ready.min() == 1
    assert losing.simulation.totals.preemptions > without.simulation.totals.preemptions
    assert losing.judgement.attainment.share < without.judgement.attainment.share
    assert losing.simulation.completed == 1500
    # Both are paid, there or not.
    assert losing.hours.mean_replicas == 2
    assert losing.cost.usd_per_h == without.cost.usd_per_h


def test_a_rolling_update_renews_every_replica():
    run = run_of(rate=50, replicas=3, rolling_update="1@5s:4s")

    begins_s = np.unique(run.simulation.lives["ready_s"])
    begins_s -= run.simulation.table.arrival_s[0]
    assert begins_s[np.isfinite(begins_s)].tolist() == pytest.approx([9.0, 13.0, 17.0])
    assert np.isfinite(run.simulation.lives["closed_s"]).sum() == 3


def test_an_autoscaler_is_paid_by_the_hour():
    scaled = run_of(
        replicas=1,
        rate=60,
        autoscaler="hpa:target=20,max=8",
        cold_start="2s",
    )

    hours = scaled.hours
    assert hours.paid_h >= hours.ready_h >= hours.busy_h > 0
    assert 1 < hours.mean_replicas < hours.peak_replicas <= 8
    rows = scaled.cost.nodes
    # By whole nodes of one provider, the fewest dollars for the replicas of a moment.
    assert len({row.provider for row in rows}) == 1
    paid = sum(row.gpus_paid for row in rows)
    assert paid - sum(row.stranded_gpus for row in rows) == pytest.approx(
        hours.mean_replicas
    )
    fixed = usd_per_h(scaled.deployment.with_replicas(8).pools)
    paid = sum(row.usd_per_h for row in rows)
    assert scaled.cost.usd_per_h == pytest.approx(paid, rel=1e-12)
    assert 0 < paid < fixed


def test_few_interruptions_are_said_to_be_too_few():
    run = run_of(replicas=2, spot="15%/month", cold_start="1s")

    assert any("interruptions to judge by (0 drawn" in text for text in run.warnings)


def test_a_rebalancer_on_one_replica_has_nothing_to_do_and_this_is_said():
    run = run_of(replicas=1, rebalancer="llumnix")

    assert any("nothing to do on one replica" in text for text in run.warnings)
    assert len(run.simulation.moved) == 0


APART = {"prefill_replicas": 1, "decode_replicas": 1}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"prefill_replicas": 1}, "expected --decode-replicas with it"),
        ({"decode_replicas": 1}, "expected --prefill-replicas with it"),
        ({"prefill_replicas": 0, "decode_replicas": 1}, "prefill_replicas is 0"),
        ({"prefill_tp": 2}, "expected --prefill-replicas and --decode-repl"),
        ({"hand_off": "nixl"}, "expected --prefill-replicas and --decode-repl"),
        ({**APART, "replicas": 2}, "replicas work for one pool only"),
        ({**APART, "rebalancer": "llumnix"}, "a rebalancer works within one pool"),
        ({**APART, "outage": "1@peak:1s"}, "an outage works for one pool only"),
        ({**APART, "prefill_tp": 3}, "TP 3 does not divide"),
        ({**APART, "link_gb_per_s": 0}, "link_gb_per_s is 0"),
        ({**APART, "hand_off": "nixle"}, "did you mean nixl"),
        ({**APART, "hand_off": "nixl:threshold=-1"}, "threshold is '-1'"),
        ({**APART, "scheduler": "orca:max_len=4096"}, "scheduler orca is not modelled"),
        ({"link_gb_per_s": 3.0}, "no KV goes to other replicas"),
        ({"rebalancer": "llumnix:period=0s"}, "period is '0s'"),
        ({"rebalancer": "lumnix", "replicas": 2}, "did you mean llumnix"),
        ({"cold_start": "1s"}, "expected --autoscaler or --spot with it"),
        ({"autoscaler": "hpa:target=9", "cold_start": "2h"}, "a cold start takes 2 h"),
        ({"autoscaler": "hpa:min=5,max=3", "cold_start": "1s"}, "min"),
        ({"autoscaler": "hpaa", "cold_start": "1s"}, "did you mean hpa"),
        (
            {"autoscaler": "hpa:target=9", "rolling_update": "1m"},
            "an autoscaler replaces replicas itself",
        ),
        ({"replicas": 2, "outage": "3@peak:1s"}, "3 replicas die of 2"),
        ({"replicas": 2, "outage": "1@9h:1s"}, "begins after the requests"),
        ({"replicas": 2, "outage": "noon"}, "expected N@peak:TIME"),
        ({"spot": "15"}, "15%/month"),
        ({"rate": None, "users": 4, "outage": "1@peak:1s"}, "in place of users"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(more, why):
    with pytest.raises((InputError, SettingError), match=why) as found:
        run_of(**more)

    assert "\n" not in str(found.value)


def test_a_pool_of_no_known_weights_needs_a_given_cold_start():
    asked = {**ASKED, "llm": None, "gpu": (), "tp": ()}
    asked |= {"latency_ms": (5, 0.01, 0, 0.1, 0.0001), "kv_blocks": 5000}

    with pytest.raises(InputError, match="give --cold-start"):
        simulate_deployment(
            SimulateSettings(**asked, replicas=1, autoscaler="hpa:target=9")
        )
