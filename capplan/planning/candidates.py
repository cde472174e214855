"""One configuration at a time: bounded, pruned or simulated, and priced."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from capplan.bounds.lower_bound import Bound
from capplan.planning.configuration import Configuration
from capplan.planning.cost import cost
from capplan.planning.fewest_replicas import (
    Probed,
    binding_limit,
    fewest_replicas,
    probe,
)
from capplan.planning.inputs import PlanInputs
from capplan.planning.result import Candidate
from capplan.planning.unbatched import too_slow, unbatched
from capplan.simulator.simulate import oversized
from capplan.workload.trace import Trace

MOST_REPLICAS = 4096
"""Where the search for a replica count gives up."""
_BUDGETS = (4096, 2048, 1024, 512)
"""Token budgets tried where engine settings may be tuned. [tokens]"""
_LEVELS = np.concatenate([np.linspace(0, 0.99, 100), [0.995, 0.999, 1.0]])


@dataclass(frozen=True, eq=False)
class Prospect:
    """A configuration with its lower bound, before it is simulated."""

    configuration: Configuration
    bound: Bound

    def __str__(self) -> str:
        return f"{self.configuration.gpu} × TP {self.configuration.tp}"

    @property
    def gpu_count(self) -> int:
        """GPUs of the fewest replicas that could do."""
        return self.bound.replica_count * self.configuration.tp

    @property
    def usd_per_h(self) -> float | None:
        """Price of these GPUs; None without a price. [$/h]"""
        price = self.configuration.price
        return None if price is None else self.gpu_count * price.usd_per_gpu_h


def promise(prospect: Prospect) -> tuple[float, int, str, int]:
    """Order by the least that it may cost, then by the fewest GPUs."""
    usd = prospect.usd_per_h
    one = prospect.configuration
    return (np.inf if usd is None else usd, prospect.gpu_count, one.gpu, one.tp)


def cannot_serve(question: PlanInputs, one: Configuration) -> str | None:
    """Return why no number of replicas of a configuration serves, or None."""
    too_large = oversized(question.trace, one.engine)
    if too_large.any():
        return (
            f"{int(too_large.sum()):,} requests do not fit a replica, which holds "
            f"{one.engine.kv_capacity_tokens:,} tokens"
        )
    alone = unbatched(question.trace, one.tables, one.engine)
    return too_slow(question.trace, alone, question.slo)


def cannot_win(prospect: Prospect, done: list[Candidate]) -> str | None:
    """Return why a configuration can be neither cheapest nor smallest, or None."""
    feasible = [one for one in done if one.status == "feasible"]
    smaller = [
        one
        for one in feasible
        if one.gpu_count is not None and one.gpu_count <= prospect.gpu_count
    ]
    usd = prospect.usd_per_h
    cheaper = [
        one
        for one in feasible
        if usd is None or (one.usd_per_h is not None and one.usd_per_h <= usd)
    ]
    if not smaller or not cheaper:
        return None
    other = cheaper[0]
    price = "" if usd is None else f" and ${usd:,.2f}/h"
    return (
        f"needs at least {prospect.gpu_count} GPUs{price} by its lower bound; "
        f"{other.gpu} × TP {other.tp} does with {other.gpu_count}"
    )


def candidate(one: Configuration, status: str, **found: Any) -> Candidate:
    """Return a candidate with what is known of its configuration."""
    errors: dict[str, float] = {}
    if one.profile is not None:
        errors = {
            str(phase): record.held_out_mean_abs or record.mean_abs or 0.0
            for phase, record in one.profile.errors.items()
        }
    return replace(
        Candidate(
            one.gpu,
            one.tp,
            status,
            price=one.price,
            engine=one.engine,
            profile_note=one.note,
            latency_error=errors,
        ),
        **found,
    )


def pruned(prospect: Prospect, reason: str) -> Candidate:
    """Return the candidate of a prospect that was not worth simulating."""
    return candidate(
        prospect.configuration,
        "pruned",
        pruned_reason=reason,
        lower_bound_gpu_count=prospect.gpu_count,
        bound=prospect.bound,
        bound_note=prospect.bound.note,
    )


def judge(
    question: PlanInputs, one: Configuration, replica_count: int, router: str
) -> Probed:
    """Simulate one replica count of a configuration."""
    return probe(
        question.trace,
        one.tables,
        one.engine,
        replica_count,
        question.slo,
        warmup_s=question.warmup_s,
        router=router,
        seed=question.request.seed,
    )


def solved(
    question: PlanInputs, prospect: Prospect
) -> tuple[Candidate, tuple[str, ...]]:
    """Return the candidate that a prospect turns out to be, and what to know of it."""
    one = prospect.configuration
    at_least = max(1, prospect.bound.replica_count)
    passing: Probed | None = None
    seen: list[Probed] = []
    variants = _variants(question, one)
    chosen = variants[0]
    for variant in variants:
        if passing is None:
            passing, seen = fewest_replicas(
                partial(_judge, question, variant), at_least, MOST_REPLICAS
            )
            chosen = variant
            continue
        while passing.probe.replica_count > 1:
            fewer = _judge(question, variant, passing.probe.replica_count - 1)
            if fewer.probe.meets:
                passing, chosen = fewer, variant
            if chosen is variant:
                seen = _with_probe(seen, fewer)
            if not fewer.probe.meets:
                break
    probes = tuple(each.probe for each in seen)
    if passing is None:
        last = probes[-1]
        found = candidate(
            one,
            "infeasible",
            infeasible_reason=(
                f"{last.replica_count:,} replicas attain {last.slo_attainment:.2%} "
                f"with router {chosen.router}, and more do not help"
            ),
            lower_bound_gpu_count=prospect.gpu_count,
            bound=prospect.bound,
            bound_note=prospect.bound.note,
            probes=probes,
        )
        return found, ()
    count = passing.probe.replica_count
    below = [each for each in seen if each.probe.replica_count == count - 1]
    times = passing.simulation.times
    counted = times.arrival_s >= passing.warmup_s
    found = candidate(
        one,
        "feasible",
        replica_count=count,
        gpu_count=count * one.tp,
        router=chosen.router,
        engine=chosen.configuration.engine,
        lower_bound_gpu_count=prospect.gpu_count,
        bound=prospect.bound,
        bound_note=prospect.bound.note,
        slo_attainment=passing.probe.slo_attainment,
        slo_attainment_interval=passing.probe.slo_attainment_interval,
        ttft_p99_s=passing.probe.ttft_p99_s,
        tpot_p99_s=passing.probe.tpot_p99_s,
        binding=binding_limit(below[0] if below else None),
        probes=probes,
        quantile_levels=_LEVELS,
        ttft_quantiles_s=_quantiles(times.ttft_s[counted]),
        tpot_quantiles_s=_quantiles(times.tpot_s[counted]),
        e2e_quantiles_s=_quantiles(times.e2e_s[counted]),
        series=passing.simulation.series,
        **_costs(question.trace, one, count),
    )
    doubts = _doubts(question, str(prospect), passing)
    return found, (*doubts, *_extrapolations(one, passing))


class _Variant(NamedTuple):
    """A way to run a configuration: its engine's settings and the router."""

    configuration: Configuration
    router: str


