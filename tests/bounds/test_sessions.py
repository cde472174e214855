"""Bounds of sessions: what no cache saves, at the pace of turns within their limits."""

from dataclasses import replace

import numpy as np
import pytest
from test_simulated import BATCH, TOKENS, random_tables

from capplan.bounds.bound_check import COLUMNS
from capplan.bounds.lower_bound import lower_bound
from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import linear_tables
from capplan.planning.configure.scheduling import widest_iterations
from capplan.planning.load.session_load import SessionLoad
from capplan.planning.plan.plan import plan
from capplan.planning.prove.proof import MIX
from capplan.planning.settings.plan import PlanSettings
from capplan.simulator.simulate import simulate
from capplan.workload.running import Sessions, with_first
from capplan.workload.slo import parse_slo
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

ROUTERS = "session", "jsq", "round-robin", "power-of-two", "prefix-aware", "llm-d"


def forest(rng):
    """Return small sessions: appends, edits, forks, a common text, sub-agents."""
    rows, wait_s = [], float(rng.choice([1e-3, 0.05]))
    for session in range(int(rng.integers(3, 30))):
        first = len(rows)
        for turn in range(int(rng.integers(1, 8))):
            parent = int(rng.integers(max(first, len(rows) - 2), len(rows) + 1))
            new, out = int(rng.integers(1, 25)), int(rng.integers(1, 12))
            if not turn or parent == len(rows):
                prefix, parent, group = int(rng.integers(0, 20)), -1, 0
            else:
                whole = rows[parent][0] + rows[parent][1]
                prefix = whole if rng.random() < 0.7 else int(rng.integers(whole + 1))
                group = -1
            after = max(first, len(rows) - int(rng.integers(1, 3))) if turn else -1
            think_s = float(rng.exponential(wait_s))
            row = prefix + new, out, parent, prefix, group, after, think_s, session
            rows.append(row)
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    prompt, output, parent, prefix, group, after, think_s, session = columns
    return Trace(
        prompt,
        output,
        np.where(after >= 0, np.nan, 0.0) + 1e-3 * session,
        parent=parent,
        prefix_tokens=prefix,
        prefix_group=group,
        after=after,
        think_s=think_s,
        session=session,
    )


def check_bounds(seed):
    rng = np.random.default_rng(seed)
    trace, tables = forest(rng), random_tables(rng)
    if rng.random() < 0.3:  # nearly all of the time is that of tokens
        tables = linear_tables(
            1e-7, 1e-3, 0, 1e-3, 0, max_batch=BATCH, max_tokens=TOKENS
        )
    blocks = -(-int((trace.prompt_tokens + trace.output_tokens).max()) // 4)
    engine = EngineSettings(
        max_num_batched_tokens=int(rng.integers(BATCH, TOKENS + 1)),
        max_num_seqs=int(rng.integers(1, BATCH + 1)),
        block_size=4,
        kv_blocks=2 + blocks + int(rng.integers(0, 200)),
        async_scheduling=bool(rng.integers(0, 2)),
        prefix_caching=True,
    )
    unlimited, widest = widest_iterations(engine, tables)
    replicas, router = int(rng.integers(1, 4)), str(rng.choice(ROUTERS))
    fleet = replace(fleet_of(widest, engine, replicas), router=router)

    simulation = simulate(trace, fleet, seed=seed)
    times = simulation.table

    # A row that comes before its parent computes that one's blocks in its place.
    assert times.cached_tokens.sum() <= trace.prefix_tokens.sum()
    lasts_s = times.finish_s.max() - times.arrival_s.min()
    none, endless = np.zeros(len(trace)), np.full(len(trace), np.inf)
    lengths = trace.prompt_tokens, trace.output_tokens, trace.prefix_tokens
    given = none, *lengths, endless, endless, none + lasts_s, none
    columns = dict(zip(COLUMNS, given, strict=True))
    bound = lower_bound(columns, 1.0, widest, unlimited)

    assert bound.work_s <= simulation.busy_s * (1 + 1e-9)
    return bound.work_s / simulation.busy_s


def test_no_schedule_of_a_forest_does_less_than_its_bound():
    used = [check_bounds(seed) for seed in range(40)]

    assert max(used) > 0.8  # and the bound is near some


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 1100))
def test_many_schedules_of_forests_do_no_less_than_their_bounds(seed):
    check_bounds(seed)


