"""No simulated schedule needs fewer replicas than its bound."""

from dataclasses import replace

import numpy as np
import pytest

from capplan.bounds.bound_check import COLUMNS
from capplan.bounds.lower_bound import lower_bound
from capplan.bounds.prices import (
    IterationPrices,
    engine_bounds,
    fit_prices,
    prove_prefill_price,
)
from capplan.deployment.adapters import Adapters
from capplan.deployment.engine import EngineSettings
from capplan.deployment.images import Images
from capplan.deployment.pipeline import Pipeline
from capplan.latency.contract import LatencyTables
from capplan.planning.configure.scheduling import widest_iterations
from capplan.simulator.checks import oversized, unserved, without_unsupported
from capplan.simulator.schedulers import SCHEDULERS, parse_scheduler
from capplan.simulator.simulate import simulate
from capplan.workload.slo import RequestSlo, Slo
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

BATCH, TOKENS = 32, 128


def random_tables(generator):
    """Return tables with kinks, steps and saturation, as measured ones have."""
    b, n = np.arange(BATCH + 1.0), np.arange(TOKENS + 1.0)
    fixed_s = generator.uniform(1e-3, 8e-3)
    slope_s = generator.uniform(1e-5, 6e-4)
    decode_s = fixed_s + slope_s * b
    if generator.random() < 0.4:
        decode_s = fixed_s + slope_s * BATCH * (1 - np.exp(-b / 6))
    if generator.random() < 0.4:
        decode_s = decode_s[np.minimum((np.ceil(b / 8) * 8).astype(int), BATCH)]
    kink = generator.integers(1, TOKENS)
    token_s = generator.uniform(1e-5, 3e-4)
    fused_s = fixed_s * generator.uniform(0.7, 1.3) + token_s * n
    fused_s = fused_s + generator.choice([0, 2e-4]) * np.maximum(n - kink, 0)
    return LatencyTables(
        decode_s=decode_s,
        decode_context_s=generator.uniform(0, 2e-6) * (1 + 0.3 / np.maximum(b, 1)),
        fused_s=fused_s,
        fused_decode_s=generator.uniform(-0.9, 1) * token_s * b,
        fused_context_s=np.full(BATCH + 1, generator.uniform(0, 2e-6)),
        attention_s=generator.choice([0.0, 1e-7]),
        request_s=generator.choice([0.0, 2e-3]),
    )


def random_case(seed):
    generator = np.random.default_rng(seed)
    n = int(generator.integers(8, 150))
    engine = EngineSettings(
        max_num_batched_tokens=int(generator.integers(BATCH, TOKENS + 1)),
        max_num_seqs=int(generator.integers(1, BATCH + 1)),
        block_size=4,
        kv_blocks=int(generator.integers(30, 400)),
        async_scheduling=bool(generator.random() < 0.5),
        bounded_groups=seed % 3,
        bounded_blocks=2,
    )
    trace = Trace(
        prompt_tokens=generator.integers(1, 60, n),
        output_tokens=np.maximum(1, generator.geometric(1 / 20, n) % 50),
        arrival_s=np.sort(generator.random(n) * generator.uniform(0.05, 3)),
    )
    slo = (generator.uniform(0.02, 0.6), generator.uniform(4e-3, 5e-2), np.inf)
    if generator.random() < 0.3:
        slo = (np.inf, np.inf, generator.uniform(0.1, 1.5))
    attainment = float(generator.choice([1.0, 0.95, 0.8]))
    return trace, random_tables(generator), engine, slo, attainment


OTHERS = sorted(set(SCHEDULERS) - {"vllm-v1"})


def random_case_of(name, seed):
    """Return a case of which the scheduler serves all requests."""
    trace, tables, engine, slo, _ = random_case(seed)
    generator = np.random.default_rng(seed)
    rules = parse_scheduler(name).rules
    given = [
        f"{knob}={generator.integers(0, 2)}"
        for knob, limits in rules.settings.items()
        if (limits.least, limits.most) == (0, 1)
    ]
    given += ["max_len=112"] if "max_len" in rules.settings else []
    given += ["s_pf=24"] if "s_pf" in rules.settings else []
    asked = f"{name}:{','.join(given)}" if given else name
    engine = replace(engine, scheduler=parse_scheduler(asked), kv_block_bytes=1000)
    engine = without_unsupported(engine)
    if engine.kv_blocks < 100:
        engine = replace(engine, kv_blocks=100)
    trace = trace.select(np.flatnonzero(~unserved(trace, engine)))
    return trace, tables, engine, slo


