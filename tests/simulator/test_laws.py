"""Laws for every policy, trace and engine setting."""

from itertools import product

import numpy as np
import pytest
from cases import EXAMPLES, cases, for_scheduler, random_tables
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import linear_tables
from capplan.simulator.fleet.fleet import Fleet
from capplan.simulator.fleet.pool_state import Options
from capplan.simulator.results.times import Simulation
from capplan.simulator.routers import ROUTERS
from capplan.simulator.schedulers import SCHEDULERS
from capplan.simulator.simulate import simulate
from capplan.workload.slo import LIMITS, RequestSlo, Slo
from capplan.workload.trace import Trace
from tests.deployments import fleet_of
from tests.rest_slow import rest_slow

SLO = Slo(RequestSlo(ttft_s=0.5, tpot_s=0.1, tbt_s=0.2))
COLUMNS = ("replica", "preemptions", "cached_tokens")
TIMES = ("scheduled_s", "first_token_s", "finish_s", "longest_gap_s")
ROUNDING_S = 1e-9

every_scheduler = pytest.mark.parametrize("scheduler", sorted(SCHEDULERS))
# All have the same cases: a third of the pairs has each router and each scheduler.
PAIRS = list(product(enumerate(sorted(ROUTERS)), enumerate(sorted(SCHEDULERS))))
THIRD = [(a, b) for (i, a), (k, b) in PAIRS if (i + k) % 3 == 0]
every_pair = pytest.mark.parametrize(
    ("router", "scheduler"),
    rest_slow(product(sorted(ROUTERS), sorted(SCHEDULERS)), THIRD.__contains__),
)


def assert_same(first: Simulation, second: Simulation) -> None:
    for name in COLUMNS:
        assert (
            getattr(first.times, name).tolist() == getattr(second.times, name).tolist()
        )
    for name in TIMES:
        np.testing.assert_allclose(
            getattr(first.times, name),
            getattr(second.times, name),
            rtol=0,
            atol=ROUNDING_S * max(1.0, float(first.times.finish_s.max())),
        )
    assert first.iteration_count == second.iteration_count


@pytest.mark.thorough
@every_pair
@settings(deadline=None, max_examples=EXAMPLES)
@given(case=cases(), longest_jump=st.integers(1, 9))
def test_the_length_of_a_jump_changes_nothing(router, scheduler, case, longest_jump):
    scheduler, case = for_scheduler(scheduler, case, longest_jump)
    fleet = case.deployment(router, scheduler)
    unbounded = simulate(case.trace, fleet, slo=SLO)

    shorter = simulate(case.trace, fleet, slo=SLO, longest_jump=longest_jump)

    assert_same(unbounded, shorter)


@pytest.mark.thorough
@every_pair
@settings(deadline=None, max_examples=EXAMPLES)
@given(case=cases())
def test_recording_iterations_changes_nothing(router, scheduler, case):
    scheduler, case = for_scheduler(scheduler, case, len(case.trace))
    silent = case.simulated(router, scheduler=scheduler, slo=SLO)

    recorded = case.simulated(
        router, scheduler=scheduler, slo=SLO, record_iterations=True
    )

    assert_same(silent, recorded)


@pytest.mark.thorough
@every_scheduler
@settings(deadline=None, max_examples=EXAMPLES)
@given(case=cases(), seed=st.integers(0, 2**20))
def test_all_blocks_of_gpus_and_hosts_are_free_in_the_end(scheduler, case, seed):
    scheduler, case = for_scheduler(scheduler, case, seed)
    deployment = case.deployment("jsq", scheduler)
    fleet = Fleet(deployment, Options(slo=SLO, bin_width_s=1.0))

    for _ in fleet.serve_all(case.trace):
        pass

    assert (fleet.state.replicas.free_blocks == case.engine.kv_blocks - 1).all()
    host_blocks = fleet.state.engine[0].host_blocks
    assert (fleet.state.replicas.host_free_blocks == host_blocks).all()


@settings(deadline=None, max_examples=EXAMPLES)
@given(case=cases())
def test_a_request_is_scheduled_after_it_arrives_and_gets_its_tokens_in_order(case):
    times = case.simulated("jsq").times

    assert (times.arrival_s <= times.scheduled_s).all()
    assert (times.scheduled_s < times.first_token_s).all()
    assert (times.first_token_s <= times.finish_s).all()
    one_token = times.output_tokens == 1
    assert ((times.first_token_s == times.finish_s) == one_token).all()
    assert (times.longest_gap_s <= times.finish_s - times.first_token_s + 1e-9).all()


