"""Two starts of a fleet, and the saturated throughput of replicas."""

from dataclasses import replace

import numpy as np
import pytest

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment
from capplan.latency.contract import linear_tables
from capplan.planning.evaluate.judging import Judging
from capplan.planning.evaluate.run import judged_run, simulate_deployment
from capplan.planning.evaluate.saturation import fleet_saturation, saturation
from capplan.planning.evaluate.settling import full_batch, requests_in_system, settle
from capplan.planning.load.load import Load
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import PlanSettings, SimulateSettings
from capplan.simulator.results.metrics import autocorrelation_time
from capplan.simulator.simulate import simulate
from capplan.workload.slo import RequestSlo, Slo
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

# Iterations take 10 ms whatever is in them; four seats, no prompt of note.
TABLES = linear_tables(10e-3, 0, 0, 0, 0, max_batch=64, max_tokens=512)
ENGINE = EngineSettings(
    max_num_batched_tokens=512, max_num_seqs=4, kv_blocks=1001, async_scheduling=False
)
CONFIGURATION = Configuration(ENGINE, TABLES, "H100-SXM")
SLO = Slo(RequestSlo(e2e_s=5.0), attainment=0.9)


def traffic(rate_per_s, outputs=(21,), seed=0):
    outputs = np.resize(outputs, 1000)
    base = Trace(np.ones(1000, int), outputs, np.arange(1000) / rate_per_s)
    return Load(base, "poisson", rate_per_s, request_count=1000, seed=seed)


def settling(rate_per_s, replica_count, **about):
    drawn = traffic(rate_per_s, **about)

    def simulated(trace):
        return simulate(trace, fleet_of(TABLES, ENGINE, replica_count), slo=SLO)

    deployment = Deployment.of(CONFIGURATION, replica_count)
    return settle(
        simulated,
        lambda empty, full, since_s: True,
        lambda empty, since_s: False,
        drawn,
        deployment,
        fleet_saturation(drawn, deployment, SLO),
    )


@pytest.mark.parametrize("outputs", [(21,), (11, 31), (1, 41)])
def test_a_saturated_replica_completes_its_seats_over_a_request_s_iterations(outputs):
    # 4 seats, 21 iterations of 10 ms a request in the mean: 4 / 0.21 s.
    found = saturation(traffic(1.0, outputs), CONFIGURATION, SLO)

    assert found.rate_per_s == pytest.approx(4 / 0.21, rel=0.03)
    assert found.error <= 0.02
    assert found.binds


def test_utilisation_is_the_arrival_rate_over_what_all_replicas_complete():
    found = replace(saturation(traffic(1.0), CONFIGURATION, SLO), rate_per_s=20.0)

    assert found.utilisation(30.0, 2) == 0.75
    assert replace(found, error=0.0).replicas_at(39.0) == 2
    assert replace(found, error=0.0).replicas_at(41.0) == 3


def test_seats_or_kv_fill_a_replica():
    mix = Trace(np.full(10, 17), np.full(10, 15))  # 2 blocks of 16 tokens each

    assert full_batch(mix, ENGINE) == 4
    assert full_batch(mix, replace(ENGINE, kv_blocks=7)) == 3


def test_two_starts_meet_once_a_full_queue_has_drained():
    # 8 requests at once on 2 replicas of 19/s at 10/s: 16 requests drain at 28/s.
    found = settling(10.0, 2)

    assert found.settled
    assert 0 < found.recovery_s < 0.5 * found.duration_s


def test_two_starts_of_an_overloaded_fleet_never_meet():
    # 19/s for 20/s: what waits at the start waits for ever.
    found = settling(20.0, 1)

    assert not found.settled
    assert found.recovery_s is None


def test_the_area_under_the_requests_is_the_time_that_they_spend():
    trace = traffic(30.0).sample(0, 100.0)
    simulation = simulate(trace, fleet_of(TABLES, ENGINE, 2), slo=SLO)
    times = simulation.table
    edges_s = np.linspace(0.0, 100.0, 11)

    number = requests_in_system(times, edges_s)

    for k in range(10):
        low, high = edges_s[k], edges_s[k + 1]
        spent_s = np.minimum(times.finish_s, high) - np.maximum(times.arrival_s, low)
        assert number[k] * 10 == pytest.approx(np.maximum(spent_s, 0).sum())