def columns_of(trace, slo):
    """Return the columns of a bound's requests, of which none may hit a prefix."""
    n = len(trace)
    endless = [np.full(n, limit) for limit in slo]
    none = np.zeros(n, np.int64)
    rest = (trace.arrival_s, trace.prompt_tokens, trace.output_tokens, none)
    return dict(zip(COLUMNS, (*rest, *endless, none), strict=True))


def attained(trace, tables, engine, replicas, slo):
    # A limit on each gap changes the order of some schedulers, and no bound.
    limits = RequestSlo(slo[0], slo[1], tbt_s=3 * slo[1], e2e_s=slo[2])
    times = simulate(trace, fleet_of(tables, engine, replicas), slo=Slo(limits)).times
    met = (times.ttft_s <= slo[0]) & ~(times.tpot_s > slo[1]) & (times.e2e_s <= slo[2])
    return met.mean()


def with_images(trace, engine, seed):
    """Return the requests with images, and an engine that encodes few at once."""
    generator = np.random.default_rng(seed)
    tokens = generator.integers(0, trace.prompt_tokens + 1)
    count = np.minimum(generator.integers(1, 4, len(trace)), tokens)
    trace = replace(trace, image_tokens=tokens * (count > 0), images=count)
    images = Images(encoder_cache_size=60, max_image_tokens=60, image_s=1e-3)
    return trace, replace(engine, images=images)


@pytest.mark.parametrize("seed", range(12))
def test_one_replica_fewer_than_the_bound_fails_in_the_simulator(seed):
    check_that_fewer_fail(*random_case(seed))


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(12))
def test_one_replica_fewer_than_the_bound_fails_with_images(seed):
    trace, tables, engine, slo, attainment = random_case(seed)
    trace, engine = with_images(trace, engine, seed)

    check_that_fewer_fail(trace, tables, engine, slo, attainment)


def check_that_fewer_fail(trace, tables, engine, slo, attainment):
    if oversized(trace, engine).any():
        engine = replace(engine, kv_blocks=400)
    n = len(trace)

    bound = lower_bound(columns_of(trace, slo), attainment, tables, engine)

    fewer = range(1, bound.replica_count if bound.reachable else n)
    for replicas in [*fewer][-3:]:
        share = attained(trace, tables, engine, replicas, slo)
        assert share < attainment


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(200, 208))
def test_a_simulated_schedule_has_no_fewer_replicas_than_the_bound(seed):
    check_bound_of_simulated(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1300))
def test_many_simulated_schedules_have_no_fewer_replicas_than_the_bound(seed):
    check_bound_of_simulated(seed)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(300, 303))
@pytest.mark.parametrize("name", OTHERS)
def test_no_scheduler_has_fewer_replicas_than_the_bound(name, seed):
    check_bound_of(*random_case_of(name, seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2000, 2060))
@pytest.mark.parametrize("name", OTHERS)
def test_many_schedules_of_others_have_no_fewer_replicas_than_the_bound(name, seed):
    check_bound_of(*random_case_of(name, seed))


def piped(seed):
    """Return a case whose replicas are pipelines."""
    trace, tables, engine, slo, _ = random_case(seed)
    generator = np.random.default_rng(seed)
    hops = {"hop_s": generator.choice([0.0, 1e-3]), "hop_token_s": 1e-5}
    pipeline = Pipeline(int(generator.integers(2, 5)), **hops)
    engine = replace(engine, async_scheduling=True, pipeline=pipeline)
    if oversized(trace, engine).any():
        engine = replace(engine, kv_blocks=400)
    return trace, tables, engine, slo


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(400, 406))
def test_no_pipelines_are_fewer_than_the_bound(seed):
    check_bound_of(*piped(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3000, 3200))
def test_many_pipelines_are_no_fewer_than_the_bound(seed):
    check_bound_of(*piped(seed))


def adapted(seed):
    """Return a case whose requests are of more adapters than the engine has slots."""
    trace, tables, engine, slo, _ = random_case(seed)
    generator = np.random.default_rng(seed)
    adapters = Adapters(
        max_loras=2,
        max_cpu_loras=3,
        slowdown=generator.choice([0.0, 0.2]),
        load_s=generator.choice([0.0, 5e-3]),
        fetch_s=generator.choice([0.0, 2e-2]),
    )
    trace = replace(trace, adapter=generator.integers(-1, 5, len(trace)))
    return trace, tables, replace(engine, adapters=adapters), slo