def load_of(trace, **sessions):
    of = Sessions(**sessions)
    return SessionLoad(trace, str(of), request_count=1, sessions=of)


TWO_TURNS = Trace(
    np.array([8, 24]),
    np.array([5, 11]),
    None,
    parent=np.array([-1, 0]),
    prefix_tokens=np.array([0, 13]),
    after=np.array([-1, 0]),
    think_s=np.array([0.0, 1.0]),
)


def test_the_pace_is_that_of_turns_at_their_limits():
    """Turns of 1.4 and 2 s with 1 s between: 22 sessions ask 10 turns a second."""
    load = load_of(TWO_TURNS, lanes=22)

    assert load.least_per_s(parse_slo("ttft=1s,tpot=100ms")) == pytest.approx(10)
    assert load.least_per_s(parse_slo("ttft=9s,tpot=900ms,e2e=1.7s")) == pytest.approx(
        22 * 2 / (1.7 + 1 + 1.7)
    )


def test_first_turns_without_limits_keep_those_of_the_others():
    load = load_of(with_first(TWO_TURNS), lanes=22)

    assert load.least_per_s(parse_slo("turn:ttft=1s,tpot=100ms")) == pytest.approx(10)


def test_a_limit_on_the_first_token_alone_says_nothing_of_sessions_at_once():
    slo = parse_slo("ttft=1s")

    assert load_of(TWO_TURNS, lanes=22).least_per_s(slo) == 0
    assert load_of(TWO_TURNS, rate_per_s=3.0).least_per_s(slo) == pytest.approx(6)


@pytest.mark.parametrize("replicas", [1, 2])
def test_no_fleet_whose_turns_keep_a_limit_is_asked_less(replicas):
    rng = np.random.default_rng(replicas)
    load = load_of(TWO_TURNS, lanes=6)
    sample = load.sessions.drawn(load.mix, rng, 60.0)
    engine = EngineSettings(64, 8, 4, kv_blocks=101, prefix_caching=True)
    fleet = fleet_of(random_tables(rng), engine, replicas)

    times = simulate(sample, fleet).table

    longest = parse_slo(f"e2e={times.e2e_s.max():.9f}s")
    asked = np.sum(times.arrival_s - times.arrival_s.min() < 59)
    assert asked >= 59 * load.least_per_s(longest) - 6 * 2


SETTINGS = {
    "workload": "chat-turns:n=100",
    "llm": "Llama-3.1-8B",
    "gpu": ("H100-SXM",),
    "tp": (1,),
    "latency_ms": "10,0.3,1e-7,0.1,1e-5",
    "kv_blocks": 2001,
    "max_num_seqs": 8,
    "wait_cap": "20s",
    "tune": False,
    "attainment": 0.95,
    "sessions": "300",
}


def test_a_plan_of_sessions_has_a_bound_and_its_certificate():
    found = plan(PlanSettings(**SETTINGS, slo=("turn:ttft=500ms,tpot=40ms",)))

    best = found.best
    assert best.bound.method == "busiest window"
    assert 1 < best.bound.replica_count <= best.replica_count
    assert best.bound_sample == MIX == found.certificate["sample"]
    assert best.bound.note.startswith("300 sessions at once, ")
    assert "turns/s where each stays as long as it may, need" in best.bound.note
    most = int(best.bound.note.rpartition(" ")[2])
    assert 300 / (best.bound.replica_count) <= most


def test_without_a_pace_no_bound_is_known():
    found = plan(PlanSettings(**SETTINGS, slo=("turn:ttft=2s",)))

    assert found.best.bound.method == "none"
    assert found.best.bound.note.startswith("none is known")
