"""One configuration at a time: bounded, pruned or simulated, and priced."""

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from capplan.bounds.lower_bound import Bound
from capplan.planning.configuration import Configuration
from capplan.planning.cost import Cost, cost
from capplan.planning.fewest_replicas import binding_limit, fewest_replicas
from capplan.planning.inputs import PlanInputs
from capplan.planning.result import Candidate, Probe
from capplan.planning.run import Run, judged_run
from capplan.planning.unbatched import too_slow, unbatched
from capplan.simulator.checks import oversized

MOST_REPLICAS = 4096
"""Replica count at which the search gives up."""
_BUDGETS = (4096, 2048, 1024, 512)
"""Token budgets tried where engine settings are tuned. [tokens]"""


@dataclass(frozen=True, eq=False)
class Prospect:
    """A configuration with its lower bound, before it is simulated."""

    configuration: Configuration
    bound: Bound

    def __str__(self) -> str:
        return str(self.configuration)

    @property
    def gpu_count(self) -> int:
        """GPUs of the fewest replicas that the bound allows."""
        return self.bound.replica_count * self.configuration.tp

    @property
    def usd_per_h(self) -> float | None:
        """Price of these GPUs; None without a price. [$/h]"""
        return self.configuration.usd_per_h(self.bound.replica_count)


def cheapest_first(prospect: Prospect) -> tuple[float, int, str, int]:
    """Order by the least possible cost, then by the fewest possible GPUs."""
    usd = prospect.usd_per_h
    configuration = prospect.configuration
    return (
        np.inf if usd is None else usd,
        prospect.gpu_count,
        configuration.gpu,
        configuration.tp,
    )


def cannot_serve(inputs: PlanInputs, configuration: Configuration) -> str | None:
    """Return why no number of replicas serves the requests, or None."""
    too_large = oversized(inputs.trace, configuration.engine)
    if too_large.any():
        return (
            f"{int(too_large.sum()):,} requests do not fit a replica, which holds "
            f"{configuration.engine.kv_capacity_tokens:,} tokens"
        )
    alone = unbatched(inputs.trace, configuration.tables, configuration.engine)
    return too_slow(inputs.trace, alone, inputs.slo)


def cannot_win(prospect: Prospect, done: list[Candidate]) -> str | None:
    """Return why a configuration can be neither cheapest nor smallest, or None."""
    feasible = [candidate for candidate in done if candidate.status == "feasible"]
    smaller = any(
        candidate.gpu_count is not None and candidate.gpu_count <= prospect.gpu_count
        for candidate in feasible
    )
    usd = prospect.usd_per_h
    cheaper = [
        candidate
        for candidate in feasible
        if usd is None
        or (candidate.usd_per_h is not None and candidate.usd_per_h <= usd)
    ]
    if not smaller or not cheaper:
        return None
    other = cheaper[0]
    price = "" if usd is None else f" and ${usd:,.2f}/h"
    return (
        f"needs at least {prospect.gpu_count} GPUs{price} by its lower bound; "
        f"{other.gpu} × TP {other.tp} does with {other.gpu_count}"
    )


def pruned(prospect: Prospect, reason: str) -> Candidate:
    """Return the candidate of a configuration that is not worth simulating."""
    return replace(
        Candidate.of(prospect.configuration, "pruned", bound=prospect.bound),
        pruned_reason=reason,
    )


def run_of(
    inputs: PlanInputs, configuration: Configuration, router: str, replica_count: int
) -> Run:
    """Simulate one replica count of a configuration and judge it."""
    return judged_run(
        inputs.traffic,
        inputs.slo,
        configuration,
        replica_count,
        router=router,
        seed=inputs.settings.seed,
    )


class _Variant(NamedTuple):
    """Engine settings and router that a configuration may run with."""

    configuration: Configuration
    router: str


