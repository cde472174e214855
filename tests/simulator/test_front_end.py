"""API server processes in front of the router."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.bounds.lower_bound import lower_bound
from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import linear_tables
from capplan.simulator.fleet.front_end import FrontEnd
from capplan.simulator.results.sketches import Sketches
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

TABLES = linear_tables(5e-3, 2e-5, 0, 1e-4, 0, max_batch=64, max_tokens=512)
ENGINE = EngineSettings(max_num_batched_tokens=512, max_num_seqs=64)


def in_turn(arrival_s, processes, api_request_s):
    """The slow judge: each process has a list of the requests that it takes."""
    free_s = [-np.inf] * processes
    begins_s = []
    for row, at_s in enumerate(arrival_s):
        begin_s = max(at_s, free_s[row % processes])
        free_s[row % processes] = begin_s + api_request_s
        begins_s.append(begin_s)
    return begins_s


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=60),
    st.integers(1, 5),
    st.integers(1, 59),
)
def test_each_process_takes_one_request_after_the_other(gaps, processes, cut):
    arrival_s = np.cumsum(gaps)
    front = FrontEnd(processes, request_s=0.25, api_request_s=0.5)

    parts = [front.reaches_s(arrival_s[:cut]), front.reaches_s(arrival_s[cut:])]

    reaches_s = np.concatenate(parts)
    assert reaches_s.tolist() == [x + 0.25 for x in in_turn(arrival_s, processes, 0.5)]
    assert (np.diff(reaches_s) >= 0).all()


def burst(count=200, prompt=64, output=2):
    return Trace(np.full(count, prompt), np.full(count, output), np.zeros(count))


def test_an_api_server_lets_no_more_requests_through_than_its_cap():
    capped = TABLES._replace(api_request_s=0.01)

    times = simulate(burst(), fleet_of(capped, ENGINE, 1)).table

    # 200 requests at 100/s: the last is through after 1.99 s.
    assert times.first_token_s.max() >= 1.99
    assert times.first_token_s.max() < 1.99 + 0.1


@pytest.mark.parametrize(("replicas", "processes"), [(1, 4), (2, 2), (4, 1)])
def test_more_processes_let_as_many_times_more_through(replicas, processes):
    capped = TABLES._replace(api_request_s=0.01)
    engine = EngineSettings(
        max_num_batched_tokens=512, max_num_seqs=64, api_server_count=processes
    )

    times = simulate(
        burst(), fleet_of(capped, engine, replicas, router="round-robin")
    ).table

    assert times.first_token_s.max() == pytest.approx(0.49, abs=0.1)


def test_a_prompt_takes_the_front_end_its_tokens_before_the_first_token():
    slow = TABLES._replace(prompt_token_s=1e-4)
    trace = Trace(np.array([100, 400]), np.array([5, 5]), np.array([0.0, 10.0]))

    plain, late = (
        simulate(trace, fleet_of(t, ENGINE, 1)).table for t in (TABLES, slow)
    )

    assert late.ttft_s - plain.ttft_s == pytest.approx([0.01, 0.04])
    assert late.tpot_s == pytest.approx(plain.tpot_s)
    assert late.e2e_s - plain.e2e_s == pytest.approx([0.01, 0.04])


def test_a_stream_waits_in_front_as_a_whole_trace_does():
    tables = TABLES._replace(api_request_s=0.02, prompt_token_s=1e-4, request_s=0.03)
    draw = np.random.default_rng(1)
    arrival_s = np.cumsum(draw.exponential(0.015, 500))
    trace = Trace(draw.integers(1, 300, 500), draw.integers(1, 30, 500), arrival_s)
    parts = [trace.select(slice(0, 170)), trace.select(slice(170, 500))]

    whole = simulate(trace, fleet_of(tables, ENGINE, 2))
    streamed: list = []
    sink = Sketches(on_finished=lambda done: streamed.append(done.copy()))
    simulate(parts, fleet_of(tables, ENGINE, 2), sink=sink)

    done = np.sort(np.concatenate(streamed), order="row")
    assert done["first_token_s"].tolist() == whole.table.first_token_s.tolist()
    assert done["finish_s"].tolist() == whole.table.finish_s.tolist()


@pytest.mark.thorough
@settings(max_examples=15)
@given(st.integers(0, 2**32), st.floats(0, 0.05), st.floats(0, 1e-4))
def test_the_lower_bound_stays_valid_behind_a_front_end(seed, api_request_s, token_s):
    draw = np.random.default_rng(seed)
    n = 120
    trace = Trace(
        draw.integers(1, 400, n),
        draw.integers(1, 60, n),
        np.cumsum(draw.exponential(0.01, n)),
    )
    tables = TABLES._replace(
        api_request_s=api_request_s, prompt_token_s=token_s, request_s=0.01
    )
    for replicas in (1, 2, 3):
        times = simulate(trace, fleet_of(tables, ENGINE, replicas)).table
        limit_s = np.full(n, float(np.quantile(times.ttft_s, 0.9)))
        share = float((times.ttft_s <= limit_s).mean())
        columns = {
            "arrival_s": trace.arrival_s,
            "prompt_tokens": trace.prompt_tokens,
            "output_tokens": trace.output_tokens,
            "ttft_s": limit_s,
            "tpot_s": np.full(n, np.inf),
            "e2e_s": np.full(n, np.inf),
        }
        bound = lower_bound(columns, share, tables, ENGINE)
        assert bound.replica_count <= replicas
