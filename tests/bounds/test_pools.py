"""Lower bounds of two pools, each by its part of the work alone."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from test_simulated import columns_of, random_case

from capplan.bounds.bound_check import Inputs, check_bound, inputs_digest
from capplan.bounds.certificate import pool_proof
from capplan.bounds.lower_bound import lower_bound
from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import DECODE, PREFILL, Deployment, Pool
from capplan.deployment.speculation import Speculation
from capplan.latency.contract import linear_tables
from capplan.planning.prove.pool_parts import Part
from capplan.simulator.checks import oversized
from capplan.simulator.simulate import simulate
from capplan.workload.slo import RequestSlo, Slo
from capplan.workload.trace import Trace

HAND_OFFS = ["nixl:block=0.1ms", "distserve:block=0.1ms", "nixl:block=1ms,threshold=20"]


def bound_of(trace, tables, engine, slo, attainment, part):
    columns = part.of(columns_of(trace, slo))
    return lower_bound(columns, attainment, tables, part.widest(engine))


def attained(trace, tables, engine, slo, counts, hand_off):
    """Return the share of requests that the pools of these counts serve in time."""
    replica = Configuration(engine, tables)
    deployment = Deployment(
        tuple(Pool(replica, count) for count in counts), hand_off=hand_off
    )
    limits = RequestSlo(slo[0], slo[1], e2e_s=slo[2])
    times = simulate(trace, deployment, slo=Slo(limits)).times
    met = (times.ttft_s <= slo[0]) & ~(times.tpot_s > slo[1]) & (times.e2e_s <= slo[2])
    return float(met.mean())


def case_of(seed):
    """Return a random case that the pools serve."""
    trace, tables, engine, slo, attainment = random_case(seed)
    engine = replace(engine, bounded_groups=0, bounded_blocks=0)
    if oversized(trace, engine).any():
        engine = replace(engine, kv_blocks=400)
    return trace, tables, engine, slo, attainment


@pytest.mark.parametrize("hand_off", HAND_OFFS)
@pytest.mark.parametrize("seed", range(4))
def test_no_two_pools_do_with_fewer_than_the_sum_of_their_bounds(seed, hand_off):
    """All counts up to 4 of each pool are tried, at the share that each attains."""
    trace, tables, engine, slo, _ = case_of(seed)

    for prompts in range(1, 5):
        for decoding in range(1, 5):
            counts = prompts, decoding
            share = attained(trace, tables, engine, slo, counts, hand_off)
            for role, count in zip((PREFILL, DECODE), counts, strict=True):
                part = Part(role, hand_off)
                if share > 0:
                    bound = bound_of(trace, tables, engine, slo, share, part)
                    assert bound.reachable
                    assert bound.replica_count <= count


@pytest.mark.parametrize("rates", [(1.0,), (0.7, 0.4, 0.1)])
@pytest.mark.parametrize("seed", range(4))
def test_no_two_pools_whose_requests_verify_drafts_do_with_fewer(seed, rates):
    """A request takes at least the iterations in which all its drafts are accepted."""
    trace, tables, engine, slo, _ = case_of(seed)
    speculation = Speculation("mtp", rates)
    seats = engine.max_num_batched_tokens // speculation.verified_tokens
    engine = replace(
        engine, speculation=speculation, max_num_seqs=min(seats, engine.max_num_seqs)
    )
    steps = speculation.least_iterations(trace.output_tokens)
    gaps = np.maximum(trace.output_tokens - 1, 1) / np.maximum(steps, 1)
    columns = columns_of(replace(trace, output_tokens=1 + steps), slo)
    columns["tpot_s"] = columns["tpot_s"] * gaps

    for prompts in range(1, 4):
        for decoding in range(1, 4):
            counts = prompts, decoding
            share = attained(trace, tables, engine, slo, counts, HAND_OFFS[0])
            for role, count in zip((PREFILL, DECODE), counts, strict=True):
                part = Part(role, HAND_OFFS[0])
                if share > 0:
                    bound = lower_bound(
                        part.of(columns),
                        share,
                        speculation.tables(tables),
                        part.widest(engine),
                    )
                    assert bound.reachable
                    assert bound.replica_count <= count


@pytest.mark.slow
@pytest.mark.parametrize("hand_off", HAND_OFFS)
@pytest.mark.parametrize("seed", range(100, 160))
def test_many_two_pools_do_not_either(seed, hand_off):
    test_no_two_pools_do_with_fewer_than_the_sum_of_their_bounds(seed, hand_off)


@pytest.mark.parametrize("seed", range(10, 20))
def test_the_fewest_found_by_trying_all_are_no_fewer_than_the_bounds(seed):
    trace, tables, engine, slo, attainment = case_of(seed)
    bounds = [
        bound_of(trace, tables, engine, slo, attainment, Part(role, HAND_OFFS[0]))
        for role in (PREFILL, DECODE)
    ]

    enough = [
        (prompts, decoding)
        for prompts in range(1, 7)
        for decoding in range(1, 7)
        if attained(trace, tables, engine, slo, (prompts, decoding), HAND_OFFS[0])
        >= attainment
    ]

    if not all(bound.reachable for bound in bounds):
        assert not enough
    for prompts, decoding in enough:
        assert prompts >= bounds[0].replica_count
        assert decoding >= bounds[1].replica_count


FORTY = Trace(np.full(40, 100), np.full(40, 11), np.zeros(40))
"""40 prompts of 100 tokens at once, which 10 tokens follow."""
ENGINE = EngineSettings(max_num_batched_tokens=1000, max_num_seqs=8, kv_blocks=1000)


def test_prompts_take_their_time_and_no_more():
    # 1 ms a token: 4 s of prompts, due in 1 s, are 4 replicas; decoding is the others'.
    tables = linear_tables(1e-9, 1e-3, 0, 1e-3, 0, max_batch=8, max_tokens=1000)
    part = Part(PREFILL, "nixl")

    bound = bound_of(FORTY, tables, ENGINE, (1.0, 1.0, np.inf), 1.0, part)

    assert bound.replica_count == 4
    assert 3.8 < bound.work_s <= 4.0  # the price is proven for blocks of 5 % of tokens


def test_decoding_takes_its_steps_and_no_prompt():
    # 400 steps of 9 ms, each in an iteration of its own, due in 1 s + 10 x 0.1 s: 2.
    engine = replace(ENGINE, max_num_seqs=1)
    tables = linear_tables(1e-9, 1.0, 0, 9e-3, 0, max_batch=8, max_tokens=1000)
    part = Part(DECODE, "nixl")

    bound = bound_of(FORTY, tables, engine, (1.0, 0.1, np.inf), 1.0, part)

    assert bound.work_s == pytest.approx(3.6, rel=1e-3)
    assert bound.replica_count == 2


def test_prompts_that_either_pool_may_compute_ask_nothing_of_the_first():
    tables = linear_tables(1e-9, 1e-3, 0, 1e-3, 0, max_batch=8, max_tokens=1000)
    part = Part(PREFILL, "nixl:threshold=101")

    bound = bound_of(FORTY, tables, ENGINE, (1.0, 1.0, np.inf), 1.0, part)

    assert bound.replica_count == 1


@pytest.mark.parametrize("role", [PREFILL, DECODE])
def test_the_check_accepts_a_bound_of_a_pool_and_refuses_more_work(role):
    trace, tables, engine, slo, attainment = case_of(3)
    part = Part(role, "nixl")
    inputs = Inputs(
        part.of(columns_of(trace, slo)),
        tables._asdict(),
        part.widest(engine).document(),
    )
    bound = bound_of(trace, tables, engine, slo, attainment, part)
    block = pool_proof(asdict(bound), inputs, [attainment], role=role)

    accepted = check_bound(block, inputs)
    block["bound"]["work_s"] *= 1.01
    refused = check_bound(block, inputs)

    assert accepted == []
    assert "of work" in refused[0]


def test_another_column_of_prompts_handed_over_is_another_digest():
    trace, tables, engine, slo, _ = case_of(3)
    columns = columns_of(trace, slo)
    engines = tables._asdict(), engine.document()
    whole, apart = (
        Inputs(part.of(columns), *engines) for part in (Part(), Part(DECODE, "nixl"))
    )

    assert inputs_digest(whole) != inputs_digest(apart)
