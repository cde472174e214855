"""Autoscalers against fleets of a fixed size: attainment, GPU-hours and what binds."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np

from capplan.bounds.replica_time import ReplicaTime, replica_time
from capplan.deployment.configuration import Configuration
from capplan.errors import InputError, collected_warnings, warn
from capplan.planning.autoscale.break_even import MOST_S, break_even
from capplan.planning.autoscale.cases import Cases, Outcome, one_sample, since_s
from capplan.planning.autoscale.known_to_policies import informed, name_of
from capplan.planning.autoscale.losses import (
    Loss,
    check_losses,
    check_scheduler,
    fixed_loss,
    losses_of,
    scaled_loss,
)
from capplan.planning.autoscale.perfect_fleet import cheapest, is_tuned
from capplan.planning.autoscale.result import FIXED, Autoscaled, PolicyResult
from capplan.planning.autoscale.settings import PERFECT, AutoscaleSettings
from capplan.planning.configure.configuration import only_configuration
from capplan.planning.configure.deployments import changing, cold_start_of, one_pool
from capplan.planning.configure.prefix_caching import (
    with_caching_as_used,
    without_states,
)
from capplan.planning.configure.scheduling import widest_iterations
from capplan.planning.evaluate.executors import Interrupted
from capplan.planning.evaluate.inputs import PlanInputs, Progress, unseen
from capplan.planning.evaluate.replica_load import ReplicaLoad, replica_load
from capplan.planning.load.traffic import arriving, judged, read_requests
from capplan.planning.prove.proof import bound_inputs, group_targets, sample_bound
from capplan.planning.settings.groups import MOST_REPLICAS
from capplan.planning.size.candidates import cannot_serve
from capplan.planning.size.fewest_replicas import fewest_replicas
from capplan.simulator.checks import check_deployment
from capplan.simulator.fleet.fleet import Stopped


def autoscale(
    settings: AutoscaleSettings,
    progress: Progress | None = None,
    stopped: Stopped | None = None,
) -> Autoscaled:
    """Return each policy on the requests, against fixed fleets and a lower bound.

    When ``stopped`` says so, the result is what was known by then; before anything is,
    KeyboardInterrupt is raised.
    """
    settings = settings.dated()
    with collected_warnings() as texts:
        found = _compared(_asked(settings, progress or unseen, stopped))
    return replace(found, warnings=tuple(texts))


@dataclass(frozen=True)
class _Asked:
    """What all steps share."""

    settings: AutoscaleSettings
    inputs: PlanInputs  # of a plan of the same requests
    configuration: Configuration
    cases: Cases
    cold_start_s: float
    progress: Progress
    done: "count[int]" = field(default_factory=count)

    def show(self, step: str) -> None:
        """Show a step, with the share of them that are done, as far as it is known."""
        policies = len(self.settings.compared) + 1  # one that knows the arrivals
        steps = 4 + 2 * policies + len(losses_of(self.settings)) * (1 + policies)
        steps += policies * self.settings.break_even
        self.progress(step, next(self.done) / steps)


def _asked(
    settings: AutoscaleSettings, progress: Progress, stopped: Stopped | None
) -> _Asked:
    """Return what is asked; refuse what no step could answer."""
    slo = settings.objective()
    if slo is None:
        raise InputError("no SLO; give --slo such as ttft=1s,tpot=30ms")
    asked = settings.of_plan()
    if asked.extend is None:  # all the time asked for, and no more
        asked = asked.model_copy(update={"extend": False})
    bare = only_configuration(settings)
    check_scheduler(settings, bare.engine)
    check_deployment(one_pool(settings, bare, 1), moves=True)
    progress("reading the requests")
    rng = np.random.default_rng(settings.seed)
    read = arriving(read_requests(asked), asked, rng)
    load = one_sample(judged(read, asked, slo, rng, [bare]))
    load = replace(load, as_replayed=settings.extend is False)
    shares = bool(load.base.prefix_tokens.any())
    configuration = without_states(bare, settings, shares)
    configuration = with_caching_as_used(configuration, settings, shares)
    deployment = one_pool(settings, configuration, settings.replicas or 1)
    for policy in settings.compared:  # refuses what outlasts the requests
        kept = settings.without_losses()
        changing(kept, deployment, load.trace, policy, settings.seed)
    return _Asked(
        settings,
        PlanInputs(asked, load, slo, (deployment.router,), None),
        configuration,
        Cases(settings, load, slo, deployment, stopped),
        cold_start_of(settings, bare),
        progress,
    )


def _compared(of: _Asked) -> Autoscaled:
    """Return the smallest fixed fleet and the policies beside it."""
    cases, load = of.cases, of.cases.load
    try:
        fixed = _fixed(of)
    except Interrupted:
        raise KeyboardInterrupt from None
    found = Autoscaled(
        of.settings,
        cases.deployment,
        cases.slo,
        load.base.source,
        since_s(load),
        load.base.class_names,
        of.cold_start_s,
    )
    if isinstance(fixed, str):
        return replace(found, reason=fixed)
    found = replace(found, fixed=PolicyResult(FIXED, "", fixed, fixed=fixed))
    rows: dict[str, PolicyResult] = {}  # by policy: one given twice stands once
    try:
        found = replace(found, bound=_bound(of))
        sustained = _sustained(of, fixed)
        found = replace(found, sustained=sustained)
        for row in _policies(of, sustained, fixed.replica_count):
            rows[row.policy] = row
            found = replace(found, policies=tuple(rows.values()))
        for loss in _losses(of, found.policies, fixed.replica_count):
            found = replace(found, losses=(*found.losses, loss))
        for row in found.policies if of.settings.break_even else ():
            rows[row.policy] = replace(row, break_even_s=_break_even(of, row))
            found = replace(found, policies=tuple(rows.values()))
    except Interrupted:
        text = "interrupted: what was not simulated by then is left out"
        warn(text)
        found = replace(found, interrupted=True)
    return found


def _fixed(of: _Asked) -> Outcome | str:
    """Return the smallest fixed fleet, or why there is none."""
    cases = of.cases
    if reason := cannot_serve(of.inputs, of.configuration):
        return reason
    of.show("bounding the fixed fleet")
    at_least = sample_bound(of.inputs, of.configuration, 0).replica_count
    of.show("finding the smallest fixed fleet")
    fewest = fewest_replicas(
        lambda counts: cases.fixed_run(*counts), at_least, MOST_REPLICAS
    )
    if fewest.interrupted:
        raise Interrupted
    if fewest.run is None:
        return "no number of replicas holds the target"
    replica_count = fewest.run.replica_count
    cases.buy_for(replica_count)
    check_losses(cases, replica_count)
    if of.settings.replicas is None:
        cases.deployment = cases.deployment.with_replicas(replica_count)
    return cases.fixed(replica_count)


def _bound(of: _Asked) -> ReplicaTime:
    of.show("bounding the GPU-hours")
    engine, tables = widest_iterations(of.configuration.engine, of.configuration.tables)
    return replica_time(
        bound_inputs(of.inputs, of.configuration).columns,
        group_targets(of.inputs),
        tables,
        engine,
        of.cold_start_s,
    )


def _sustained(of: _Asked, fixed: Outcome) -> ReplicaLoad | None:
    of.show("measuring what a replica holds")
    return replica_load(
        of.inputs.settings,
        of.cases.load.base,
        of.cases.slo,
        fixed.deployment,
        of.cases.stopped,
        known=of.cases.load.saturations,
    )


def _policies(
    of: _Asked, sustained: ReplicaLoad | None, fixed: int
) -> Iterator[PolicyResult]:
    """Yield each policy, and again with the fixed fleet that attains as much."""
    compared = of.settings.compared
    if PERFECT not in map(name_of, compared):
        if sustained is None:
            text = (
                "what a replica holds could not be measured: perfect is left out; give "
                "the rate of a replica to policies that need it"
            )
            warn(text)
        else:
            compared = (*compared, PERFECT)
    for given in compared:
        policy, outcome = _simulated(of, given, sustained, fixed)
        yield (row := PolicyResult(name_of(policy), policy, outcome))
        of.show(f"finding the fixed fleet that does as well as {row.name}")
        yield replace(row, fixed=of.cases.as_good_as(outcome))


def _simulated(
    of: _Asked, given: str, sustained: ReplicaLoad | None, fixed: int
) -> tuple[str, Outcome]:
    """Return a policy with what it is given, and its run."""

    def run_with(policy: str) -> Outcome:
        of.show(f"simulating {policy}")
        return of.cases.scaled(policy, of.cold_start_s)

    if name_of(given) == PERFECT and sustained is not None and is_tuned(given):
        policy, lasts_s = informed(given, None, fixed), of.cases.load.base.duration_s
        return cheapest(run_with, policy, sustained.rate_per_s, lasts_s)
    policy = informed(given, sustained, fixed)
    return policy, run_with(policy)


def _losses(
    of: _Asked, policies: tuple[PolicyResult, ...], fixed: int
) -> Iterator[Loss]:
    for what, losing in losses_of(of.settings):
        of.show(f"fixed fleet: {what}")
        yield fixed_loss(of.cases, what, losing, fixed)
        # An autoscaler replaces replicas itself.
        for row in () if losing.rolling_update else policies:
            of.show(f"{row.name}: {what}")
            yield scaled_loss(of.cases, what, losing, row.policy, of.cold_start_s)


def _break_even(of: _Asked, row: PolicyResult) -> tuple[float | None, float | None]:
    of.show(f"finding the cold start at which {row.name} stops paying")

    def pays(cold_start_s: float) -> bool:
        scaled = of.cases.scaled(row.policy, cold_start_s)
        fixed = of.cases.as_good_as(scaled) if scaled.meets else None
        return fixed is not None and scaled.costs_less_than(fixed)

    most_s = min(of.cases.load.base.duration_s, max(MOST_S, of.cold_start_s))
    return break_even(pays, row.pays, of.cold_start_s, most_s)
