"""Users who wait for their answers: judged, planned for, held against a long run."""

import json

import numpy as np
import pytest

from capplan.cli.main import exit_code
from capplan.deployment.pools import Deployment
from capplan.errors import InputError
from capplan.planning.evaluate.inputs import plan_inputs
from capplan.planning.evaluate.run import simulate_deployment
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import PlanSettings, SimulateSettings
from capplan.report.pages.plan import plan_page, plan_values
from capplan.report.received.verify import verify
from capplan.simulator.simulate import simulate
from capplan.workload.synthesis import resample
from capplan.workload.users import Users
from tests.documents import plan_json

COST = {"latency_ms": "9,0.04,0,0.08,0.00005", "kv_blocks": 4000, "tp": 1}
MIX = "synthetic:prompt=300,output=lognormal(median=80,sigma=0.6),n=2000"
ASKED = {
    "workload": MIX,
    "users": 600,
    "think": "exp:3s",
    "slo": "ttft=400ms,tpot=15ms",
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM",
    "price": "H100-SXM=2.79",
    **COST,
}


@pytest.fixture(scope="module")
def planned():
    return plan(PlanSettings(**ASKED))


def long_run(replicas, seed=99, rounds=400):
    """Return the attainment of many rounds of the users, after the first ones."""
    inputs, (configuration,) = plan_inputs(PlanSettings(**ASKED))
    rng = np.random.default_rng(seed)
    n = rounds * ASKED["users"]
    trace = Users(ASKED["users"], 3.0, True).asking(
        resample(inputs.load.base, n, rng), rng
    )
    fleet = Deployment.of(configuration, replicas)
    times = simulate(trace, fleet, slo=inputs.slo).table
    times = times.select(slice(n // 10, n - n // 10))
    limits_s = inputs.slo.columns(times.request_class, trace.class_names)
    return np.logical_and.reduce(times.met(limits_s)).mean()


def test_a_plan_for_users_holds_in_the_long_run_and_one_fewer_does_not(planned):
    best = planned.best

    assert best.decided
    assert best.replica_count > 1
    assert long_run(best.replica_count) >= 0.99
    assert long_run(best.replica_count - 1) < 0.99


def test_the_rate_of_a_plan_for_users_is_that_of_its_best(planned):
    run = planned.best.run

    # Little's law: users = rate * (think time + stay), within what is left to chance.
    stay_s = run.judgement.percentiles["e2e_s"][0]
    assert planned.rate_per_s * (3.0 + stay_s) == pytest.approx(600, rel=0.05)
    assert planned.rate_per_s == run.simulation.totals.rate_per_s


def test_a_plan_says_whose_requests_it_serves(planned):
    page = plan_page(planned)

    assert "serve 600 users, think time exp:3 s. " in page.lead
    assert " · 600 users, think time exp:3 s, " in page.about
    assert plan_values(planned)["asked_by"] == "600 users, think time exp:3 s"
    assert planned.request_count == planned.best.run.simulation.totals.request_count


@pytest.mark.thorough
def test_a_plan_for_users_is_verified(planned, tmp_path):
    (tmp_path / "plan.json").write_text(plan_json(planned))

    assert verify(tmp_path / "plan.json", simulate=True) == []


def test_no_lower_bound_is_claimed_for_users(planned, tmp_path, capsys):
    document = json.loads(plan_json(planned))

    assert document["certificate"]["bound"]["method"] == "none"
    assert planned.best.bound.replica_count == 1
    assert "users ask less of a slow fleet" in planned.best.bound.note


def test_more_replicas_answer_users_faster():
    runs = [
        simulate_deployment(
            SimulateSettings(
                **{k: v for k, v in ASKED.items() if k != "price"}, replicas=n
            )
        )
        for n in (2, 4, 8)
    ]

    rates = [run.simulation.totals.rate_per_s for run in runs]
    assert rates == sorted(rates)
    assert all(run.judgement.steadiness.settled is not False for run in runs)


def test_without_an_slo_each_request_is_asked_once():
    settings = SimulateSettings(workload=MIX, users=7, think="1s", **COST)

    run = simulate_deployment(settings)

    assert run.simulation.totals.request_count == 2000
    assert "asked by 7 users, think time 1 s" in run.trace_notes


def test_a_trace_with_times_is_asked_whatever_they_are(tmp_path):
    path = tmp_path / "own.csv"
    rows = "".join(f"{k / 50},300,80\n" for k in range(500))
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + rows)

    run = simulate_deployment(SimulateSettings(trace=path, users=2, **COST))

    assert run.simulation.totals.request_count == 500
    assert run.simulation.totals.rate_per_s < 10
    assert any("whatever their own times are" in note for note in run.trace_notes)
    with pytest.raises(InputError, match="users and stream are both given"):
        simulate_deployment(SimulateSettings(trace=path, users=2, stream=True, **COST))


def test_more_users_than_requests_is_said():
    settings = SimulateSettings(workload=MIX, users=5000, extend=False, **COST)

    run = simulate_deployment(settings)

    assert any("each user asks once at most" in text for text in run.warnings)


@pytest.mark.thorough
def test_users_who_all_think_as_long_are_judged_after_they_fell_in_step():
    # With 6 replicas 100 % meet the SLO at first, 15 % after half an hour: who waits
    # behind others comes back behind them.
    settings = SimulateSettings(
        workload="synthetic:prompt=lognormal(median=1195,sigma=0.7),"
        "output=lognormal(median=100,sigma=0.36),n=3000",
        slo="ttft=1s,tpot=50ms",
        attainment=0.9,
        users=473,
        think="20s",
        replicas=6,
        drop_oversized=True,
        **COST | {"kv_blocks": 8000},
    )

    run = simulate_deployment(settings)

    judgement = run.judgement
    assert any("--think exp:20s" in text for text in run.warnings)
    assert judgement.meets is False
    assert judgement.attainment.share < 0.5


def test_samples_of_users_are_apart_and_longer_ones_begin_alike():
    inputs, _ = plan_inputs(PlanSettings(**ASKED))
    load = inputs.load

    short, long, other = (
        load.sample(3, 10.0),
        load.sample(3, 40.0),
        load.sample(4, 10.0),
    )

    n = len(short)
    assert n < len(long)
    assert (short.prompt_tokens == long.prompt_tokens[:n]).all()
    assert (short.output_tokens == long.output_tokens[:n]).all()
    assert (short.think_s == long.think_s[:n]).all()
    assert (short.output_tokens != other.output_tokens).any()
    assert short.asked_until_s == 10.0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rate": 5.0}, "users and rate are both given"),
        ({"arrivals": "gamma:cv=2"}, "users and arrivals"),
        ({"users": None}, "expected --users with it"),
        ({"users": 0}, "users is 0"),
        ({"think": "-2s"}, "negative"),
        ({"think": "soon"}, "not a duration"),
        ({"solver": "mip"}, "users ask only once they are answered"),
    ],
)
def test_what_contradicts_users_is_refused(changes, said):
    with pytest.raises(InputError, match=said):
        plan(PlanSettings(**{**ASKED, **changes}))


def test_concurrency_is_another_name_of_users(capsys):
    command = f"simulate --workload {MIX} --latency-ms {COST['latency_ms']} --tp 1"

    code = exit_code([*command.split(), "--kv-blocks", "4000", "--concurrency", "9"])

    assert code == 0
    assert "asked by 9 users, no think time" in " ".join(
        capsys.readouterr().out.split()
    )