def test_the_core_and_the_table_agree_on_the_requests_in_the_system():
    # Running and waiting, as the core counts them, over all the time of the fleet.
    trace = traffic(30.0).sample(1, 100.0)
    simulation = simulate(trace, fleet_of(TABLES, ENGINE, 2), slo=SLO)
    series, times = simulation.series, simulation.table
    width_s = np.diff(series.start_s, append=times.finish_s.max())

    busy_s = 2 * series.busy_share * width_s
    counted_s = ((series.batch_requests + series.waiting_requests) * busy_s).sum()

    # An arrival waits for the end of the iteration at hand, which the core books then.
    assert counted_s == pytest.approx(times.e2e_s.sum(), rel=0.05)


def test_the_memory_of_a_series_is_its_integrated_autocorrelation():
    # AR(1) with coefficient 0.9: (1 + 0.9) / (1 - 0.9) = 19 points.
    rng = np.random.default_rng(0)
    series = np.zeros(100_000)
    noise = rng.standard_normal(len(series))
    for k in range(1, len(series)):
        series[k] = 0.9 * series[k - 1] + noise[k]

    assert autocorrelation_time(series) == pytest.approx(19, rel=0.15)
    assert autocorrelation_time(noise) == pytest.approx(1, abs=0.1)
    assert autocorrelation_time(np.ones(10)) == 1.0


def test_a_fleet_is_judged_where_it_has_settled_and_an_overloaded_one_is_not():
    drawn = traffic(30.0)

    held = judged_run(drawn, SLO, Deployment.of(CONFIGURATION, 2), Judging(0)).judgement
    over = judged_run(drawn, SLO, Deployment.of(CONFIGURATION, 1), Judging(0)).judgement

    assert (held.meets, held.steadiness.settled) == (True, True)
    assert held.steadiness.utilisation == pytest.approx(30 / 38.1, rel=0.03)
    assert (over.meets, over.stable) == (False, False)
    assert over.steadiness.utilisation > 1.5


@pytest.mark.parametrize(
    ("e2e_s", "budget", "meets", "windows", "spent"),
    [
        (0.36, 40_000, True, 12, True),  # 94 % of 90: little room
        (0.36, 2_000_000, True, 96, False),
        (0.4, 2_000_000, True, 24, False),  # 97.6 %: room enough
        (0.32, 400_000, None, 192, True),  # 89.5 %: too close
        (0.3, 40_000, False, 12, False),
    ],
)
def test_an_slo_met_with_little_room_takes_64_windows(
    e2e_s, budget, meets, windows, spent
):
    slo = Slo(RequestSlo(e2e_s=e2e_s), attainment=0.9)

    judgement = judged_run(
        traffic(30.0),
        slo,
        Deployment.of(CONFIGURATION, 2),
        Judging(0, budget_requests=budget),
    ).judgement

    assert (judgement.meets, judgement.spent) == (meets, spent)
    assert judgement.sample_count == windows


def test_a_target_of_1_takes_no_more_requests_whatever_the_budget():
    slo = Slo(RequestSlo(e2e_s=5.0), attainment=1.0)

    judgement = judged_run(
        traffic(30.0), slo, Deployment.of(CONFIGURATION, 2), Judging(0)
    ).judgement

    assert judgement.no_miss
    assert judgement.counted_request_count <= 200_000


def test_a_trace_that_ends_while_the_fleet_still_fills_says_so(tmp_path):
    path = tmp_path / "long.csv"
    rows = [f"{k * 0.1:.1f},100,3000" for k in range(300)]
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + "\n".join(rows) + "\n")
    about = {"llm": "Llama-3.1-8B", "gpu": "H100-SXM", "tp": 1, "slo": "ttft=5s"}

    run = simulate_deployment(SimulateSettings(trace=path, replicas=2, **about))

    # 30 s of arrivals, answers of 3,000 tokens at 10 ms and more.
    assert run.judgement.steadiness.filling
    assert any("still filling" in text for text in run.warnings)


