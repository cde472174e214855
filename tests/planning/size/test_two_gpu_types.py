"""Prompts on one GPU type and decoding on another."""

import json
from dataclasses import replace
from itertools import product

import pytest

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.errors import InputError
from capplan.fleet.price import Price
from capplan.planning.evaluate.inputs import plan_inputs
from capplan.planning.evaluate.run import run_of, simulate_deployment
from capplan.planning.money.cost import at_one_provider, usd_per_h
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import PlanSettings, SimulateSettings
from capplan.report.pages.plan import plan_values
from capplan.report.received.verify import verify
from capplan.report.render.json_text import json_text

ASKED = {
    "workload": "synthetic:prompt=900,output=120,n=1500",
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM,H200-SXM",
    "tp": 1,
    "rate": 120,
    "slo": "ttft=1s,tpot=9ms",
    "disaggregated": True,
    "tune": False,
    "as_of": "2026-11-20",
}
EACH = {"prefill_gpu": "H100,H200", "decode_gpu": "H100,H200"}
CHEAP = {"price": {"H100-SXM": 2.0, "H200-SXM": 3.0}}
"""An H100 computes as fast as an H200, whose memory is faster."""


def settings_of(**more):
    return PlanSettings(**{**ASKED, **more})


@pytest.fixture(scope="module")
def crossed():
    return plan(settings_of(**EACH, **CHEAP))


def types_of(row):
    return tuple(pool.gpu for pool in row.pools)


@pytest.mark.thorough
def test_the_cheapest_counts_of_two_types_are_those_of_all_counts(crossed):
    best = crossed.best_disaggregated
    inputs, _ = plan_inputs(settings_of(**EACH, **CHEAP))
    deployment = best.run.deployment
    held = {}

    for counts in product(range(1, 5), range(1, 5)):
        run = run_of(inputs, deployment.with_replicas(*counts), thorough=True)
        if run.judgement.holds:
            held[counts] = usd_per_h(run.deployment.pools)

    assert types_of(best) == ("H100-SXM", "H200-SXM")
    assert deployment.counts in held
    assert best.cost.usd_per_h == min(held.values())


@pytest.mark.thorough
def test_both_types_are_counted_and_billed(crossed):
    best = crossed.best_disaggregated

    prompts, decoding = best.run.deployment.counts
    assert best.cost.usd_per_h == pytest.approx(2.0 * prompts + 3.0 * decoding)
    assert best.gpu_count == prompts + decoding
    paid = [(row.gpu, row.gpus_paid) for row in best.cost.nodes]
    assert sum(gpus for gpu, gpus in paid if gpu == "H100-SXM") == prompts
    assert sum(gpus for gpu, gpus in paid if gpu == "H200-SXM") == decoding
    pairs = {types_of(row) for row in crossed.candidates if row.pools}
    assert pairs == set(product(("H100-SXM", "H200-SXM"), repeat=2))
    for pool in best.pools:
        assert any("--attention-backend" in note for note in pool.launch.notes)


@pytest.mark.thorough
def test_a_plan_of_two_types_is_planned_again(crossed, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(json_text(plan_values(crossed)))

    assert json.loads(path.read_text())["best"]["gpu_count"] > 0
    assert verify(path, simulate=True) == []


@pytest.mark.thorough
def test_types_named_for_one_role_alone_leave_the_other_as_planned():
    found = plan(settings_of(decode_gpu="H200", rate=20, **CHEAP))

    pairs = {types_of(row) for row in found.candidates if row.pools}
    assert pairs == {("H100-SXM", "H200-SXM"), ("H200-SXM", "H200-SXM")}


@pytest.mark.thorough
def test_the_same_type_for_both_is_a_plan_of_that_type():
    alone = plan(settings_of(gpu="H200-SXM", rate=60))
    named = plan(
        settings_of(gpu="H200-SXM", rate=60, prefill_gpu="H200", decode_gpu="H200")
    )

    assert named.best_disaggregated.probes == alone.best_disaggregated.probes
    assert named.best_disaggregated.cost == alone.best_disaggregated.cost


def sold(gpu, **usd):
    """Return a configuration that providers sell for so much an hour."""
    asked = [
        Price(x, "list", provider=name, gpus_per_node=1) for name, x in usd.items()
    ]
    price = replace(asked[0], asked=tuple(asked))
    return Configuration(EngineSettings(), None, gpu, price=price)


def test_both_types_are_bought_of_one_provider_that_has_both():
    first = sold("H100-SXM", P=1.0, Q=2.0, R=4.0)
    second = sold("H200-SXM", Q=3.0, R=2.0)

    # Q asks $5 for one of each, R $6: of two bills the first is signed.
    bought = at_one_provider([first, second])

    assert [row.price.providers for row in bought] == [("Q",), ("Q",)]
    assert at_one_provider([first, sold("H200-SXM", S=1.0)]) == []
    given = replace(first, price=Price(2.0, "given by the user"))
    assert at_one_provider([given, second]) == [given, sold("H200-SXM", R=2.0)]


def test_types_of_other_makers_are_no_pair():
    found = plan(settings_of(rate=5, gpu="H200-SXM,MI300X", prefill_gpu="MI300X"))

    reasons = {
        types_of(row): row.infeasible_reason for row in found.candidates if row.pools
    }
    assert "no attention backend" in reasons["MI300X", "H200-SXM"]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"prefill_gpu": "L4"}, "--prefill-gpu L4 is not among"),
        ({"decode_gpu": "L4"}, "--decode-gpu L4 is not among"),
        ({"decode_gpu": "L5"}, "unknown GPU 'L5'"),
        ({"gpu": "RTX-4090,H100-SXM", "prefill_gpu": "RTX-4090"}, "--link-gb-per-s"),
    ],
)
def test_types_that_cannot_be_are_refused_in_one_line(more, why):
    with pytest.raises(InputError, match=why):
        plan(settings_of(**more))


def test_a_simulation_has_one_type_for_prompts():
    asked = {key: ASKED[key] for key in ("workload", "llm", "tp", "slo", "as_of")}
    asked |= {"gpu": "H200-SXM", "prefill_replicas": 2, "decode_replicas": 1, "rate": 9}

    run = simulate_deployment(SimulateSettings(**asked, prefill_gpu="H100"))

    pools = run.deployment.pools
    assert [pool.configuration.gpu for pool in pools] == ["H100-SXM", "H200-SXM"]
    assert run.deployment.link_gb_per_s == 50.0  # of the slower network
    with pytest.raises(InputError, match="one GPU type to simulate"):
        simulate_deployment(SimulateSettings(**asked, prefill_gpu="H100,A100"))