@settings(deadline=None, max_examples=EXAMPLES)
@given(case=cases())
def test_requests_of_a_replica_are_first_scheduled_in_order_of_arrival(case):
    times = case.simulated("jsq").times

    for r in range(case.replica_count):
        assert (np.diff(times.scheduled_s[times.replica == r]) >= 0).all()


@settings(deadline=None, max_examples=EXAMPLES)
@given(case=cases())
def test_every_token_is_computed_once_unless_its_kv_was_taken(case):
    simulation = case.simulated("jsq", record_iterations=True)

    assert simulation.iterations is not None
    entries = simulation.iterations.entries
    times = simulation.times
    for row in range(len(times)):
        own = entries[entries["row"] == row]
        after = own["computed"] + own["scheduled"]
        restarts = own["computed"][1:] != after[:-1]
        assert own["computed"][0] == times.cached_tokens[row]
        assert restarts.sum() <= times.preemptions[row]
        assert (own["computed"][1:][restarts] < after[:-1][restarts]).all()
        assert after[-1] == times.prompt_tokens[row] + times.output_tokens[row] - 1
        if times.preemptions[row] == 0:
            computed = int(own["scheduled"].sum()) + int(times.cached_tokens[row])
            assert computed == after[-1]


@settings(deadline=None, max_examples=EXAMPLES)
@given(case=cases())
def test_a_batch_stays_within_the_engine_settings_and_kv_within_capacity(case):
    simulation = case.simulated("round-robin", record_iterations=True)

    assert simulation.iterations is not None
    steps, entries = simulation.iterations.steps, simulation.iterations.entries
    engine = case.engine
    capacity = engine.kv_blocks - 1
    assert (steps["free_blocks"] >= 0).all()
    assert (steps["free_blocks"] <= capacity).all()
    assert (steps["running"] <= engine.max_num_seqs).all()
    for first, step in zip([0, *steps["entries_end"]], steps, strict=False):
        batch = entries[first : step["entries_end"]]
        final = (case.trace.prompt_tokens + case.trace.output_tokens - 1)[batch["row"]]
        bounded = engine.request_blocks(final) - -(-final // engine.block_size)
        held = -(-(batch["computed"] + batch["scheduled"]) // engine.block_size)
        held += bounded
        used = capacity - step["free_blocks"]
        assert len(np.unique(batch["row"])) == len(batch) <= step["running"]
        assert 0 < batch["scheduled"].sum() <= engine.max_num_batched_tokens
        if not engine.prefix_caching:
            assert held.sum() <= used
            if len(batch) == step["running"]:
                assert held.sum() == used
        elif len(batch) == step["running"]:
            assert held.max() <= used <= held.sum()


@settings(deadline=None, max_examples=EXAMPLES)
@given(case=cases())
def test_a_gpu_idles_only_when_its_replica_has_no_request(case):
    simulation = case.simulated("jsq", record_iterations=True)

    assert simulation.iterations is not None
    steps, times = simulation.iterations.steps, simulation.times
    for r in range(case.replica_count):
        own = steps[steps["replica"] == r]
        here = times.replica == r
        seen_s = times.arrival_s[here] + case.tables.request_s
        for end_s, start_s in zip(own["end_s"], own["start_s"][1:], strict=False):
            present = (seen_s < start_s - 1e-9) & (times.finish_s[here] > end_s + 1e-9)
            assert start_s <= end_s + 1e-12 or not present.any()


@settings(deadline=None, max_examples=EXAMPLES)
@given(case=cases())
def test_busy_time_is_that_of_the_iterations(case):
    simulation = case.simulated("jsq", record_iterations=True)

    assert simulation.iterations is not None
    steps = simulation.iterations.steps
    assert len(steps) == simulation.iteration_count
    assert simulation.busy_s == pytest.approx((steps["end_s"] - steps["start_s"]).sum())


@settings(deadline=None, max_examples=EXAMPLES)
@given(case=cases(exact=True))
def test_a_trace_shifted_in_time_is_served_alike(case):
    trace = case.trace
    later = Trace(
        trace.prompt_tokens,
        trace.output_tokens,
        trace.arrival_s + 1024.0,
        prefix_group=trace.prefix_group,
        prefix_tokens=trace.prefix_tokens,
    )
    now = case.simulated("round-robin").times

    shifted = simulate(later, case.deployment("round-robin")).times

    assert now.e2e_s.tolist() == shifted.e2e_s.tolist()
    assert now.preemptions.tolist() == shifted.preemptions.tolist()


def test_windows_take_their_blocks_at_admission_and_give_them_back():
    # Two requests of 3 + 2 tokens hold 2 blocks of tokens and 2 of bounded groups each.
    engine = EngineSettings(
        max_num_batched_tokens=8,
        max_num_seqs=4,
        block_size=2,
        kv_blocks=1 + 7,
        async_scheduling=False,
        bounded_groups=1,
        bounded_blocks=3,
    )
    trace = Trace(np.array([3, 3]), np.array([2, 2]), np.zeros(2))
    tables = random_tables(0, 4, 8, exact=True)

    simulation = simulate(trace, fleet_of(tables, engine, 1), record_iterations=True)

    assert simulation.iterations is not None
    # 2 blocks of a prompt and 2 more; the second request waits: 4 are not free.
    steps = simulation.iterations.steps
    assert steps["free_blocks"].tolist() == [3, 3, 3, 3]
    assert steps["running"].tolist() == [1, 1, 1, 1]
    assert simulation.times.preemptions.tolist() == [0, 0]


def met(simulation: Simulation, **limits_s: float) -> list[np.ndarray]:
    slo = Slo(RequestSlo(**limits_s))
    times = simulation.times
    return times.met(slo.columns(np.zeros(len(times), int), ("all",)))


@pytest.mark.thorough
@every_scheduler
@settings(deadline=None, max_examples=EXAMPLES)
@given(
    case=cases(),
    seed=st.integers(0, 9),
    limit_s=st.floats(1e-4, 10.0),
    looser=st.floats(1.0, 5.0),
)
def test_a_looser_limit_is_met_by_all_that_met_it_and_none_by_all(
    scheduler, case, seed, limit_s, looser
):
    scheduler, case = for_scheduler(scheduler, case, seed)
    simulation = case.simulated("jsq", scheduler, slo=SLO)

    for index, name in enumerate(LIMITS):
        strict = met(simulation, **{f"{name}_s": limit_s})
        loose = met(simulation, **{f"{name}_s": limit_s * looser})

        assert (strict[index] <= loose[index]).all()
        assert all(strict[other].all() for other in range(4) if other != index)
    assert all(hits.all() for hits in met(simulation))


@pytest.mark.thorough
@every_scheduler
@settings(deadline=None, max_examples=EXAMPLES)
@given(case=cases(), seed=st.integers(0, 9))
def test_the_mean_gap_between_tokens_is_at_most_the_longest(scheduler, case, seed):
    scheduler, case = for_scheduler(scheduler, case, seed)
    assume("padded=1" not in scheduler)  # its requests end with their batch

    times = case.simulated("jsq", scheduler, slo=SLO).times

    longest_s = times.longest_gap_s * (1 + ROUNDING_S) + ROUNDING_S
    assert (np.nan_to_num(times.tpot_s) <= longest_s).all()


def test_a_prompt_beside_decodes_breaks_the_tbt_and_not_the_tpot():
    # An iteration takes 10 ms, and 0.1 ms more for each prompt token in it. The first
    # request has tokens at 10.1 ms, 30.1 ms (beside 100 prompt tokens) and 40.1 ms.
    tables = linear_tables(10e-3, 1e-4, 0, 0, 0, max_batch=8, max_tokens=512)
    engine = EngineSettings(
        max_num_batched_tokens=512, max_num_seqs=8, async_scheduling=False
    )
    trace = Trace([1, 100], [3, 1], [0.0, 0.005])

    simulation = simulate(trace, fleet_of(tables, engine, 1))

    assert simulation.times.longest_gap_s.tolist() == pytest.approx([0.02, 0.0])
    assert met(simulation, tpot_s=0.018)[1].tolist() == [True, True]
    assert met(simulation, tbt_s=0.018)[2].tolist() == [False, True]
    assert met(simulation, tbt_s=0.0201)[2].tolist() == [True, True]


@pytest.mark.parametrize(("tbt_s", "late"), [(0.0105, 9), (0.0145, 6), (0.0205, 0)])
def test_gaps_above_the_tbt_are_counted_over_a_jump(tbt_s, late):
    # Iterations take 10 ms and 1 ms for each token of context: gaps of 12, 13 .. 20 ms.
    tables = linear_tables(10e-3, 0, 0, 0, 1e-3, max_batch=8, max_tokens=64)
    engine = EngineSettings(
        max_num_batched_tokens=64, max_num_seqs=8, async_scheduling=False
    )
    slo = Slo(RequestSlo(tbt_s=tbt_s))

    simulation = simulate(Trace([1], [10], [0.0]), fleet_of(tables, engine, 1), slo=slo)

    assert simulation.iteration_count == 10
    assert simulation.times.late_gaps.tolist() == [late]
