"""Ranks that step together: as their judge, as worked by hand, and by their laws."""

from dataclasses import replace

import numpy as np
import pytest
from cases import EXAMPLES, cases, for_scheduler
from group_cases import (
    GroupCase,
    apart,
    group_cases,
    verifying_cases,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from judge import Verdict
from judge_group import judge_groups
from state_cases import state_cases
from test_against_judge import assert_same
from test_speculative import speculative_cases

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment
from capplan.errors import InputError
from capplan.latency.contract import linear_tables
from capplan.latency.rank_tables import RankTables
from capplan.simulator.engine.group_queue import choose_rank
from capplan.simulator.fleet.pool_state import Options
from capplan.simulator.fleet.serving_pool import ServingPool
from capplan.simulator.jit import from_python
from capplan.simulator.kv.block_table import add_hash
from capplan.simulator.kv.kvcache import take_record
from capplan.simulator.routers import ROUTERS, router
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from capplan.workload.users import Users
from tests.simulator.drivers.test_closed_loop import assert_law

US = 1e-6


@pytest.mark.thorough
@settings(deadline=None, max_examples=3 * EXAMPLES)
@given(case=group_cases(intervals=4))
def test_every_request_gets_the_times_of_the_step_by_step_judge(case):
    simulation = case.simulated()

    requests, chosen, _ = judge_groups(
        case.case.trace,
        case.tables,
        case.graph_sizes,
        case.case.engine,
        case.case.replica_count,
    )

    assert_same(simulation, Verdict(requests, chosen, []))


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["sglang", "trtllm"])
@settings(deadline=None, max_examples=4 * EXAMPLES)
@given(case=group_cases(), seed=st.integers(0, 2**20))
def test_ranks_of_other_engines_meet_their_judge(name, case, seed):
    scheduler, single = for_scheduler(name, case.case, seed)
    case = case._replace(case=single)

    simulation = case.simulated(scheduler)

    requests, chosen, _ = judge_groups(
        single.trace,
        case.tables,
        case.graph_sizes,
        single.engine,
        single.replica_count,
        scheduler,
    )
    assert_same(simulation, Verdict(requests, chosen, []))


@pytest.mark.thorough
@settings(deadline=None, max_examples=3 * EXAMPLES)
@given(case=verifying_cases(), seed=st.integers(0, 9))
def test_ranks_that_verify_drafts_meet_their_judge(case, seed):
    simulation = case.simulated(seed=seed)

    requests, chosen, _ = judge_groups(
        case.case.trace,
        case.tables,
        case.graph_sizes,
        case.case.engine,
        case.case.replica_count,
        seed=seed,
    )

    assert_same(simulation, Verdict(requests, chosen, []))


@pytest.mark.parametrize("drafts", [False, True])
@settings(deadline=None, max_examples=10)
@given(data=st.data(), seed=st.integers(0, 9), jump=st.integers(1, 9))
def test_ranks_that_keep_states_meet_their_judge(drafts, data, seed, jump):
    case = data.draw(state_cases(drafts))

    found = [case.simulated(seed=seed, longest_jump=most) for most in (10**6, jump)]

    requests, chosen, _ = judge_groups(
        case.case.trace,
        case.tables,
        case.graph_sizes,
        case.case.engine,
        case.case.replica_count,
        seed=seed,
    )
    for simulation in found:
        assert_same(simulation, Verdict(requests, chosen, []))


# Hand cases: A = 1000 + 10 b + 0.01 L, 2 more per prompt token; X = 2000 + 5 N. [us]


def worked(ranks: int = 2, graph_sizes: tuple[int, ...] = (), **given) -> Configuration:
    most = 32_768
    rank = linear_tables(
        1000 * US, 2 * US, 0, 10 * US, 0.01 * US, max_batch=32, max_tokens=most
    )
    experts_s = (2000 + 5.0 * np.arange(ranks * most + 1)) * US
    nothing_s = np.zeros(most + 1)
    tables = RankTables(rank, ranks, experts_s, experts_s, nothing_s, nothing_s)
    engine = EngineSettings(
        **{
            "max_num_batched_tokens": most,
            "max_num_seqs": 32,
            "kv_blocks": 20_000,
            "async_scheduling": False,
            "data_parallel_size": ranks,
            "dp_balance": "round-robin",
            **given,
        }
    )
    return Configuration(engine, rank, rank_tables=tables, graph_sizes=graph_sizes)


def served(configuration: Configuration, rows: list[tuple[float, int, int]]):
    """Serve requests: arrival [s], prompt and output [tokens]."""
    arrival_s, prompts, outputs = map(np.array, zip(*rows, strict=True))
    trace = Trace(prompts, outputs, arrival_s)
    return simulate(trace, Deployment.of(configuration, 1)).times


