"""Candidates with disaggregated prefill and decode: two pools, each sized by itself."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from capplan.deployment.configuration import Configuration
from capplan.errors import warn
from capplan.planning.configure.excluded import Excluded
from capplan.planning.configure.launch import launch
from capplan.planning.configure.speculation import accepting
from capplan.planning.evaluate.candidate import Candidate, Disaggregation
from capplan.planning.evaluate.executors import candidates_by, executor
from capplan.planning.evaluate.inputs import PlanInputs, Progress
from capplan.planning.size.candidates import described
from capplan.planning.size.fewest_pools import fewest_pools
from capplan.planning.size.insisted import insisted
from capplan.planning.size.pairs import pairs_of
from capplan.planning.size.prospects import CENTS, Prospect, feasible_of, price_of
from capplan.planning.size.shape import Shape

BY_TURNS = "round-robin"
"""Router that does not send prompt after prompt to replicas whose link is busy, as the
one of the shortest queue does, which sees no copies."""
_ONE_BACKEND = (
    "start both pools with the same --attention-backend: vLLM copies no KV between "
    "different ones, and GPU types may differ in theirs"
)
_WAVE = 4
"""Pairs simulated side by side before the others are held against them."""


def disaggregated(
    inputs: PlanInputs, tried: Sequence[Configuration | Excluded], progress: Progress
) -> list[Candidate]:
    """Return the pairs of each GPU type, simulated or pruned.

    They are held against each other alone: the best of them stands beside the best of
    one pool, whatever that is.
    """
    progress("bounding disaggregated prefill and decode")
    done: list[Candidate] = []
    pairs: list[Shape] = []
    for pair, reason in pairs_of(inputs, tried):
        if reason:
            candidate = pair.candidate("infeasible")
            done.append(replace(candidate, infeasible_reason=reason))
        else:
            pairs.append(pair)
    simulated: dict[str, Shape] = {}
    settings = inputs.settings
    with executor(settings.executor, settings.ray_address) as workers:
        while pairs:
            size = _WAVE if feasible_of(done) else 1
            wave, pairs = pairs[:size], pairs[size:]
            names = "; ".join(map(str, wave))
            share = len(done) / (len(done) + len(wave) + len(pairs))
            progress(f"simulating {names} ({len(pairs)} more)", share)
            for pair, (candidate, texts) in zip(
                wave, candidates_by(workers, evaluate, inputs, wave), strict=True
            ):
                done.append(candidate)
                simulated[str(pair)] = pair
                for text in texts:
                    warn(text)
            pairs, left_out = _against(inputs, pairs, done)
            done += left_out
    progress("deciding what was too close to call")
    return _decided(inputs, simulated, done)


def _decided(
    inputs: PlanInputs, simulated: dict[str, Shape], done: list[Candidate]
) -> list[Candidate]:
    """Return candidates of which more samples decide what may be the best."""
    rows = {str(row): row for row in done}
    best = min(feasible_of(done), key=price_of, default=None)
    if best is not None:
        best = rows[str(best)] = insisted(
            inputs, best, simulated[str(best)].deployment((1, 1))
        )
    for name, pair in simulated.items():
        row = rows[name]
        if row is best or not row.close:
            continue
        limit = None if best is None else price_of(best)
        if limit is None or min(map(pair.price_of, row.close)) < limit:
            row = rows[name] = insisted(inputs, row, pair.deployment((1, 1)))
            if row.run is not None and (limit is None or price_of(row) < limit):
                best = row
    return [*rows.values()]


def _against(
    inputs: PlanInputs, pairs: list[Shape], done: list[Candidate]
) -> tuple[list[Shape], list[Candidate]]:
    """Return the pairs that may still be the best, and the others as candidates."""
    feasible = feasible_of(done)
    rivals = tuple(map(price_of, feasible))
    left, left_out = [], []
    for pair in pairs:
        pair = replace(pair, rivals=rivals)
        price = pair.price_of(pair.at_least)
        may_win = not inputs.best_only or not rivals or price < min(rivals)
        if may_win and pair.competes(pair.at_least):
            left.append(pair)
            continue
        _, gpu_count = price
        other = min(feasible, key=price_of)
        reason = f"needs at least {gpu_count:,} GPUs; {other} needs {other.gpu_count:,}"
        left_out.append(replace(pair.candidate("pruned"), pruned_reason=reason))
    return left, left_out


def evaluate(inputs: PlanInputs, pair: Shape) -> tuple[Candidate, tuple[str, ...]]:
    """Find the cheapest replicas of a pair; return it with its warnings.

    Where the router leads to none, and the user gave none, by turns.
    """
    routers = [pair.router]
    if inputs.settings.router is None:
        routers.append(BY_TURNS)
    for router in routers:
        pair = replace(pair, router=router)
        found = fewest_pools(
            partial(pair.run, inputs),
            pair.at_least,
            pair.price_of,
            pair.competes if pair.rivals else None,
        )
        if found.run is not None or found.interrupted or pair.rivals:
            break
    return described(inputs, pair, found)


def pools_accepting(inputs: PlanInputs, best: Candidate, times: float) -> int | None:
    """Return the GPUs of a pair with each rate of acceptance so many times as high."""
    assert best.run is not None
    pools = tuple(
        Prospect(accepting(pool.configuration, times), pool.bound, pool.bound_sample)
        for pool in best.pools
    )
    pair = Shape(pools, inputs.settings, best.run.deployment.router)
    candidate, _ = evaluate(inputs, pair)
    return candidate.gpu_count


def started(inputs: PlanInputs, candidate: Candidate) -> Candidate:
    """Return a candidate of two pools with the commands that start their replicas."""
    assert candidate.run is not None
    hand_off = candidate.run.deployment.hand_off
    pools = []
    for pool in candidate.pools:
        how = launch(pool.configuration, inputs.settings, hand_off)
        if how is not None and len(candidate.gpus) > 1:
            how = replace(how, notes=(*how.notes, _ONE_BACKEND))
        pools.append(replace(pool, launch=how))
    return replace(candidate, pools=tuple(pools))


def worth(
    aggregated: Candidate | None,
    disaggregated: Candidate | None,
    candidates: list[Candidate],
) -> Disaggregation | None:
    """Return what disaggregated prefill and decode are worth; None: not known."""
    if any(row.status == "interrupted" for row in candidates):
        return None
    if not any(row.pools for row in candidates):
        return None
    if disaggregated is None or disaggregated.gpu_count is None:
        return Disaggregation(False)
    if aggregated is None or aggregated.gpu_count is None:
        return Disaggregation(True)
    usd = None
    if aggregated.cost is not None and disaggregated.cost is not None:
        usd = round(aggregated.cost.usd_per_h - disaggregated.cost.usd_per_h, CENTS)
    return Disaggregation(
        price_of(disaggregated) < price_of(aggregated),
        aggregated.gpu_count - disaggregated.gpu_count,
        usd,
    )
