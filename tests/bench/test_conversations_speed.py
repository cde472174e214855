"""Turns of agents with long prompts, of which the cache has nearly all or little."""

import os
import resource
import time

import numpy as np
import pytest

from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import linear_tables
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

pytestmark = pytest.mark.bench

ENGINE = EngineSettings(
    max_num_batched_tokens=8192,
    max_num_seqs=256,
    kv_blocks=6_000_000 // 16,
    prefix_caching=True,
)
TURNS = 40


def agents(n: int, users: int, seed: int = 0) -> Trace:
    """Return conversations of 40 turns whose prompts grow to 180,000 tokens."""
    rng = np.random.default_rng(seed)
    turn = np.arange(n) % TURNS
    outputs = rng.integers(100, 400, n)
    new = rng.integers(2_000, 6_500, n)
    whole = np.cumsum((new + outputs).reshape(-1, TURNS), axis=1).ravel()
    row = np.arange(n)
    before = np.where(turn > 0, row - 1, -1)
    return Trace(
        whole - outputs,
        outputs,
        prefix_tokens=np.where(turn > 0, whole - outputs - new, 0),
        parent=before,
        after=before,
        arrival_s=np.where(turn > 0, np.nan, 0.0),
        think_s=rng.exponential(5.0, n),
        session=row // TURNS,
        users=users,
    )


@pytest.mark.parametrize("users", [24, 80])
def test_turns_a_second(users):
    tables = linear_tables(5e-3, 2e-5, 0, 1e-5, 0, max_batch=256, max_tokens=8192)
    fleet = fleet_of(tables, ENGINE, 1)
    simulate(agents(10 * TURNS, users), fleet)
    n = int(os.environ.get("TURNS", 1_000_000)) // TURNS * TURNS
    trace = agents(n, users)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    found = simulate(trace, fleet)
    took_s = time.process_time() - began
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    hits = found.times.cached_tokens.sum() / trace.prompt_tokens.sum()
    print(
        f"{n:,} turns of {trace.prompt_tokens.mean():,.0f} tokens, {hits:.3f} cached: "
        f"{took_s:.2f} s, {(after - before) / 1024:,.0f} MiB more"
    )
