"""Fleets that serve sessions, judged by sessions."""

from dataclasses import replace

import numpy as np
import pytest

from capplan.deployment.engine import EngineSettings
from capplan.errors import InputError
from capplan.latency.contract import linear_tables
from capplan.planning.evaluate.judging import Judging
from capplan.planning.evaluate.of_sessions import kv_tokens
from capplan.planning.evaluate.run import judged_run, simulate_deployment
from capplan.planning.load.conversations import session_load
from capplan.planning.load.session_load import SessionLoad
from capplan.planning.load.traffic import read_requests
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import (
    CapacitySettings,
    PlanSettings,
    SimulateSettings,
)
from capplan.planning.size.capacity import capacity
from capplan.report.pages.run import run_values
from capplan.simulator.results.metrics import share_interval
from capplan.simulator.results.sample import sample_of
from capplan.simulator.simulate import simulate
from capplan.workload.running import Sessions
from capplan.workload.session_fits import drawn
from capplan.workload.slo import parse_slo
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

ENGINE = EngineSettings(
    max_num_batched_tokens=2048,
    max_num_seqs=32,
    block_size=16,
    kv_blocks=20_001,
    prefix_caching=True,
)
TABLES = linear_tables(10e-3, 5e-5, 1e-10, 1e-4, 1e-8, max_batch=32, max_tokens=2048)


def chats(seed=0, sessions=200, wait_s=20.0):
    """Return conversations of which nobody thinks for longer."""
    trace = drawn(f"chat-turns:n={sessions}", np.random.default_rng(seed))
    return trace.changed(think_s=np.minimum(trace.think_s, wait_s))


def judged(lanes, kv_blocks=20_001, replicas=1, slo="ttft=1s", trace=None, **sessions):
    """Return the run of a fleet that so many conversations at once are served by."""
    of = Sessions(lanes, **sessions)
    base = chats() if trace is None else trace
    load = SessionLoad(base, str(of), request_count=1, sessions=of)
    load = load.alone(np.full(len(base), 1.0), 1000)
    engine = replace(ENGINE, kv_blocks=kv_blocks)
    fleet = fleet_of(TABLES, engine, replicas)
    fleet = replace(fleet, router="session")
    how = Judging(0, budget_requests=40_000)
    return judged_run(load, parse_slo(slo, 0.95), fleet, how)


def test_the_interval_is_between_sessions():
    """Nine of ten turns and four of ten: 0.65 with a standard error of 0.25."""
    trace = Trace(
        np.full(20, 16),
        np.ones(20, np.int64),
        np.arange(20) * 10.0 + np.repeat([0.0, 0.0], 10),
        session=np.repeat([0, 1], 10),
        after=np.full(20, -1),
    )
    chained = trace.changed(arrival_s=None, think_s=np.full(20, 1.0), users=2)
    after = np.arange(-1, 19)
    after[10] = -1
    chained = replace(chained, after=after)
    simulation = simulate(chained, fleet_of(TABLES, ENGINE, 1))
    late = np.r_[np.arange(9, 10), np.arange(14, 20)]
    table = simulation.table
    first_s = table.first_token_s.copy()
    first_s[late] += 100.0
    table = replace(table, first_token_s=first_s)
    sample = sample_of(replace(simulation, times=table), parse_slo("ttft=50s"))

    assert sample.by_session
    assert sample.block_counted.tolist() == [10, 10]
    assert sorted(sample.block_attained.tolist()) == [4, 9]
    excess = sample.block_attained - 0.65 * sample.block_counted
    assert 2 * (excess**2).sum() / 20**2 == pytest.approx(0.25**2)
    low, high = share_interval(sample.block_attained, sample.block_counted)
    assert high - low > 0.6  # of 20 turns alone it would be 0.4


def test_with_room_every_prompt_is_found_but_what_is_new():
    run = judged(8, slo="ttft=2s")

    found = run.sessions
    assert run.judgement.meets is True
    assert found.lanes == found.running == 8
    assert found.kv_pressure < 0.2
    assert found.hit_rate == pytest.approx(1 - found.compulsory_rate, abs=0.06)
    assert found.count >= 8
    assert found.turns > found.count


def test_with_little_kv_sessions_push_each_other_out():
    roomy, full = (judged(24, blocks) for blocks in (20_001, 1_200))

    assert full.sessions.kv_pressure > 0.85
    assert "take" in full.sessions.caution()
    assert roomy.sessions.caution() == ""
    assert full.sessions.hit_rate < roomy.sessions.hit_rate - 0.2
    assert full.judgement.attainment.share <= roomy.judgement.attainment.share


def test_more_sessions_are_answered_no_faster_than_they_think():
    """At most N / (think time + answer alone) turns a second."""
    for lanes in (4, 16):
        run = judged(lanes)
        base = chats()
        think_s = float(base.think_s[base.after >= 0].mean())
        turns = len(base) / 200
        most = lanes / (think_s * (turns - 1) / turns)
        assert run.simulation.totals.rate_per_s < 1.1 * most


def test_kv_is_that_of_all_replicas():
    assert kv_tokens(fleet_of(TABLES, ENGINE, 3)) == 3 * 20_000 * 16


def test_sessions_that_begin_at_a_rate_run_as_littles_law_says():
    of = Sessions(None, 0.2)
    base = chats()
    load = SessionLoad(base, str(of), request_count=1, sessions=of)
    load = load.alone(np.full(len(base), 0.7), 1000)
    fleet = replace(fleet_of(TABLES, ENGINE, 2), router="session")

    run = judged_run(load, parse_slo("ttft=1s", 0.9), fleet, Judging(0))

    assert run.sessions.rate_per_s == 0.2
    assert run.sessions.running == pytest.approx(0.2 * load.mix.lasts_s.mean(), rel=0.3)


