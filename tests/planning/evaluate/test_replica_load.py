"""What a replica sustains is what ``capplan capacity`` finds of its fleet."""

from dataclasses import replace

import numpy as np
import pytest

from capplan.planning.configure.configuration import only_configuration
from capplan.planning.configure.deployments import one_pool
from capplan.planning.evaluate import saturation
from capplan.planning.evaluate.highest_rate import highest_rate
from capplan.planning.evaluate.inputs import plan_inputs, unseen
from capplan.planning.evaluate.judging import Judging
from capplan.planning.evaluate.replica_load import (
    _LEAST_REQUESTS,
    ReplicaLoad,
    at_rate,
    drawn_from,
    replica_load,
    sustained_load,
)
from capplan.planning.evaluate.run import judged_run
from capplan.planning.load.traffic import arriving, read_requests
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import CapacitySettings, PlanSettings
from capplan.planning.size.capacity import capacity

ASKED = {
    "workload": "synthetic:prompt=300,output=60,n=4000",
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM",
    "tp": 1,
    "slo": "ttft=500ms,tpot=12ms",
}


@pytest.mark.thorough
@pytest.mark.parametrize("replicas", [1, 3])
def test_a_replica_sustains_its_part_of_what_the_fleet_serves(replicas):
    settings = PlanSettings(**ASKED)
    fleet = one_pool(settings, only_configuration(settings), replicas)

    sustained = replica_load(
        settings, read_requests(settings), settings.objective(), fleet
    )

    asked = {**ASKED, "replicas": replicas, "arrivals": "poisson"}
    served = capacity(CapacitySettings(**asked)).best
    assert sustained.replica_count == replicas
    # Both look at rates 3 % apart; one is decided by many samples, one by one.
    assert sustained.rate_per_s * replicas == pytest.approx(
        served.max_rate_per_s, rel=0.07
    )
    # Little's law: a request of 60 tokens at 12 ms and less stays 0.72 s at most.
    assert 0 < sustained.in_flight / sustained.rate_per_s < 0.8


def test_what_replicas_complete_of_these_requests_is_measured_once(monkeypatch):
    inputs, (configuration,) = plan_inputs(PlanSettings(**ASKED, rate=3.0))
    known, measured = inputs.load.saturations, saturation._measured
    fleet = one_pool(inputs.settings, configuration, 1)
    given = inputs.settings, inputs.load.base, inputs.slo, fleet
    alone = replica_load(*given)
    calls = []
    monkeypatch.setattr(
        saturation, "_measured", lambda *of: calls.append(of) or measured(*of)
    )
    saturation.saturation(inputs.load, configuration, inputs.slo)
    before = len(calls)

    found = replica_load(*given, known=known)

    assert found == alone
    assert len(calls) == before > 0


def test_rates_that_replicas_cannot_complete_are_not_simulated(monkeypatch):
    settings = PlanSettings(**{**ASKED, "slo": "ttft=5s,tpot=200ms"})
    slo, configuration = settings.objective(), only_configuration(settings)
    fleet, trace = one_pool(settings, configuration, 2), read_requests(settings)
    drawn, read = drawn_from(settings, trace)
    runs = {}

    def judged(load, *given, **also):
        runs[load.rate_per_s] = judged_run(load, *given, **also)
        return runs[load.rate_per_s]

    monkeypatch.setattr(f"{replica_load.__module__}.judged_run", judged)

    found = replica_load(settings, trace, slo, fleet)

    simulated, first_per_s = len(runs), next(iter(runs))
    assert all(run.judgement.steadiness.utilisation < 1 for run in runs.values())

    def held(rate_per_s):
        load = at_rate(read, drawn, slo, configuration, rate_per_s)
        how = Judging(settings.seed, metrics=(), first_only=True)
        return judged(load, slo, fleet, how).judgement.seems_held

    assert found.rate_per_s == highest_rate(held, first_per_s) / 2
    assert len(runs) > simulated


def test_requests_too_slow_alone_carry_nothing():
    settings = PlanSettings(**{**ASKED, "slo": "tpot=1ms"})
    fleet = one_pool(settings, only_configuration(settings), 1)

    assert (
        replica_load(settings, read_requests(settings), settings.objective(), fleet)
        is None
    )


@pytest.mark.thorough
def test_windows_and_warm_up_of_the_trace_are_not_those_of_drawn_arrivals():
    settings = PlanSettings(**ASKED, warm_up="5s", attain_in="10s")
    trace = read_requests(settings)
    slo = settings.objective()
    fleet = one_pool(settings, only_configuration(settings), 1)
    plain = PlanSettings(**ASKED)

    found = replica_load(settings, trace, slo, fleet)

    assert slo.attain_in_s == 10
    assert found == replica_load(plain, trace, replace(slo, attain_in_s=None), fleet)


def test_a_rate_is_judged_by_many_requests():
    settings = PlanSettings(**ASKED, arrivals="poisson", rate=5.0)
    asked = read_requests(settings)
    slo, configuration = settings.objective(), only_configuration(settings)
    read = arriving(replace(asked, arrival_s=None), settings, np.random.default_rng(0))

    load = at_rate(read, settings, slo, configuration, 5.0)

    assert len(load.sample(0)) >= _LEAST_REQUESTS > len(asked)


def test_a_scaled_trace_is_not_scaled_again(tmp_path):
    path = tmp_path / "own.csv"
    rows = "".join(f"{k / 20},300,60\n" for k in range(400))
    path.write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")
    given = {k: v for k, v in ASKED.items() if k != "workload"} | {"trace": str(path)}
    plain, scaled = (PlanSettings(**given, scale=scale) for scale in (None, 2.0))
    fleet = one_pool(plain, only_configuration(plain), 1)

    loads = [
        replica_load(each, read_requests(plain), each.objective(), fleet)
        for each in (plain, scaled)
    ]

    assert loads[0] is not None
    assert loads[0] == loads[1]


def test_a_replica_sustains_no_less_than_a_plan_shows_that_it_does(monkeypatch):
    settings = PlanSettings(**ASKED, rate=40)
    run = plan(settings).best.run
    inputs, _ = plan_inputs(settings)
    monkeypatch.setattr(
        "capplan.planning.evaluate.replica_load.replica_load",
        lambda *_, **given: ReplicaLoad(
            0.97 * 40 / run.replica_count, 10.0, run.replica_count
        ),
    )

    load = sustained_load(inputs, run, unseen)

    assert load.rate_per_s == pytest.approx(40 / run.replica_count)
    assert load.in_flight == pytest.approx(10 / 0.97)