def keeping_states(seed):
    """Return a case of an LLM with recurrent states, which are cached."""
    trace, tables, engine, slo, _ = random_case(seed)
    states = {"bounded_groups": 1 + seed % 2, "state_groups": 1 + seed % 2}
    return trace, tables, replace(engine, prefix_caching=True, **states), slo


@pytest.mark.thorough
@pytest.mark.parametrize("case", [adapted, keeping_states])
@pytest.mark.parametrize("seed", range(500, 506))
def test_no_adapters_or_states_are_fewer_than_the_bound(case, seed):
    trace, tables, engine, slo = case(seed)
    if oversized(trace, engine).any():
        engine = replace(engine, kv_blocks=400)
    check_bound_of(trace, tables, engine, slo)


def check_bound_of_simulated(seed):
    trace, tables, engine, slo, _ = random_case(seed)
    if oversized(trace, engine).any():
        engine = replace(engine, kv_blocks=400)
    check_bound_of(trace, tables, engine, slo)


def check_bound_of(trace, tables, engine, slo):
    # The simulator continues the tables in the same way; those of stages are less.
    unlimited, widest = widest_iterations(engine, tables)
    timed = widest if engine.pipeline is None else tables
    ttft_s, tpot_s, e2e_s = slo
    # A token passes all stages: planning/prove/proof.py.
    limits = ttft_s, tpot_s / engine.pipeline_parallel_size, e2e_s

    for replicas in (1, 2, 4):
        share = attained(trace, timed, engine, replicas, slo)
        if share > 0:
            columns = columns_of(trace, limits)
            bound = lower_bound(columns, share, widest, unlimited)
            assert bound.reachable
            assert bound.replica_count <= replicas


@pytest.mark.parametrize("seed", range(25))
def test_no_iteration_takes_less_than_the_proven_prices(seed, monkeypatch):
    generator = np.random.default_rng(seed)
    tables = random_tables(generator)
    engine = EngineSettings(TOKENS, BATCH, 4, int(generator.integers(20, 400)))
    limits = engine_bounds(engine)
    share, cap = generator.random(), float(generator.integers(2, 40))
    slope_s = generator.uniform(0, 4e-4)
    fitted = fit_prices(tables, limits, generator.integers(1, BATCH), 20.0, slope_s)

    prices = prove_prefill_price(tables, limits, fitted, share, cap)

    monkeypatch.setattr(
        "capplan.bounds.prices._AT_ONCE", int(generator.integers(200, 900))
    )
    assert prove_prefill_price(tables, limits, fitted, share, cap) == prices
    b = generator.integers(0, min(BATCH, limits.batch) + 1, 4000)
    new = generator.integers(1, TOKENS - BATCH + 1, 4000)
    most = np.minimum(limits.context, 60.0 * b)
    context = np.minimum(2 * b + generator.random(4000) * most, limits.context)
    b = np.minimum(b, (context // 2).astype(int))
    over_s, spread_s, decode_s = fused_parts(tables, prices, b, new, context, cap)
    left = np.where(b > 0, 1 - spread_s / np.maximum(decode_s + over_s, 1e-300), 1.0)
    charged_s = over_s + np.where(b > 0, share, 1.0) * prices.fixed_s * left
    assert (over_s >= -1e-12).all()
    assert (charged_s >= prices.prefill_s * new - 1e-12).all()
    alone = b[b > 0]
    decoding_s = (
        tables.decode_s[alone] + tables.decode_context_s[alone] * context[b > 0]
    )
    price_s = prices.fixed_s + prices.decode_s * alone
    assert (decoding_s >= price_s + prices.context_s * context[b > 0] - 1e-12).all()


def fused_parts(tables, prices: IterationPrices, b, new, context, cap):
    """Return P, V and D of iterations with prefill."""
    decode_s = prices.decode_s * b + prices.context_s * context
    spread_s = prices.decode_s * b + prices.context_s * np.minimum(context, cap * b)
    time_s = (
        tables.fused_s[new + b]
        + tables.fused_decode_s[b]
        + tables.fused_context_s[b] * context
    )
    return time_s - prices.fixed_s - decode_s, spread_s, decode_s