def _variants(inputs: PlanInputs, configuration: Configuration) -> list[_Variant]:
    """Return the variants of a configuration, the one with its own settings first.

    A smaller token budget keeps long prompts from stretching the iterations that
    others decode in. Every schedule that it allows the larger one allows too, so that
    the lower bound holds for all of them.
    """
    variants = [_Variant(configuration, router) for router in inputs.routers]
    if inputs.settings.tune:
        engine = configuration.engine
        for budget in _BUDGETS:
            if budget < engine.max_num_batched_tokens:
                tuned = replace(
                    engine,
                    max_num_batched_tokens=budget,
                    max_num_seqs=min(engine.max_num_seqs, budget),
                )
                variants.append(
                    _Variant(replace(configuration, engine=tuned), inputs.routers[0])
                )
    return variants


def evaluate(
    inputs: PlanInputs, prospect: Prospect
) -> tuple[Candidate, tuple[str, ...]]:
    """Find the fewest replicas of a configuration; return it with its warnings."""
    at_least = max(1, prospect.bound.replica_count)
    variants = _variants(inputs, prospect.configuration)
    chosen = variants[0]
    passing: Run | None = None
    runs: list[Run] = []
    for variant in variants:
        run_with = partial(run_of, inputs, variant.configuration, variant.router)
        if passing is None:
            passing, runs = fewest_replicas(run_with, at_least, MOST_REPLICAS)
            chosen = variant
            continue
        # A later variant matters only where it saves replicas: step down with it.
        while passing.replica_count > 1:
            fewer = run_with(passing.replica_count - 1)
            if fewer.judgement.meets:
                passing, chosen = fewer, variant
            if chosen is variant:
                runs = _with_run(runs, fewer)
            if not fewer.judgement.meets:
                break
    probes = tuple(Probe.of(run) for run in runs)
    if passing is None:
        return _infeasible(prospect, chosen.router, probes), ()
    below = [run for run in runs if run.replica_count == passing.replica_count - 1]
    candidate = replace(
        Candidate.of(chosen.configuration, "feasible", bound=prospect.bound),
        run=passing.without_requests(),
        cost=_cost(passing),
        binding=binding_limit(below[0] if below else None),
        probes=probes,
    )
    return candidate, (
        *_interval_warning(inputs, str(prospect), passing),
        *_extrapolations(passing),
    )


def _infeasible(
    prospect: Prospect, router: str, probes: tuple[Probe, ...]
) -> Candidate:
    last = probes[-1]
    return replace(
        Candidate.of(prospect.configuration, "infeasible", bound=prospect.bound),
        infeasible_reason=(
            f"{last.replica_count:,} replicas attain {last.slo_attainment:.2%} "
            f"with router {router}, and more do not help"
        ),
        probes=probes,
    )


def _with_run(runs: list[Run], new: Run) -> list[Run]:
    """Return the runs in order of their counts, the new one in place of its equal."""
    kept = [run for run in runs if run.replica_count != new.replica_count]
    return sorted([*kept, new], key=lambda run: run.replica_count)


def _cost(run: Run) -> Cost | None:
    if run.price is None:
        return None
    totals = run.simulation.totals
    return cost(
        run.gpu_count,
        run.price,
        rate_per_s=totals.rate_per_s,
        mean_prompt_tokens=totals.prompt_tokens / totals.request_count,
        mean_output_tokens=totals.output_tokens / totals.request_count,
    )


def _interval_warning(inputs: PlanInputs, name: str, run: Run) -> tuple[str, ...]:
    """Warn when the attainment's interval contains the target."""
    attainment = run.judgement.attainment
    assert attainment is not None
    low = attainment.interval[0]
    if low >= inputs.slo.attainment:
        return ()
    count = run.replica_count
    return (
        f"{name}, {count} replica{'s' if count > 1 else ''}: the 95 % interval of the "
        f"attainment begins at {low:.2%}, below what is asked; a longer trace or one "
        "more replica makes sure",
    )


def _extrapolations(run: Run) -> tuple[str, ...]:
    """Warn where the run leaves the range in which its profile was measured."""
    profile = run.configuration.profile
    if profile is None:
        return ()
    times = run.simulation.table
    batch = int(np.ceil(run.simulation.series.batch_requests.max()))
    context = int((times.prompt_tokens + times.output_tokens).max())
    chunk = int(min(times.prompt_tokens.max(), run.engine.max_num_batched_tokens))
    return tuple(profile.beyond_range(batch, context, chunk))