def decoding_us(counts, contexts, iterations, graph_sizes=()):
    """Return how long ranks decode with these batches and contexts at the start."""
    configuration = worked(2, graph_sizes)
    prompts = [
        [context // b - 1 + (context % b > k) for k in range(b)]
        for b, context in zip(counts, contexts, strict=True)
    ]
    rows = []
    for k in range(max(counts)):
        for own in prompts:
            # one that ends with its prompt keeps the turns
            prompt, output = (own[k], iterations + 1) if k < len(own) else (1, 1)
            rows.append((0.0, prompt, output))
    times = served(configuration, rows)
    return (times.finish_s - times.first_token_s).max() / US


def test_the_slower_rank_leads_throughout():
    assert decoding_us((3, 2), (3_000, 8_000), 100) == pytest.approx(312_599.0)


def test_another_rank_overtakes_as_contexts_grow():
    assert decoding_us((20, 2), (2_000, 20_100), 10) == pytest.approx(33_312.3)


def test_every_rank_is_padded_to_the_graph_of_the_largest():
    took_us = decoding_us((20, 2), (2_000, 20_100), 10, (1, 2, 4, 8, 16, 24))

    assert took_us == pytest.approx(34_612.3)


def test_a_prompt_on_one_rank_is_waited_for_by_all():
    both = [(0.0, 1, 1), (0.0, 3_998, 20)]  # on ranks 0 and 1

    times = served(worked(), [*both, *both, (60_000 * US, 1_000, 1)])

    took_us = max(1_000 + 2 * 1_000, 1_000 + 10 * 2 + 80) + 2_000 + 5 * 1_002
    assert took_us == 10_010
    last = (times.first_token_s - times.scheduled_s)[4]
    assert last / US == pytest.approx(took_us)
    assert times.longest_gap_s[[1, 3]] / US == pytest.approx([took_us, took_us])


def pool_of(configuration: Configuration) -> ServingPool:
    pool = Deployment.of(configuration, 1).pool
    return ServingPool(pool, "jsq", Options(bin_width_s=0.0, chunk=4))


def test_ties_between_ranks_go_around():
    state = pool_of(worked(dp_balance="vllm")).state
    chosen = []
    for _ in range(4):
        rank = from_python(choose_rank)(state, 0)
        state.ranks[rank].outstanding += 1
        chosen.append(rank)

    assert chosen == [0, 1, 0, 1]


def test_a_rank_with_little_kv_left_and_a_queue_is_avoided():
    state = pool_of(worked(dp_balance="vllm")).state
    first, second = state.ranks
    first.outstanding, first.seen_waiting, first.seen_kv_use = 4, 2, 0.9  # 8.8
    second.outstanding = 7

    assert from_python(choose_rank)(state, 0) == 1


# Laws


@pytest.mark.thorough
@settings(deadline=None, max_examples=2 * EXAMPLES)
@given(case=group_cases(), seed=st.integers(0, 2**20))
def test_jumps_end_where_single_steps_do(case, seed):
    jumps = case.simulated(seed=seed)
    steps = case.simulated(seed=seed, longest_jump=1)

    assert jumps.times.replica.tolist() == steps.times.replica.tolist()
    np.testing.assert_allclose(
        jumps.times.finish_s, steps.times.finish_s, rtol=0, atol=1e-9
    )


@pytest.mark.thorough
@settings(deadline=None, max_examples=2 * EXAMPLES)
@given(case=cases(replicas=1))
def test_one_rank_is_a_replica(case):
    tokens = len(case.tables.fused_s)
    nothing_s = np.zeros(tokens)
    tables = RankTables(case.tables, 1, *[nothing_s] * 4)

    group = GroupCase(case, tables, ()).simulated().times

    alone = case.simulated("jsq").times
    for name in ("scheduled_s", "first_token_s", "finish_s", "longest_gap_s"):
        assert getattr(group, name).tolist() == getattr(alone, name).tolist()
    assert group.preemptions.tolist() == alone.preemptions.tolist()


FIGURES = ("scheduled_s", "first_token_s", "finish_s", "longest_gap_s", "preemptions")
REPORTS = st.sampled_from(["end", "launch"])


@pytest.mark.thorough
@settings(deadline=None, max_examples=2 * EXAMPLES)
@given(case=st.one_of(cases(), speculative_cases()), report=REPORTS)
def test_pools_of_one_rank_are_pools_of_replicas(case, report):
    nothing_s = np.zeros(8 * len(case.tables.fused_s))
    tables = RankTables(case.tables, 1, *[nothing_s] * 4)
    alone = Configuration(case.engine, case.tables)
    group = replace(alone, rank_tables=tables)

    found, expected = (
        simulate(case.trace, apart(each, 2, case.replica_count, report)).times
        for each in (group, alone)
    )

    for name in FIGURES:
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), rtol=0, atol=1e-9
        )