HEADLINE = {
    "workload": "sharegpt",
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM",
    "tp": 1,
}


@pytest.mark.thorough
def test_a_sample_that_ends_before_the_fleet_has_filled_decides_nothing():
    """230 requests/s were planned with 7 GPUs, which hold 64 % in the long run."""
    asked = {**HEADLINE, "rate": 230.0, "slo": "ttft=1s", "tune": False}
    asked |= {"engine": "vllm@0.12"}

    loose = plan(PlanSettings(**asked)).best
    strict = plan(PlanSettings(**{**asked, "slo": "ttft=1s,e2e=600s"})).best

    assert (loose.gpu_count, loose.decided) == (8, True)
    assert strict.gpu_count == 8
    below = next(probe for probe in loose.probes if probe.replica_count == 7)
    assert below.meets is False


@pytest.mark.thorough
def test_the_mix_itself_bounds_drawn_arrivals_without_deadlines():
    best = plan(PlanSettings(**HEADLINE, rate=230.0, slo="ttft=1s", tune=False)).best

    assert best.bound.replica_count > 1
    assert "requests/s of this mix need" in best.bound.note


@pytest.mark.thorough
def test_an_attainment_of_1_is_the_fewest_without_a_miss_and_not_decided():
    asked = {**HEADLINE, "rate": 5.0, "slo": "ttft=20s", "attainment": 1.0}

    best = plan(PlanSettings(**asked)).best

    assert not best.decided
    assert best.run.judgement.open.startswith("no miss in ")
    assert max(probe.replica_count for probe in best.probes) == best.replica_count


def lengths(tmp_path, name):
    """Prompts exp N(5.3, 0.8), answers exp N(5, 0.7) but for the share named."""
    rng = np.random.default_rng(1)
    n = 20_000
    prompts = np.exp(rng.normal(5.3, 0.8, n))
    outputs = np.exp(rng.normal(5.0, 0.7, n))
    if name == "1 % of 30,000":
        rare = rng.random(n) < 0.01
        outputs[rare] = rng.normal(30_000, 4_000, rare.sum())
    if name == "3 % of 8,000":
        rare = rng.random(n) < 0.03
        outputs[rare] = rng.normal(8_000, 1_500, rare.sum())
    if name == "Pareto":
        prompts = np.exp(rng.normal(5.0, 1.0, n))
        outputs = np.minimum(40 * (1 + rng.pareto(1.2, n)), 8_000)
    path = tmp_path / "lengths.csv"
    rows = zip(
        np.maximum(prompts, 1).astype(int),
        np.maximum(outputs, 1).astype(int),
        strict=True,
    )
    path.write_text(
        "prompt_tokens,output_tokens\n" + "".join(f"{p},{o}\n" for p, o in rows)
    )
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rate", "slo", "attainment", "planned"),
    [
        ("1 % of 30,000", 40.0, "ttft=1s,tpot=30ms", 0.99, range(14, 17)),
        ("1 % of 30,000", 4.0, "ttft=1s,tpot=50ms", 0.99, range(2, 3)),
        ("3 % of 8,000", 60.0, "ttft=1s,tpot=30ms", 0.99, range(7, 8)),
        ("Pareto", 80.0, "ttft=1s,tpot=15ms", 0.95, range(4, 7)),
        ("Pareto", 100.0, "e2e=5s", 0.9, range(4, 6)),
    ],
)
def test_rare_long_answers_fill_a_fleet_before_it_is_judged(
    tmp_path, name, rate, slo, attainment, planned
):
    path = lengths(tmp_path, name)
    asked = {**HEADLINE, "workload": None, "trace": path, "rate": rate, "slo": slo}

    own = {"attainment": attainment, "drop_oversized": True, "tune": False}
    best = plan(PlanSettings(**asked, **own)).best

    assert best.replica_count in planned


def test_a_request_in_years_is_judged_like_any_other():
    found = settling(1e-9, 1)

    assert found.longest_stay_s == pytest.approx(0.21, abs=0.01)
