"""Autoscalers against fleets of a fixed size: attainment, GPU-hours and what binds."""

from dataclasses import replace

import numpy as np

from capplan.bounds.replica_time import replica_time
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
from capplan.planning.evaluate.replica_load import replica_load
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
        result = _Work(settings, progress or unseen, stopped).result()
    return replace(result, warnings=tuple(texts))


class _Work:
    """The steps of a comparison, and what they found so far."""

    def __init__(
        self, settings: AutoscaleSettings, progress: Progress, stopped: Stopped | None
    ) -> None:
        self._settings, self._progress, self._step_count = settings, progress, 0
        slo = settings.objective()
        if slo is None:
            raise InputError("no SLO; give --slo such as ttft=1s,tpot=30ms")
        self._slo = slo
        asked = settings.of_plan()
        if asked.extend is None:  # all the time asked for, and no more
            asked = asked.model_copy(update={"extend": False})
        self._asked = asked
        configuration = only_configuration(settings)
        check_scheduler(settings, configuration.engine.scheduler.name)
        check_deployment(one_pool(settings, configuration, 1), moves=True)
        progress("reading the requests")
        rng = np.random.default_rng(settings.seed)
        read = arriving(read_requests(asked), asked, rng)
        load = one_sample(judged(read, asked, slo, rng, [configuration]))
        load = replace(load, as_replayed=settings.extend is False)
        shares = bool(load.base.prefix_tokens.any())
        configuration = without_states(configuration, settings, shares)
        self._configuration = with_caching_as_used(configuration, settings, shares)
        deployment = one_pool(settings, self._configuration, settings.replicas or 1)
        self._cases = Cases(settings, load, slo, deployment, stopped)
        self._inputs = PlanInputs(asked, load, slo, (deployment.router,), None)
        self._cold_start_s = cold_start_of(settings, configuration)
        for policy in settings.compared:  # refuses what outlasts the requests
            bare = settings.without_losses()
            changing(bare, deployment, load.trace, policy, settings.seed)
        self._found = Autoscaled(
            settings,
            deployment,
            slo,
            load.base.source,
            since_s(load),
            load.base.class_names,
            self._cold_start_s,
        )

    def _show(self, step: str) -> None:
        """Show a step, with the share of them that are done, as far as it is known."""
        policies = len(self._settings.compared) + 1  # one that knows the arrivals
        count = 4 + 2 * policies + len(losses_of(self._settings)) * (1 + policies)
        count += policies * self._settings.break_even
        self._progress(step, self._step_count / count)
        self._step_count += 1

    def result(self) -> Autoscaled:
        """Return what all steps found, or those before it was to stop."""
        try:
            self._all_steps()
        except Interrupted:
            if self._found.fixed is None:
                raise KeyboardInterrupt from None
            text = "interrupted: what was not simulated by then is left out"
            warn(text)
            self._found = replace(self._found, interrupted=True)
        return self._found

    def _all_steps(self) -> None:
        reason = self._fixed()
        if reason:
            self._found = replace(self._found, reason=reason)
            return
        self._bound()
        self._measure_replica()
        self._policies()
        self._losses()
        if self._settings.break_even:
            self._break_even()

    def _fixed(self) -> str:
        """Find the smallest fixed fleet; return why there is none, or nothing."""
        if reason := cannot_serve(self._inputs, self._configuration):
            return reason
        self._show("bounding the fixed fleet")
        at_least = sample_bound(self._inputs, self._configuration, 0).replica_count
        self._show("finding the smallest fixed fleet")
        fewest = fewest_replicas(
            lambda counts: self._cases.fixed_run(*counts), at_least, MOST_REPLICAS
        )
        if fewest.interrupted:
            raise Interrupted
        if fewest.run is None:
            return "no number of replicas attains the target"
        count = fewest.run.replica_count
        self._cases.buy_for(count)
        check_losses(self._cases, count)
        if self._settings.replicas is None:
            cases = self._cases
            cases.deployment = cases.deployment.with_replicas(count)
        outcome = self._cases.fixed(count)
        fixed = PolicyResult(FIXED, "", outcome, fixed=outcome)
        self._found = replace(
            self._found, fixed=fixed, deployment=self._cases.deployment
        )
        return ""

    def _bound(self) -> None:
        self._show("bounding the GPU-hours")
        engine, tables = widest_iterations(
            self._configuration.engine, self._configuration.tables
        )
        bound = replica_time(
            bound_inputs(self._inputs, self._configuration).columns,
            group_targets(self._inputs),
            tables,
            engine,
            self._cold_start_s,
        )
        self._found = replace(self._found, bound=bound)

    def _measure_replica(self) -> None:
        assert self._found.fixed is not None
        self._show("measuring what a replica sustains")
        sustained = replica_load(
            self._asked,
            self._cases.load.base,
            self._slo,
            self._found.fixed.outcome.deployment,
            self._cases.stopped,
            known=self._cases.load.saturations,
        )
        self._found = replace(self._found, sustained=sustained)

    def _policies(self) -> None:
        assert self._found.fixed is not None
        count = self._found.fixed.outcome.replica_count
        names = [name_of(policy) for policy in self._settings.compared]
        also = [] if PERFECT in names else [PERFECT]
        if self._found.sustained is None and also:
            text = (
                "what a replica sustains could not be measured: perfect is left out; "
                "policies that need its rate are to be given it"
            )
            warn(text)
            also = []
        for given in [*self._settings.compared, *also]:
            policy, outcome = self._simulated(given, count)
            row = PolicyResult(name_of(policy), policy, outcome)
            self._add(row)
            self._show(f"finding the fixed fleet that attains what {row.name} does")
            self._add(replace(row, fixed=self._cases.as_good_as(outcome)))

    def _simulated(self, given: str, fixed_count: int) -> tuple[str, Outcome]:
        """Return a policy with what it is given, and its run."""
        sustained = self._found.sustained

        def run_with(policy: str) -> Outcome:
            self._show(f"simulating {policy}")
            return self._cases.scaled(policy, self._cold_start_s)

        if name_of(given) == PERFECT and sustained is not None and is_tuned(given):
            return cheapest(
                run_with,
                informed(given, None, fixed_count),
                sustained.rate_per_s,
                self._cases.load.base.duration_s,
            )
        policy = informed(given, sustained, fixed_count)
        return policy, run_with(policy)

    def _add(self, row: PolicyResult) -> None:
        """Keep a row, in place of an earlier one of the same policy."""
        rows = {each.policy: each for each in self._found.policies}
        rows[row.policy] = row
        self._found = replace(self._found, policies=tuple(rows.values()))

    def _losses(self) -> None:
        assert self._found.fixed is not None
        count = self._found.fixed.outcome.replica_count
        for what, losing in losses_of(self._settings):
            self._show(f"fixed fleet: {what}")
            self._lost(fixed_loss(self._cases, what, losing, count))
            if losing.rolling_update:
                continue  # an autoscaler replaces replicas itself
            for row in self._found.policies:
                self._show(f"{row.name}: {what}")
                self._lost(
                    scaled_loss(
                        self._cases, what, losing, row.policy, self._cold_start_s
                    )
                )

    def _lost(self, loss: Loss) -> None:
        self._found = replace(self._found, losses=(*self._found.losses, loss))

    def _break_even(self) -> None:
        for row in self._found.policies:
            self._show(f"finding the cold start at which {row.name} stops paying")

            def pays(cold_start_s: float, policy: str = row.policy) -> bool:
                scaled = self._cases.scaled(policy, cold_start_s)
                if not scaled.meets:
                    return False
                fixed = self._cases.as_good_as(scaled)
                return fixed is not None and scaled.costs_less_than(fixed)

            first_s = self._cold_start_s
            lasts_s = self._cases.load.base.duration_s
            most_s = min(lasts_s, max(MOST_S, first_s))
            found = break_even(pays, row.pays, first_s, most_s)
            self._add(replace(row, break_even_s=found))
