"""The proof of a plan: lower bound, certificate, and both made again to verify it."""

import warnings
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from capplan.bounds.bound_check import COLUMNS, Inputs
from capplan.bounds.certificate import Reproduction, certificate, pool_proof, pools_of
from capplan.bounds.lower_bound import Bound, lower_bound
from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import DECODE, PREFILL, one_fewer
from capplan.errors import CapplanWarning
from capplan.latency.contract import LatencyTables
from capplan.llm.layout import Layout
from capplan.planning.configure.deployments import of_counts
from capplan.planning.configure.excluded import Excluded
from capplan.planning.configure.scheduling import widest_alone, widest_of_replica
from capplan.planning.evaluate.candidate import Candidate, PoolPlan
from capplan.planning.evaluate.inputs import (
    PlanInputs,
    configuration_of,
    plan_inputs,
    prefilling,
)
from capplan.planning.evaluate.run import run_of
from capplan.planning.load.session_load import SessionLoad
from capplan.planning.load.unbatched import unbatched
from capplan.planning.prove.chosen import settings_of
from capplan.planning.prove.pool_parts import WHOLE, Columns, Part
from capplan.planning.settings.groups import MOST_REPLICAS

BOUND_SAMPLES = 3
"""Drawn samples whose lower bounds are taken; the smallest one is stated."""
MIX = -1
"""Stands for no sample but the mix of requests, all of which are served."""
_LONGEST = 10
"""Stays of the longest request alone that the mix is served in, at least."""


def bound_inputs(
    inputs: PlanInputs,
    configuration: Configuration,
    sample: int = 0,
    part: Part = WHOLE,
    widest: tuple[EngineSettings, LatencyTables] | None = None,
) -> Inputs:
    """Return the inputs of a configuration's lower bound on one sample, or on the mix.

    Requests of the warm-up are left out, as they are where attainment is counted.
    """
    engine, tables = widest or widest_of_replica(configuration)
    if sample == MIX:
        columns = _mix(inputs, configuration)
    else:
        columns = _sampled(inputs, engine, sample)
    return Inputs(part.of(columns), tables._asdict(), part.widest(engine).document())


def _sampled(inputs: PlanInputs, engine: EngineSettings, sample: int) -> Columns:
    """Return the counted requests of a sample."""
    trace = inputs.load.sample(sample)
    counted = inputs.load.counted(sample)
    arrival_s = trace.arrival_s
    limits_s = inputs.slo.columns(trace.request_class, trace.class_names)
    if arrival_s is None:
        # Users ask less of a slow fleet: no request is due at a time that is known.
        arrival_s = np.zeros(len(trace))
        limits_s = (np.full(len(trace), np.inf),) * len(limits_s)
    ttft_s, tpot_s, tbt_s, e2e_s = limits_s
    cached = trace.prefix_tokens * int(engine.prefix_caching)
    # The mean gap is at most the longest.
    output_tokens, gap_s = _as_iterations(
        engine, trace.output_tokens, np.minimum(tpot_s, tbt_s)
    )
    columns = (
        arrival_s,
        trace.prompt_tokens,
        output_tokens,
        cached,
        ttft_s,
        gap_s,
        e2e_s,
        inputs.slo.group_of(trace.request_class, trace.class_names),
    )
    named = zip(COLUMNS, columns, strict=True)
    return {name: column[counted] for name, column in named}


