"""Plan and simulate report the same of the same fleet, streamed and not."""

import json

import numpy as np
import pytest

from capplan.planning.evaluate.run import simulate_deployment
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import PlanSettings, SimulateSettings
from capplan.simulator.results.histogram import RELATIVE_ERROR
from capplan.simulator.results.request_times import METRICS
from tests.documents import plan_json, run_json

H100 = {"llm": "Llama-3.1-8B", "gpu": "H100-SXM", "tp": 1}
COST = {"latency_ms": "9,0.04,0,0.08,0.00005", "kv_blocks": 3000}
SHORT = "synthetic:prompt=300,output=lognormal(median=80,sigma=0.6),n=3000"


def drawn(workload=SHORT, rate=60.0, slo="ttft=500ms,tpot=12ms", **more):
    return {"workload": workload, "rate": rate, "slo": slo, **H100, **more}


DRAWN = {
    "plain": drawn(),
    "few requests, extended": drawn("synthetic:prompt=300,output=80,n=50"),
    "few requests, as they are": drawn(
        "synthetic:prompt=300,output=80,n=50", extend=False
    ),
    "tight TPOT": drawn("sharegpt", slo="ttft=300ms,tpot=12ms"),
    "another seed": drawn(seed=7),
    "bursty": drawn(arrivals="gamma:cv=3"),
    "constant": drawn(arrivals="constant"),
    "round robin": drawn(router="round-robin"),
    "power of two": drawn(router="power-of-two", seed=3),
    "best fit": drawn(router="best-fit:theta=0.3"),
    "end-to-end limit": drawn(slo="e2e=3s"),
    "TTFT alone": drawn(slo="ttft=200ms"),
    "prefix caching": drawn(shared_prefix=100, prefix_caching=True),
    "small engine": drawn(max_num_seqs=64, max_num_batched_tokens=512),
    "low target": drawn(attainment=0.9),
    "front end": drawn(api_overhead_ms=40.0),
}


def replayed(classes=False, rising=False, burst=False):
    """Rows of a CSV trace with times of its own."""
    rng = np.random.default_rng(5)
    gaps = rng.exponential(0.05, 2000)
    if rising:
        gaps *= np.linspace(3, 0.5, 2000)
    if burst:
        gaps[:500] /= 20
    arrival_s = np.cumsum(gaps).round(6)
    prompts, outputs = rng.integers(50, 400, 2000), rng.integers(1, 120, 2000)
    kinds = rng.choice(["chat", "batch"], 2000) if classes else ["all"] * 2000
    lines = zip(arrival_s, prompts, outputs, kinds, strict=True)
    rows = [",".join(map(str, line)) for line in lines]
    return "\n".join(["arrival_s,prompt_tokens,output_tokens,class", *rows])


REPLAYED = {
    "replayed": (replayed(), "ttft=400ms,tpot=20ms"),
    "two classes": (replayed(classes=True), ("ttft=400ms", "chat:tpot=15ms")),
    "rising": (replayed(rising=True), "ttft=400ms,tpot=20ms"),
    "early burst": (replayed(burst=True), "ttft=400ms,tpot=20ms"),
}


def reported(settings):
    """Return what plan and simulate find of the best candidate's fleet."""
    best = plan(PlanSettings(**settings)).best
    return best, run_of(best, settings)


def run_of(best, settings, **more):
    """Return the run of a candidate's fleet."""
    same = {name: x for name, x in settings.items() if not name.startswith("max_num")}
    return simulate_deployment(
        SimulateSettings(
            **same,
            replicas=best.replica_count,
            max_num_batched_tokens=best.configuration.engine.max_num_batched_tokens,
            max_num_seqs=best.configuration.engine.max_num_seqs,
            **more,
        )
    )


@pytest.mark.thorough
@pytest.mark.parametrize("scenario", DRAWN, ids=lambda name: name.replace(" ", "-"))
def test_drawn_requests_are_judged_alike(scenario):
    best, run = reported(DRAWN[scenario])

    planned, simulated = best.run.judgement, run.judgement
    assert simulated.attainment == planned.attainment
    assert simulated.counted_request_count == planned.counted_request_count
    assert simulated.warmup_s == planned.warmup_s > 0
    for metric in ("ttft_s", "tpot_s", "e2e_s"):
        assert simulated.percentiles[metric] == pytest.approx(
            planned.percentiles[metric], nan_ok=True, rel=0
        )


@pytest.mark.parametrize("scenario", REPLAYED, ids=lambda name: name.replace(" ", "-"))
def test_replayed_requests_are_judged_alike_streamed_and_not(scenario, tmp_path):
    rows, slo = REPLAYED[scenario]
    path = tmp_path / "own.csv"
    path.write_text(rows)
    settings = {"trace": path, "slo": slo, "attainment": 0.9, **H100, **COST}

    best, run = reported(settings)
    streamed = run_of(best, settings, stream=True)

    planned = best.run.judgement
    for judgement in (run.judgement, streamed.judgement):
        assert judgement.attainment.share == planned.attainment.share
        assert judgement.attainment.by_class == planned.attainment.by_class
        assert judgement.counted_request_count == 2000
        assert judgement.warmup_s == 0.0
    for metric in METRICS:
        exact_s = np.array(run.judgement.percentiles[metric])
        near_s = np.array(streamed.judgement.percentiles[metric])
        np.testing.assert_allclose(near_s, exact_s, rtol=RELATIVE_ERROR, atol=1e-6)


@pytest.mark.thorough
def test_both_files_use_the_same_names(tmp_path):
    settings = drawn()
    best = json.loads(plan_json(plan(PlanSettings(**settings))))["best"]

    run = simulate_deployment(
        SimulateSettings(**settings, replicas=best["replica_count"])
    )

    written = json.loads(run_json(run))
    for name in (
        "slo_attainment",
        "slo_attainment_interval",
        "sample_count",
        "attainment_by_class",
        "counted_request_count",
        "warmup_s",
        "gpu_count",
        "usd_per_h",
        "engine",
    ):
        assert written[name] == best[name], name


@pytest.mark.parametrize("name", ["solver", "tune", "executor", "ray_address"])
def test_simulate_refuses_settings_that_it_does_not_read(name):
    from capplan.errors import InputError

    with pytest.raises(InputError, match=f"{name} has no effect on this command"):
        SimulateSettings(**drawn(), **{name: "mip"})
