"""Pairs of configurations, for prompts and for decoding, and which cannot serve."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from capplan.conflicts import conflict_of, refuse_conflicts
from capplan.deployment.configuration import Configuration
from capplan.deployment.features import features_of_engine
from capplan.deployment.pools import DECODE, PREFILL, Pool
from capplan.errors import InputError
from capplan.planning.configure.deployments import link_gb_per_s, on_two_types
from capplan.planning.configure.excluded import Excluded
from capplan.planning.configure.prefix_caching import without_states
from capplan.planning.configure.scheduling import widest_alone
from capplan.planning.evaluate.candidate import Degrees, degrees
from capplan.planning.evaluate.executors import side_by_side
from capplan.planning.evaluate.inputs import PlanInputs, _of_prefill_tp, prefilling
from capplan.planning.evaluate.saturation import replica_saturations
from capplan.planning.evaluate.too_slow import too_slow
from capplan.planning.load.unbatched import Unbatched, unbatched
from capplan.planning.money.gpu_choices import listed_gpu
from capplan.planning.prove.pool_parts import Part
from capplan.planning.prove.proof import bound_of
from capplan.planning.settings.fleet import DEFAULT_HAND_OFF
from capplan.planning.settings.plan import PlanSettings
from capplan.planning.size.prospects import Prospect, price_of_pools
from capplan.planning.size.shape import Shape
from capplan.simulator.checks import features_of_hand_off, oversized
from capplan.simulator.hand_offs import computes_last_again, parse_hand_off
from capplan.simulator.hand_offs import hand_off as load_hand_off
from capplan.workload.trace import Trace


def pairs_of(
    inputs: PlanInputs, tried: Sequence[Configuration | Excluded]
) -> list[tuple[Shape, str]]:
    """Return the pairs of each GPU type, cheapest first, and why one cannot serve.

    The reason is empty where it can. Without those that cost too much to be of use.
    """
    hand_off = inputs.settings.hand_off or DEFAULT_HAND_OFF
    takes_ranks = not _no_ranks(inputs.settings)
    shares = bool(inputs.load.base.prefix_tokens.any())
    decoding = [
        without_states(row, inputs.settings, shares)
        for row in tried
        if isinstance(row, Configuration)
        if row.rank_tables is None or takes_ranks
    ]
    of, types = inputs.settings, {row.gpu for row in tried}
    prompting = _of_types(prefilling(inputs, decoding), of.prefill_gpu, types)
    decoding = _of_types(decoding, of.decode_gpu, types)
    across = bool(of.prefill_gpu or of.decode_gpu)
    pairs = [
        (first, second)
        for first, second in product(prompting, decoding)
        if first.gpu == second.gpu or across
        if price_of_pools(Pool(first, 1), Pool(second, 1)) < inputs.to_beat
    ]
    parts = [
        (row, role)
        for role, rows in ((PREFILL, prompting), (DECODE, decoding))
        for row in rows
        if any(row is pair[role == DECODE] for pair in pairs)
    ]
    bounds = side_by_side(
        lambda part: bound_of(inputs, part[0], Part(part[1], hand_off)), parts
    )
    prospects = {
        (id(row), role): Prospect(row, *bound)
        for (row, role), bound in zip(parts, bounds, strict=True)
    }
    known: dict[int, Unbatched] = {}

    def alone(row: Configuration) -> Unbatched:
        if id(row) not in known:
            engine, tables = widest_alone(row)
            known[id(row)] = unbatched(inputs.trace, tables, engine)
        return known[id(row)]

    found = []
    for first, second in pairs:
        prefill, decode = prospects[id(first), PREFILL], prospects[id(second), DECODE]
        pair = Shape((prefill, decode), inputs.settings, inputs.routers[0])
        if first.gpu != second.gpu:
            try:
                bought = on_two_types(first, second)
            except InputError as error:
                found.append((pair, str(error)))
                continue
            pools = zip(pair.pools, bought, strict=True)
            pair = replace(
                pair, pools=tuple(replace(p, configuration=c) for p, c in pools)
            )
        pair = _with_held(inputs, pair, hand_off)
        if not pair.price_of(pair.at_least) < inputs.to_beat:
            continue
        found.append((pair, _cannot_serve(inputs, pair, hand_off, alone)))
    return sorted(found, key=lambda each: _cheapest_first(each[0]))


def _of_types(
    rows: list[Configuration], names: Sequence[str], types: Collection[str]
) -> list[Configuration]:
    """Return the configurations of the GPU types that a flag names; none: all."""
    wanted = _named(names, types)
    return [row for row in rows if not wanted or row.gpu in wanted]


def _named(names: Sequence[str], types: Collection[str]) -> set[str]:
    """Return GPU types by the names that the catalog, or a profile, has for them."""
    found = [listed_gpu(name, types) for name in names]
    return {row if isinstance(row, str) else row.name for row in found}


def _no_ranks(settings: PlanSettings) -> str:
    """Return why pools have no ranks that step together; empty where they may."""
    hand_off = settings.hand_off or DEFAULT_HAND_OFF
    features = {"ranks": "--data-parallel-size", **features_of_hand_off(hand_off)}
    if (settings.prefill_schedule_interval or 1) > 1:
        features["interval"] = "--prefill-schedule-interval"
    return conflict_of(features)


def check_pools(
    settings: PlanSettings, tried: Sequence[Configuration | Excluded]
) -> None:
    """Refuse pools that cannot be, before anything is simulated."""
    hand_off = features_of_hand_off(settings.hand_off or DEFAULT_HAND_OFF)
    types = {row.gpu for row in tried}
    for flag in ("prefill_gpu", "decode_gpu"):
        if other := _named(getattr(settings, flag), types).difference(types):
            raise InputError(
                f"--{flag.replace('_', '-')} {', '.join(sorted(other))} is not among "
                f"the GPU types of the plan ({', '.join(sorted(types))}); name it with "
                "--gpu too"
            )
    _of_prefill_tp(settings)
    if settings.may_have_ranks and (reason := _no_ranks(settings)):
        raise InputError(reason)
    for row in tried:
        if not isinstance(row, Configuration):
            continue
        if link_gb_per_s(settings, [row]) is None:
            raise InputError(
                f"the network of {row.gpu or 'the GPU'} is not known, which KV goes "
                "over from prompts to decoding; give --link-gb-per-s"
            )
        given = features_of_engine(row.engine)
        for later in ("states", "ranks"):  # turned off, left out
            given.pop(later, None)
        refuse_conflicts(given | hand_off)


def _cheapest_first(pair: Shape) -> tuple[float, int, str, Degrees, Degrees]:
    """Order by the least possible cost, then by the fewest possible GPUs."""
    first, second = (pool.configuration for pool in pair.pools)
    places = degrees(first.layout), degrees(second.layout)
    return *pair.price_of(pair.at_least), first.gpu, *places


def _with_held(inputs: PlanInputs, pair: Shape, hand_off: str) -> Shape:
    """Return a pair with the replicas below which more arrives than is completed."""
    load = inputs.load
    if not (load.is_resampled and load.is_open):
        return pair
    found = replica_saturations(load, pair.deployment((1, 1)), inputs.slo)
    prefill, decode = (
        prospect
        if each is None or not each.binds
        else replace(prospect, held=each.replicas_at(load.rate_per_s))
        for prospect, each in zip(pair.pools, found, strict=True)
    )
    # A replica for prompts sends one copy at a time.
    copies = load.rate_per_s * float(_copy_s(load.base, pair, hand_off).mean())
    sending = replace(prefill, held=max(prefill.held, int(copies) + 1))
    return replace(pair, pools=(sending, decode))


def _cannot_serve(
    inputs: PlanInputs,
    pair: Shape,
    hand_off: str,
    alone: Callable[[Configuration], Unbatched],
) -> str:
    """Return why no number of replicas serves the requests; empty where some may.

    ``alone`` returns the least latencies on a replica.
    """
    requests, trace = inputs.load.base, inputs.trace
    prefill, decode = (pool.configuration for pool in pair.pools)
    prompts = replace(requests, output_tokens=np.ones(len(requests), np.int64))
    for part, configuration in ((prompts, prefill), (requests, decode)):
        too_large = int(oversized(part, configuration.engine).sum())
        if too_large:
            return (
                f"{too_large:,} requests do not fit a replica of {configuration}, "
                f"which holds {configuration.engine.kv_capacity_tokens:,} tokens"
            )
    first, second = alone(prefill), alone(decode)
    # A copy is before the first token where that is the decode replica's, else after.
    copy_s = _copy_s(trace, pair, hand_off)
    policy = parse_hand_off(hand_off)
    copy_s += policy.settings["hop"] * (copy_s > 0)
    copy_s *= trace.output_tokens > 1
    is_before = computes_last_again(hand_off)
    later = np.maximum(trace.output_tokens - 1, 1)
    ttft_s = first.ttft_s + (copy_s if is_before else 0.0)
    tpot_s = second.tpot_s + (0.0 if is_before else copy_s / later)
    e2e_s = first.ttft_s + copy_s + second.tpot_s * (trace.output_tokens - 1)
    least = replace(second, ttft_s=ttft_s, tpot_s=tpot_s, e2e_s=e2e_s)
    return too_slow(least, inputs.slo, inputs.load) or ""


def _copy_s(trace: Trace, pair: Shape, hand_off: str) -> np.ndarray:
    """Return the least time of each prompt's copy to its decode replica. [s]

    0 where a request may be served by one pool alone.
    """
    policy = parse_hand_off(hand_off)
    if Part("", hand_off).mixes or policy.settings.get("threshold"):
        return np.zeros(len(trace))
    engine = pair.pools[-1].configuration.engine
    cached = trace.prefix_tokens * int(engine.prefix_caching)
    blocks = (trace.prompt_tokens - cached) // engine.block_size
    block_s = policy.settings["block"] or pair.deployment((1, 1)).block_copy_s
    block_s /= load_hand_off(policy.name).SPEED_UP
    return np.asarray(policy.settings["handshake"] + blocks * block_s)
