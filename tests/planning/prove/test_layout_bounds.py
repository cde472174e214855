"""Bounds of ranks that step together, against what the simulator schedules."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.bounds.bound_check import COLUMNS
from capplan.bounds.lower_bound import lower_bound
from capplan.planning.configure.scheduling import widest_alone, widest_of_replica
from capplan.planning.load.unbatched import unbatched
from capplan.planning.prove.pool_parts import Part
from capplan.planning.prove.proof import _as_iterations
from capplan.simulator.simulate import simulate

sys.path.insert(0, str(Path(__file__).parents[2] / "golden"))
sys.path.insert(0, str(Path(__file__).parents[2] / "simulator"))
from group_cases import apart, group_cases, verifying_cases
from state_cases import state_cases

ANY_CASES = group_cases() | verifying_cases() | state_cases() | state_cases(drafts=True)


def bound_at(case, limits, share):
    configuration = case.configuration()
    engine, tables = widest_of_replica(configuration)
    trace = case.case.trace
    cached = trace.prefix_tokens * int(engine.prefix_caching)
    cached = np.where(trace.prefix_group < 0, 0, cached)
    ttft_s, tpot_s, e2e_s = limits
    steps, gap_s = _as_iterations(engine, trace.output_tokens, tpot_s)
    columns = {
        "arrival_s": trace.arrival_s,
        "prompt_tokens": trace.prompt_tokens,
        "output_tokens": steps,
        "cached_tokens": cached,
        "ttft_s": ttft_s,
        "tpot_s": gap_s,
        "e2e_s": e2e_s,
    }
    return lower_bound(columns, share, tables, engine)


@pytest.mark.thorough
@settings(max_examples=60)
@given(ANY_CASES, st.floats(0.5, 1.0))
def test_no_schedule_of_ranks_has_fewer_replicas_than_the_bound(case, quantile):
    times = case.simulated().times
    n = len(case.case.trace)
    ttft_s, tpot_s, e2e_s = (
        max(float(np.quantile(np.nan_to_num(values), quantile, method="higher")), 1e-3)
        for values in (times.ttft_s, times.tpot_s, times.e2e_s)
    )
    met = (times.ttft_s <= ttft_s) & ~(times.tpot_s > tpot_s) & (times.e2e_s <= e2e_s)
    limits = tuple(np.full(n, limit) for limit in (ttft_s, tpot_s, e2e_s))

    # The schedule attains its own share: so many replicas are enough for it.
    if met.any():
        bound = bound_at(case, limits, float(met.mean()))

        assert bound.reachable
        assert bound.replica_count <= case.case.replica_count


@pytest.mark.thorough
@settings(max_examples=60)
@given(group_cases() | verifying_cases(), st.floats(0.5, 1.0))
def test_no_pools_of_ranks_have_fewer_replicas_than_their_bounds(case, quantile):
    fleet = apart(case.configuration(), 1, case.case.replica_count, "end")
    trace = replace(case.case.trace, prefix_tokens=0 * case.case.trace.prefix_tokens)
    times = simulate(trace, fleet).times
    n = len(trace)
    limits = [
        max(float(np.quantile(np.nan_to_num(values), quantile, method="higher")), 1e-3)
        for values in (times.ttft_s, times.tpot_s, times.e2e_s)
    ]
    met = (times.ttft_s <= limits[0]) & ~(times.tpot_s > limits[1])
    met &= times.e2e_s <= limits[2]

    for role, pool in zip(fleet.roles, fleet.pools, strict=True) if met.any() else ():
        engine, tables = widest_of_replica(pool.configuration)
        part = Part(role, fleet.hand_off)
        steps, gap_s = _as_iterations(
            engine, trace.output_tokens, np.full(n, limits[1])
        )
        columns = (trace.arrival_s, trace.prompt_tokens, steps, 0 * steps)
        columns += (np.full(n, limits[0]), gap_s, np.full(n, limits[2]), 0 * steps)
        bound = lower_bound(
            part.of(dict(zip(COLUMNS, columns, strict=True))),
            float(met.mean()),
            tables,
            part.widest(engine),
        )

        assert bound.reachable
        assert bound.replica_count <= pool.replica_count


@pytest.mark.thorough
@settings(max_examples=60)
@given(ANY_CASES)
def test_no_request_of_a_group_is_faster_than_alone_on_a_rank(case):
    engine, tables = widest_alone(case.configuration())

    least = unbatched(case.case.trace, tables, engine)

    times = case.simulated().times
    assert (least.ttft_s <= times.ttft_s + 1e-9).all()
    later = case.case.trace.output_tokens > 1
    assert (least.tpot_s[later] <= times.tpot_s[later] + 1e-9).all()
    assert (least.e2e_s <= times.e2e_s + 1e-9).all()


@pytest.mark.slow
@settings(max_examples=1000)
@given(group_cases(requests=40) | verifying_cases(requests=40), st.floats(0.3, 1.0))
def test_many_schedules_of_ranks_have_no_fewer_replicas(case, quantile):
    test_no_schedule_of_ranks_has_fewer_replicas_than_the_bound.hypothesis.inner_test(
        case, quantile
    )