def test_limits_are_of_turns_of_what_users_ask_and_of_sessions():
    run = judged(6, slo="turn:ttft=1s,request:e2e=30s,session:e2e=1us")

    by_class = run.judgement.attainment.by_class
    assert by_class.keys() == {"all", "request", "session"}
    assert by_class["session"] == 0
    assert run.judgement.meets is False
    assert "session" in run.judgement.missing


SETTINGS = {
    "workload": "chat-turns:n=100",
    "llm": "Llama-3.1-8B",
    "gpu": ("H100-SXM",),
    "tp": (1,),
    "latency_ms": "10,0.05,1e-7,0.1,1e-5",
    "kv_blocks": 4001,
    "max_num_seqs": 32,
    "wait_cap": "20s",
}


def test_a_plan_has_the_fewest_replicas_for_sessions():
    found = plan(
        PlanSettings(
            **SETTINGS,
            sessions="60",
            slo=("turn:ttft=500ms,tpot=40ms",),
            attainment=0.95,
        )
    )

    count = found.best.replica_count
    assert found.asked_by == "60 sessions at once"
    assert found.sessions.lanes == 60
    assert found.sessions.users_per_gpu == pytest.approx(60 / found.best.gpu_count)
    by_count = {probe.replica_count: probe.meets for probe in found.best.probes}
    assert by_count[count] is True
    assert not by_count.get(count - 1, False)
    assert found.best.run.deployment.router == "session"
    assert found.sticky is None or found.sticky.router == "jsq"


def test_a_simulation_tells_its_sessions():
    run = simulate_deployment(SimulateSettings(**SETTINGS, sessions="10"))

    said = run_values(run)["sessions"]
    wanted = {"lanes", "count", "turns", "hit_rate", "tier_hit_rate"}
    assert wanted | {"users_per_gpu", "kv_pressure"} <= vars(said).keys()
    assert 0 <= said.hit_rate <= 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"workload": "sharegpt", "sessions": "3"}, "no conversations, for --sessions"),
        ({}, "conversations without times; give --sessions N"),
        ({"sessions": "3", "rate": 2.0}, "sessions and rate are both given"),
        ({"sessions": "none"}, "expected 1 to 1,000,000 sessions"),
        ({"sessions": "3", "snapshot": "0.7,0.2"}, "expected two shares from 0 to 1"),
        ({"session_rate": "0/s"}, "expected a rate above 0"),
        ({"sessions": "3", "users": 4}, "users and sessions are both given|sessions"),
        ({"sessions": "auto"}, "--sessions auto is of capplan capacity"),
    ],
)
def test_what_sessions_cannot_be_is_refused(given, said):
    with pytest.raises(InputError, match=said):
        plan(PlanSettings(**{**SETTINGS, "slo": ("ttft=1s",), **given}))


def test_limits_of_first_turns_are_of_conversations():
    settings = {**SETTINGS, "workload": "sharegpt", "rate": 1.0}
    del settings["wait_cap"]
    with pytest.raises(InputError, match="--slo first: is of conversations"):
        plan(PlanSettings(**settings, slo=("turn:ttft=1s",)))


def test_first_turns_without_limits_count_for_nothing():
    run = judged(6, slo="turn:ttft=1us")
    load = replace(chats(), class_names=("all",))

    assert "first" not in run.judgement.missing
    assert run.judgement.attainment.share == 0
    assert parse_slo("turn:ttft=1us").describe(load.class_names) == "ttft ≤ 1 µs"
    both = parse_slo("turn:ttft=1s,first:ttft=9s,request:e2e=60s")
    assert both.describe(("turn", "first")) == (
        "turn: ttft ≤ 1 s; first: ttft ≤ 9 s; request: e2e ≤ 60 s"
    )


def test_a_trace_of_turns_is_not_planned_at_a_rate_of_requests(tmp_path):
    file = tmp_path / "chat.csv"
    file.write_text(
        "id,arrival_s,prompt_tokens,output_tokens,parent,prefix_tokens,after,think_s\n"
        "a,0,100,20,,0,,\nb,,150,20,a,120,a,5\nc,30,100,20,,0,,\n"
    )
    of = {**SETTINGS, "trace": str(file), "slo": ("ttft=1s",)}
    del of["workload"], of["wait_cap"]

    for name, value in {"rate": 2.0, "users": 3, "attain_in": "1h"}.items():
        flag = name.replace("_", "-")
        with pytest.raises(InputError, match=f"come after answers, beside --{flag}"):
            plan(PlanSettings(**of, **{name: value}))
    assert plan(PlanSettings(**of)).sessions.rate_per_s == pytest.approx(1 / 30)


@pytest.mark.parametrize(
    "more", [{"sessions": "20"}, {"session_rate": "1/s"}, {"think": "5s"}]
)
def test_capacity_finds_how_many_sessions_there_are(more):
    settings = {**SETTINGS, "slo": ("ttft=1s",), "replicas": 1}
    with pytest.raises(InputError, match="capacity finds the most sessions at once"):
        capacity(CapacitySettings(**settings, **more))


def test_policies_foresee_answers_of_sessions_by_a_predictor():
    asked = PlanSettings(**SETTINGS, sessions="5", predictor="relative-error:error=0.5")
    load = session_load(read_requests(asked), asked.running, asked)

    assert (load.base.predicted_output_tokens != load.base.output_tokens).any()
    assert load.alone(np.ones(len(load.base)), 0).sample(0, 60.0).users == 5


def test_where_sessions_are_found_needs_sessions():
    with pytest.raises(InputError, match="expected --sessions or --session-rate"):
        PlanSettings(**SETTINGS, snapshot="0.2,0.3")
