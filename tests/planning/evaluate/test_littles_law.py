"""Users who wait for their answers: the rate stated is the rate served."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.cli.main import exit_code
from capplan.planning.evaluate.run import simulate_deployment
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import PlanSettings, SimulateSettings

COST = {"latency_ms": "9,0.04,0,0.08,0.00005", "tp": 1}
THINK_S = {"0": 0.0, "2s": 2.0, "exp:1s": 1.0, "exp:20s": 20.0}
LENGTHS = (
    "prompt={p},output={o}",
    "prompt=lognormal(median={p},sigma=0.7),output=lognormal(median={o},sigma=0.8)",
)


def littles(run, users, think_s):
    """Return rate times round over users, and tokens given over rate times tokens."""
    totals, stay_s = run.simulation.totals, run.judgement.percentiles["e2e_s"][0]
    return (
        totals.rate_per_s * (stay_s + think_s) / users,
        run.output_tokens_per_s / (totals.rate_per_s * totals.mean_output_tokens),
    )


@given(
    users=st.integers(1, 700),
    think=st.sampled_from(list(THINK_S)),
    replicas=st.integers(1, 3),
    lengths=st.sampled_from(LENGTHS),
    prompt=st.integers(10, 1500),
    output=st.integers(1, 400),
    slo=st.sampled_from(["", "ttft=1s,tpot=30ms", "ttft=1000s"]),
    kv_blocks=st.integers(1500, 20_000),
)
@settings(max_examples=12)
def test_users_are_rate_times_round_and_tokens_are_rate_times_tokens(
    users, think, replicas, lengths, prompt, output, slo, kv_blocks
):
    mix = lengths.format(p=prompt, o=output)
    run = simulate_deployment(
        SimulateSettings(
            workload=f"synthetic:{mix},n=400",
            users=users,
            think=think,
            replicas=replicas,
            slo=slo or (),
            kv_blocks=kv_blocks,
            drop_oversized=True,
            **COST,
        )
    )

    of_users, of_tokens = littles(run, users, THINK_S[think])
    assert not run.judgement.unsteady
    assert of_users == pytest.approx(1, abs=0.03)
    assert of_tokens == pytest.approx(1, abs=0.03)
    assert run.judgement.answers.count >= 9 * users


@pytest.fixture
def alike(tmp_path):
    path = tmp_path / "f1k1k.csv"
    path.write_text("prompt_tokens,output_tokens\n" + 400 * "1024,1024\n")
    return path


@pytest.mark.parametrize("users", [512, 1024])
def test_users_on_a_full_gpu_are_told_the_rate_of_its_tokens(alike, users, capsys):
    # ../shared/cases/field, case 26: 12.01/s for 512 users, where 7 are served.
    command = f"simulate --trace {alike} --users {users} --llm Llama-3.1-8B --tp 1"
    of = ["--gpu", "H100-SXM", "--slo", "ttft=1000s", "--format", "json"]

    assert exit_code([*command.split(), *of]) == 0

    run = json.loads(capsys.readouterr().out)
    served_per_s = run["output_tokens_per_s"] / 1024
    assert served_per_s == pytest.approx(7.0, rel=0.03)
    assert run["rate_per_s"] == pytest.approx(served_per_s, rel=0.03)
    assert run["goodput_per_s"] == pytest.approx(served_per_s, rel=0.03)
    stay_s = run["latency"]["e2e_s"]["mean"]
    assert run["rate_per_s"] * stay_s == pytest.approx(users, rel=0.03)
    assert run["utilisation"] <= 1


def test_users_who_are_answered_after_the_first_sample_ends_have_a_rate(alike):
    # It ended in NaN where all ask at time 0 and nobody is answered before its end.
    settings = SimulateSettings(
        trace=alike,
        users=384,
        llm="Kimi-K2.5",
        gpu="H200",
        tp=8,
        slo="ttft=1000s",
    )

    run = simulate_deployment(settings)

    assert littles(run, 384, 0.0) == pytest.approx((1, 1), abs=0.03)


def test_a_plan_for_users_completes_no_more_than_its_fleet_can(alike):
    planned = plan(
        PlanSettings(
            trace=alike,
            users=1024,
            llm="Llama-3.1-8B",
            gpu="H100-SXM",
            tp=1,
            tune=False,
            slo="ttft=1000s",
        )
    )

    run, shares = planned.best.run, [row.used_share for row in planned.throughput]
    assert run.replica_count == 1
    assert max(share for share in shares if share is not None) <= 1
    tokens_per_h = 3600 * run.output_tokens_per_s * 2  # as many in the prompts
    assert run.cost.usd_per_million_total_tokens == pytest.approx(
        1e6 * run.cost.usd_per_h / tokens_per_h, rel=0.03
    )


def test_a_sample_grows_each_time_that_it_is_too_short():
    # Ten rounds told as 9.999999999999998 were asked for again, without end.
    settings = SimulateSettings(
        workload="synthetic:prompt=52,output=1,n=500",
        users=168,
        seed=872,
        think="exp:10s",
        kv_blocks=14_358,
        **COST,
    )

    run = simulate_deployment(settings)

    assert littles(run, 168, 10.0) == pytest.approx((1, 1), abs=0.03)


def test_requests_asked_once_each_say_where_they_do_not_show_a_rate(alike):
    settings = SimulateSettings(
        trace=alike, users=300, extend=False, kv_blocks=20_000, **COST
    )

    run = simulate_deployment(settings)

    assert run.simulation.totals.request_count == 400
    assert any("too short to tell their rate" in text for text in run.warnings)
    assert np.isfinite(run.simulation.totals.rate_per_s)