@pytest.mark.thorough
@settings(deadline=None, max_examples=2 * EXAMPLES)
@given(case=st.one_of(group_cases(), verifying_cases()), report=REPORTS)
def test_pools_of_ranks_jump_as_they_step(case, report):
    fleet = apart(case.configuration(), 1, case.case.replica_count, report)

    jumped, stepped = (
        simulate(case.case.trace, fleet, longest_jump=jump).times for jump in (2**62, 1)
    )

    assert np.isfinite(jumped.finish_s).all()
    for name in FIGURES:
        np.testing.assert_allclose(
            getattr(jumped, name), getattr(stepped, name), rtol=0, atol=1e-9
        )


@pytest.mark.thorough
@settings(deadline=None, max_examples=2 * EXAMPLES)
@given(case=group_cases(), seed=st.integers(0, 2**20), users=st.integers(1, 12))
def test_a_closed_loop_is_the_open_simulation_of_its_arrivals(case, seed, users):
    rng = np.random.default_rng(seed)
    requests = replace(case.case.trace, arrival_s=None)
    trace = Users(users, 0.05, True).asking(requests, rng)
    fleet = Deployment.of(case.configuration(), case.case.replica_count, "jsq")

    assert_law(trace, fleet, None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"prefill_schedule_interval": 0}, "interval is 0; expected >= 1"),
        ({"data_parallel_size": 3}, "the latency is of 2 ranks"),
        ({"data_parallel_size": 0}, "data_parallel_size is 0; expected >= 1"),
        ({"dp_balance": "luck"}, "expected one of vllm, vllm-0.1x, round-robin"),
        (
            {"decode_context_parallel_size": 2},
            "data_parallel_size 2 with decode_context",
        ),
    ],
)
def test_ranks_that_cannot_be(change, said):
    with pytest.raises(InputError, match=said):
        served(worked(2, (), **change), [(0.0, 1, 1)])


@pytest.mark.parametrize(
    ("router", "more"),
    [
        ("best-fit", {}),
        ("dynamo-kv", {}),
        ("llumnix", {}),
        ("jsq", {"rebalancer": "llumnix"}),
        ("jsq", {"dispatcher": "aladdin"}),
    ],
)
def test_what_reads_or_moves_requests_of_single_schedulers_is_refused(router, more):
    trace = Trace(np.ones(1, int), np.ones(1, int), np.zeros(1))

    with pytest.raises(InputError, match="data_parallel_size 2 with"):
        simulate(trace, replace(Deployment.of(worked(), 2, router), **more))


@pytest.mark.parametrize(
    "router", sorted(set(ROUTERS) - {"best-fit", "dynamo-kv", "llumnix"})
)
def test_routers_that_read_counts_serve_groups(router):
    columns = {"session": np.arange(20) % 6}
    trace = Trace(np.full(20, 8), np.full(20, 4), np.arange(20) * 0.01, **columns)
    simulation = simulate(trace, Deployment.of(worked(), 3, router))

    assert set(simulation.times.replica) <= {0, 1, 2}
    assert (simulation.times.finish_s > 0).all()


def test_llm_d_sees_the_prefix_that_a_rank_of_a_group_has():
    deployment = Deployment.of(worked(prefix_caching=True), 2, "llm-d")
    pool = ServingPool(
        deployment.pool,
        "llm-d",
        Options(bin_width_s=1.0, chunk=9),
    )
    state, slot = pool.state, 0
    ranks = state._replace(replicas=state.ranks)
    label = from_python(take_record)(ranks, 1, 7, 1)  # on the first group's second
    from_python(add_hash)(ranks, 1, label, 7, 0, False)
    state.requests[slot].prompt_tokens = state.requests[slot].known_tokens = 40
    state.requests[slot].prefix_tokens, state.requests[slot].prefix_group = 32, 7
    unused = state.spare.copy()

    for draw in (0.0, 0.9):
        state.draws[0] = draw
        assert router("llm-d").route(state, slot, 0.0) == 0

    for row, rank in enumerate(state.ranks):
        count = rank["spare_count"]
        assert state.spare[row, :count].tolist() == unused[row, :count].tolist()


def test_ranks_without_a_profile_of_them():
    configuration = replace(worked(), rank_tables=None)
    with pytest.raises(InputError, match="expected a profile of them"):
        served(configuration, [(0.0, 1, 1)])
