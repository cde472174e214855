"""A closed loop is the open simulation of the arrivals that it produced."""

from dataclasses import replace

import numpy as np
import pytest

from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import linear_tables
from capplan.simulator.routers import ROUTERS
from capplan.simulator.simulate import simulate
from capplan.simulator.state import Count
from capplan.workload.trace import Trace
from tests.deployments import fleet_of
from tests.simulator.cases import MOST_SEQS, random_tables
from tests.simulator.drivers.closed_loop import serve
from tests.simulator.drivers.doors import Pool, Request


def random_case(seed):
    rng = np.random.default_rng(seed)
    count, users = int(rng.integers(5, 40)), int(rng.integers(1, 10))
    lengths = list(
        zip(
            rng.integers(1, 25, count).tolist(),
            rng.integers(1, 17, count).tolist(),
            strict=True,
        )
    )
    seqs = int(rng.integers(1, MOST_SEQS + 1))
    engine = EngineSettings(
        max_num_batched_tokens=seqs + int(rng.integers(0, 25)),
        max_num_seqs=seqs,
        block_size=int(rng.integers(1, 8)),
        async_scheduling=bool(rng.integers(0, 2)),
    )
    longest = np.array([sum(pair) - 1 for pair in lengths])
    largest = int(engine.request_blocks(longest).max())
    engine = replace(engine, kv_blocks=1 + largest + int(rng.integers(0, 6)))
    tables = random_tables(seed, seqs, engine.max_num_batched_tokens, False)
    tables = tables._replace(request_s=0.0)
    think_s = rng.exponential(0.05, count) + 1e-4
    router = ("jsq", "round-robin")[seed % 2]
    fleet = fleet_of(tables, engine, int(rng.integers(1, 4)), router=router)
    return fleet, lengths, users, think_s


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(100))
def test_a_closed_loop_is_the_open_simulation_of_its_arrivals(seed):
    fleet, lengths, users, think_s = random_case(seed)

    arrivals, finish_s = serve(fleet, lengths, users, think_s)

    arrival_s = np.array([moment_s for moment_s, _ in arrivals])
    prompts, outputs = np.array([pair for _, pair in arrivals]).T
    table = simulate(Trace(prompts, outputs, arrival_s), fleet).table
    assert len(arrivals) == len(lengths)
    assert np.all(np.diff(arrival_s) >= 0)
    assert finish_s == pytest.approx(table.finish_s.tolist(), abs=1e-9)


@pytest.mark.parametrize("router", sorted(ROUTERS))
def test_a_closed_replica_finishes_what_it_has_and_takes_no_more(router):
    engine = EngineSettings(64, 8, kv_blocks=200, async_scheduling=False)
    tables = linear_tables(0.01, 1e-4, 0, 1e-3, 0, max_batch=8, max_tokens=64)
    pool = Pool(fleet_of(tables, engine, 3, router=router))
    first = [pool.arrive(Request(row, 40, 5), 0.0) for row in range(6)]
    before = pool.state.requests[first].replica.copy()
    pool.state.counts[Count.OPEN] = 2

    later = [pool.arrive(Request(row, 40, 5), 0.001) for row in range(6, 18)]
    done = []
    while pool.replicas["outstanding"].sum() > 0:
        r = int(np.argmin([pool.next_s(i) for i in range(3)]))
        done += pool.step(r, np.inf)[1].tolist()

    if router in ("jsq", "round-robin"):
        assert 2 in before
    assert max(pool.state.requests[later].replica) < 2
    assert len(done) == 18
