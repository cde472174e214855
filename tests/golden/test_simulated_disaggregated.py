"""The simulator schedules disaggregated serving as vLLM's own schedulers did."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from recorded import TOLERANCE_S, tags
from recorded_disaggregated import read

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment, Pool
from capplan.latency.contract import linear_tables
from capplan.simulator.hand_offs import BOTH, DECODE_ALONE, nixl
from capplan.simulator.jit import compiled
from capplan.simulator.simulate import simulate
from capplan.simulator.state import WHERE

DATA = Path(__file__).parent / "data"
RECORDED = {
    f"{folder}/{tag}": read(DATA / folder, tag)
    for folder in (
        "disaggregated",
        "disaggregated_drafts",
        "disaggregated_priority",
    )
    for tag in tags(DATA / folder)
}
COLUMNS = ("sched_s", "start_s", "end_s", "ctx_tokens", "gen_reqs", "gen_ctx")
COLUMNS += ("running", "free_blocks", "preempted")


@compiled(WHERE)
def by_length(first, second, slot, d):
    """The recorder asks for the prompt's length, whatever is cached of it."""
    short = second.requests[slot].prompt_tokens < second.settings[nixl.THRESHOLD]
    return DECODE_ALONE if short else BOTH


@pytest.fixture(autouse=True)
def asks_for_the_length(monkeypatch):
    monkeypatch.setattr(nixl, "where", by_length)


def at_once(tokens):
    """Return an engine that takes no time and holds all."""
    tables = linear_tables(1e-12, 0, 0, 0, 0, max_batch=4096, max_tokens=tokens)
    engine = EngineSettings(
        tokens, 4096, kv_blocks=10**6, async_scheduling=False, max_model_len=10**6
    )
    return Configuration(engine, tables)


def deployment_of(recording):
    """Return the recorded engines; a pool that was not recorded takes no time."""
    given = recording.given
    recorded = Configuration(recording.engine, recording.tables)
    missing = at_once(100_000)
    engine = replace(
        missing.engine,
        block_size=given["block_size"],
        speculation=recording.engine.speculation,
        scheduler=recording.engine.scheduler,
    )
    missing = replace(missing, engine=engine)
    pools = [
        Pool(recorded if given[kind] else missing, max(1, given[kind]))
        for kind in ("prefill", "decode")
    ]
    settings = {
        "block": given["block_s"],
        "handshake": given["handshake_s"],
        "hop": given["hop_s"] if given["prefill"] else 0,
    }
    text = ",".join(f"{name}={value}s" for name, value in settings.items())
    text += f",threshold={given['threshold']},report={given['report']}"
    return Deployment(tuple(pools), "round-robin", hand_off=f"nixl:{text}")


def trace_of(recording):
    trace = recording.trace
    if not recording.given["prefill"]:  # a prompt takes 1e-12 s; keep their order
        later_s = 1e-11 * np.arange(len(trace))
        return replace(trace, arrival_s=trace.arrival_s + later_s)
    if not recording.given["decode"]:
        return replace(trace, output_tokens=np.ones(len(trace), int))
    return trace


def lines(iterations, replica):
    """Return the iterations of a replica, a tuple of COLUMNS each."""
    steps = iterations.steps[iterations.steps["replica"] == replica]
    return [tuple(step[name] for name in COLUMNS) for step in steps]


@pytest.mark.parametrize("tag", RECORDED)
def test_each_engine_runs_the_recorded_iterations(tag):
    recording = RECORDED[tag]

    simulation = simulate(
        trace_of(recording), deployment_of(recording), record_iterations=True
    )

    for name in recording.engines:
        use = simulation.pools["pd".index(name[0])]
        found = lines(use.iterations, int(name[1:]))
        expected = [
            tuple(getattr(one, column) for column in COLUMNS)
            for one in recording.of(name)
        ]
        for k, (ours, theirs) in enumerate(zip(found, expected, strict=False)):
            assert ours == pytest.approx(theirs, abs=TOLERANCE_S), (name, k)
        assert len(found) == len(expected)


@pytest.mark.parametrize(
    "tag", [tag for tag, one in RECORDED.items() if one.given["decode"]]
)
def test_each_request_gets_its_tokens_when_it_did(tag):
    recording = RECORDED[tag]

    table = simulate(trace_of(recording), deployment_of(recording)).table

    for name in ("first_token_s", "finish_s"):
        expected = [float(row[name]) for row in recording.requests]
        assert getattr(table, name) == pytest.approx(expected, abs=TOLERANCE_S)