def _as_iterations(
    engine: EngineSettings, output_tokens: np.ndarray, gap_s: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return requests as ones of which each step is needed, and a limit on its time.

    With drafts a request takes at least the iterations in which all are accepted, each
    at the contexts of the first tokens, in the time that its tokens have between the
    first and the last. In a pipeline a token passes all stages after the one before, so
    that a step has its part of the gap on each.
    """
    if engine.speculation is None:
        return output_tokens, gap_s / engine.pipeline_parallel_size
    steps = engine.speculation.least_iterations(output_tokens)
    each = np.maximum(output_tokens - 1, 1) / np.maximum(steps, 1)
    return 1 + steps, gap_s * each


def _mix(inputs: PlanInputs, configuration: Configuration) -> Columns:
    """Return the requests of the mix, all served in the time in which they arrive.

    They arrive at once, which asks for less. The mix is repeated until the time is long
    for each request.
    """
    mix, rate_per_s = inputs.load.base, _least_per_s(inputs)
    engine, tables = widest_alone(configuration)
    alone_s = float(unbatched(mix, tables, engine).e2e_s.max())
    times = max(1, int(np.ceil(_LONGEST * alone_s * rate_per_s / len(mix))))
    n = times * len(mix)
    endless = np.full(n, np.inf)
    columns = (
        np.zeros(n),
        np.tile(mix.prompt_tokens, times),
        np.tile(_as_iterations(engine, mix.output_tokens, endless[:1])[0], times),
        np.tile(mix.prefix_tokens * int(engine.prefix_caching), times),
        endless,
        endless,
        np.full(n, n / rate_per_s + tables.request_s),
        np.zeros(n, np.int64),
    )
    return dict(zip(COLUMNS, columns, strict=True))


def _least_per_s(inputs: PlanInputs) -> float:
    """Return at which rate requests of the mix come at least; 0 where none is known."""
    load = inputs.load
    if isinstance(load, SessionLoad):
        return load.least_per_s(inputs.slo)
    return load.rate_per_s if load.is_open else 0.0


def target_of(inputs: PlanInputs, sample: int) -> float:
    """Return the share of a sample's counted requests that must meet the SLO."""
    sample = max(sample, 0)
    trace = inputs.load.sample(sample)
    counted = inputs.load.counted(sample)
    return inputs.slo.overall_target(trace.request_class[counted], trace.class_names)


def group_targets(inputs: PlanInputs, sample: int = 0) -> tuple[float, ...]:
    """Return the share of each group's requests that the bound is about.

    Of a sample those that must meet the SLO; of the mix all, which are to be served.
    """
    if sample == MIX:
        return (1.0,)
    groups = inputs.slo.groups(inputs.trace.class_names)
    return tuple(group.target for group in groups)


def sample_bound(
    inputs: PlanInputs, configuration: Configuration, sample: int, part: Part = WHOLE
) -> Bound:
    """Return the lower bound of a configuration's replicas on one sample."""
    if part.mixes:
        note = f"hand-off {part.hand_off}: either pool may serve whole requests"
        return Bound(1, 0.0, 0.0, 0.0, 0, "none", note)
    engine, tables = widest = widest_of_replica(configuration)
    bounded = bound_inputs(inputs, configuration, sample, part, widest)
    targets = group_targets(inputs, sample)
    bound = lower_bound(bounded.columns, targets, tables, part.widest(engine))
    if sample == MIX:
        return replace(bound, note=_of_mix(inputs, bound))
    if not inputs.load.is_open:
        return replace(bound, note="none is known: users ask less of a slow fleet")
    return bound


def _of_mix(inputs: PlanInputs, bound: Bound) -> str:
    """Return how the bound of a mix comes about; of sessions the most of a replica."""
    load, count, rate = inputs.load, bound.replica_count, f"{_least_per_s(inputs):.3g}"
    used = bound.work_s / (bound.window_end_s - bound.window_start_s)
    asked, cache, most = f"{rate} requests/s of this mix", "", ""
    if isinstance(load, SessionLoad):
        asked = f"{load.process}, {rate} turns/s where each stays as long as it may,"
        cache = " with an endless cache"
        if load.sessions.lanes is not None:
            most = f"; no replica keeps up with over {load.sessions.lanes / used:,.0f}"
    return (
        f"{asked} need {used:.3g} s of replica time a second{cache}: at least "
        f"{count:,} replica{'s' * (count > 1)}{most}"
    )


def bound_of(
    inputs: PlanInputs, configuration: Configuration, part: Part = WHOLE
) -> tuple[Bound, int]:
    """Return the lower bound of a configuration's replicas, and its sample.

    Fewer replicas than the smallest bound of several samples miss the SLO on each of
    them, whatever the scheduler. Fewer than that of the mix serve less of drawn
    arrivals than comes. It is known to later searches of the same inputs.
    """
    of = inputs.load, inputs.slo, configuration.tables
    key = *map(id, of), configuration.engine, part
    if key not in inputs.bounds:
        inputs.bounds[key] = _least_bound(inputs, configuration, part), of
    return inputs.bounds[key][0]


def _least_bound(
    inputs: PlanInputs, configuration: Configuration, part: Part
) -> tuple[Bound, int]:
    if isinstance(inputs.load, SessionLoad) and _least_per_s(inputs) > 0:
        return sample_bound(inputs, configuration, MIX, part), MIX
    drawn = inputs.load.is_resampled and inputs.load.is_open
    samples = BOUND_SAMPLES if drawn else 1
    bounds = [sample_bound(inputs, configuration, k, part) for k in range(samples)]
    least = min(range(samples), key=lambda k: bounds[k].replica_count)
    if not drawn or not bounds[least].reachable or part.mixes:
        return bounds[least], least
    of_mix = sample_bound(inputs, configuration, MIX, part)
    if of_mix.replica_count > bounds[least].replica_count:
        return of_mix, MIX
    return bounds[least], least


def certificate_of(
    inputs: PlanInputs, best: Candidate, tried: list[Configuration | Excluded]
) -> dict[str, Any]:
    """Return the certificate of the best candidate."""
    assert best.run is not None
    deployment, blocks = best.run.deployment, []
    for pool, run_of_it in zip(best.all_pools, deployment.pools, strict=True):
        sample, configuration = pool.bound_sample, _as_bounded(best, pool, tried)
        part = Part(pool.role, deployment.hand_off)
        blocks.append(
            pool_proof(
                asdict(pool.bound),
                bound_inputs(inputs, configuration, sample, part),
                group_targets(inputs, sample),
                **{"role": pool.role} if pool.role else {},
                gpu=pool.gpu,
                **layout_of(configuration),
                replica_count=pool.replica_count,
                engine=run_of_it.configuration.engine.document(),
                sample=sample,
            )
        )
    joined = ("decode_router", "hand_off", "link_gb_per_s") if best.pools else ()
    shares = {probe.counts: probe.slo_attainment for probe in best.probes}
    counts = deployment.counts
    return certificate(
        blocks,
        target_of(inputs, 0 if best.pools else best.bound_sample),
        shares[counts],
        {fewer: shares[fewer] for fewer in one_fewer(counts) if fewer in shares},
        router=deployment.router,
        **{name: getattr(deployment, name) for name in joined},
    )


def with_bounds_held(
    inputs: PlanInputs, candidate: Candidate, tried: list[Configuration | Excluded]
) -> Candidate:
    """Return a candidate with bounds that the counts of its pools are not below.

    A count decided by many samples may be below the smallest bound of the first few;
    then one of the others, on which the SLO is met, has a bound that holds.
    """
    if candidate.run is None or not candidate.all_pools:
        return candidate
    deployment, pools = candidate.run.deployment, []
    for pool, count in zip(candidate.all_pools, deployment.counts, strict=True):
        configuration = _as_bounded(candidate, pool, tried)
        part = Part(pool.role, deployment.hand_off)
        index = BOUND_SAMPLES
        while count < pool.bound.replica_count:
            bound = sample_bound(inputs, configuration, index, part)
            pool = replace(pool, bound=bound, bound_sample=index)
            index += 1
        pools.append(pool)
    if candidate.pools:
        return replace(candidate, pools=tuple(pools))
    bound, sample = pools[0].bound, pools[0].bound_sample
    return replace(candidate, bound=bound, bound_sample=sample)


def _as_bounded(
    candidate: Candidate, pool: PoolPlan, tried: list[Configuration | Excluded]
) -> Configuration:
    """Return what the bound of a pool is of, whatever token budget it is tuned to."""
    if candidate.pools:
        return pool.configuration
    return configuration_of(tried, candidate.key)


def checked_count(block: Mapping[str, Any]) -> int:
    """Return the replicas of a certificate, if a simulation has memory for them."""
    count, sample = block["replica_count"], block["sample"]
    if type(count) is not int or not 1 <= count <= MOST_REPLICAS:
        raise ValueError(f"replica_count is {count!r}; expected 1 to {MOST_REPLICAS}")
    if type(sample) is not int or not MIX <= sample < BOUND_SAMPLES:
        raise ValueError(f"sample is {sample!r}; expected {MIX} to {BOUND_SAMPLES - 1}")
    return count


def _as_proven(
    engine: EngineSettings, given: Mapping[str, Any], *, tuned: bool
) -> EngineSettings:
    """Return a configuration's engine as a certificate says that it was ``tuned``.

    Only budget and seats may differ, and only below: the tables hold no more.
    """
    names = ("max_num_batched_tokens", "max_num_seqs") if tuned else ()
    found = replace(engine, **{name: given[name] for name in names})
    for name in names:
        most = getattr(engine, name)
        if type(given[name]) is not int or given[name] > most:
            raise ValueError(f"{name} is {given[name]!r}; expected at most {most}")
    if dict(given) != found.document():
        raise ValueError("its engine is not that of the configuration")
    return found


def layout_of(configuration: Configuration) -> dict[str, Any]:
    """Return the layout of a configuration as certificates name it."""
    layout = configuration.layout
    if layout == Layout(layout.tp):
        return {"tp": layout.tp}
    return {"tp": layout.tp, "layout": str(layout), "gpus_per_replica": layout.gpus}


def key_of(block: Mapping[str, Any]) -> tuple[str, str]:
    """Return GPU type and layout of a certificate, which names none but TP alone."""
    return block["gpu"], block.get("layout") or str(Layout(block["tp"]))


def replica_of(document: Mapping[str, Any]) -> tuple[PlanInputs, Configuration]:
    """Return a plan's inputs, and the replica of its only pool as it was proven."""
    (pool,) = pools_of(document["certificate"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CapplanWarning)
        inputs, tried = plan_inputs(settings_of(document))
    configuration = configuration_of(tried, key_of(pool))
    engine = _as_proven(configuration.engine, pool["engine"], tuned=True)
    return inputs, replace(configuration, engine=engine)


def reproduce(document: Mapping[str, Any]) -> Reproduction:
    """Return the inputs of a plan's bounds, and its counts simulated again."""
    block = document["certificate"]
    pools = pools_of(block)
    counts = tuple(map(checked_count, pools))
    hand_off = block.get("hand_off", "")
    roles = (PREFILL, DECODE) if len(pools) > 1 else ("",)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CapplanWarning)
        inputs, tried = plan_inputs(settings_of(document))
        able = [row for row in tried if isinstance(row, Configuration)]
        chosen, bounded = [], []
        for pool, role in zip(pools, roles, strict=True):
            if pool.get("role", "") != role:
                raise ValueError(f"its role is {pool['role']!r}; expected {role!r}")
            if pool["sample"] == MIX and not inputs.load.is_resampled:
                reason = "its bound is that of a mix, and the arrivals are given"
                raise ValueError(reason)
            rows = prefilling(inputs, able) if role == PREFILL else able
            configuration = configuration_of([*rows], key_of(pool))
            sample, part = pool["sample"], Part(role, hand_off)
            bounded.append(bound_inputs(inputs, configuration, sample, part))
            engine = _as_proven(configuration.engine, pool["engine"], tuned=not role)
            chosen.append(replace(configuration, engine=engine))
    shares = {}
    for each in (counts, *one_fewer(counts)):
        deployment = of_counts(inputs.settings, chosen, each, block["router"])
        run = run_of(inputs, deployment, thorough=True)
        assert run.judgement.attainment is not None
        shares[each] = run.judgement.attainment.share
    return Reproduction(bounded, shares)