def _judge(question: PlanInputs, variant: _Variant, replica_count: int) -> Probed:
    return judge(question, variant.configuration, replica_count, variant.router)


def _variants(question: PlanInputs, one: Configuration) -> list[_Variant]:
    """Return the ways to run a configuration, the plain one first.

    A smaller token budget keeps long prompts from stretching the iterations that
    others decode in. What it allows the larger one allows too, so that the lower
    bound holds for all of them.
    """
    variants = [_Variant(one, router) for router in question.routers]
    if question.request.tune:
        for budget in _BUDGETS:
            if budget >= one.engine.max_num_batched_tokens:
                continue
            seqs = min(one.engine.max_num_seqs, budget)
            engine = replace(
                one.engine, max_num_batched_tokens=budget, max_num_seqs=seqs
            )
            variants.append(_Variant(replace(one, engine=engine), question.routers[0]))
    return variants


def _with_probe(seen: list[Probed], new: Probed) -> list[Probed]:
    """Return the counts simulated, the new one in place of its equal."""
    count = new.probe.replica_count
    kept = [each for each in seen if each.probe.replica_count != count]
    return sorted([*kept, new], key=lambda each: each.probe.replica_count)


def _quantiles(values_s: np.ndarray) -> np.ndarray:
    known = values_s[~np.isnan(values_s)]
    if not known.size:
        return np.full(len(_LEVELS), np.nan)
    return np.quantile(known, _LEVELS)


def _costs(trace: Trace, one: Configuration, count: int) -> dict[str, float | None]:
    if one.price is None:
        return {}
    bill = cost(
        count * one.tp,
        one.price,
        rate_per_s=trace.rate_per_s,
        mean_prompt_tokens=float(trace.prompt_tokens.mean()),
        mean_output_tokens=float(trace.output_tokens.mean()),
    )
    return {
        "usd_per_h": bill.usd_per_h,
        "usd_per_million_output_tokens": bill.usd_per_million_output_tokens,
        "usd_per_million_total_tokens": bill.usd_per_million_total_tokens,
    }


def _doubts(question: PlanInputs, name: str, passing: Probed) -> tuple[str, ...]:
    """Return what to know where chance may have decided."""
    low = passing.probe.slo_attainment_interval[0]
    if low >= question.slo.attainment:
        return ()
    count = passing.probe.replica_count
    return (
        f"{name}, {count} replica{'s' if count > 1 else ''}: the 95 % interval of the "
        f"attainment begins at {low:.2%}, below what is asked; a longer trace or one "
        "more replica makes sure",
    )


def _extrapolations(one: Configuration, passing: Probed) -> tuple[str, ...]:
    if one.profile is None:
        return ()
    times = passing.simulation.times
    batch = int(np.ceil(passing.simulation.series.batch_requests.max()))
    context = int((times.prompt_tokens + times.output_tokens).max())
    chunk = int(min(times.prompt_tokens.max(), one.engine.max_num_batched_tokens))
    return tuple(one.profile.beyond_range(batch, context, chunk))
