"""One deployment, simulated and judged: what every command reports of it."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import Deployment
from capplan.errors import collected_warnings, warn
from capplan.planning.configure.configuration import only_configuration
from capplan.planning.configure.deployments import STICKY_ROUTER, of_pools, simulated
from capplan.planning.configure.launch import Launch, launch
from capplan.planning.configure.prefix_caching import with_caching_as_used
from capplan.planning.evaluate.executors import Interrupted
from capplan.planning.evaluate.inputs import PlanInputs
from capplan.planning.evaluate.judged_windows import with_windows
from capplan.planning.evaluate.judgement import Judge, Judgement
from capplan.planning.evaluate.judging import BUDGET_REQUESTS, OF_FEW, THOROUGH, Judging
from capplan.planning.evaluate.of_sessions import (
    SessionsServed,
    judged_sessions,
    served,
)
from capplan.planning.evaluate.predictions import predictions_matter
from capplan.planning.evaluate.replica_hours import ReplicaHours, replica_hours
from capplan.planning.evaluate.replications import (
    drawn_steadiness,
    first_looks,
    given_steadiness,
    replicated,
)
from capplan.planning.evaluate.split_run import split_simulation
from capplan.planning.evaluate.steadiness import Steadiness
from capplan.planning.evaluate.streaming import RequestProgress, streamed, watching
from capplan.planning.evaluate.work import Work, work_of
from capplan.planning.load.load import Load
from capplan.planning.load.session_load import SessionLoad
from capplan.planning.load.traffic import is_streamed, judged_traffic
from capplan.planning.money.cost import Cost, cost
from capplan.planning.settings.plan import SimulateSettings
from capplan.planning.shown import Shown
from capplan.simulator.fleet.fleet import Stopped
from capplan.simulator.results.sample import Sample, sample_of
from capplan.simulator.results.table import Finished, Table, finished_part
from capplan.simulator.results.times import Simulation
from capplan.simulator.results.turns import OneSession, one_session
from capplan.simulator.simulate import simulate
from capplan.workload.slo import Slo
from capplan.workload.trace import Trace

FILLING = (
    "the trace ends while the fleet is still filling with long requests; steady "
    "traffic may need more"
)


@dataclass(frozen=True, eq=False, repr=False)
class Run(Shown):
    """One deployment, simulated and judged."""

    deployment: Deployment
    trace_source: str
    trace_notes: tuple[str, ...]  # what the reader says of the requests
    slo: Slo | None  # None when none was given
    simulation: Simulation  # its table of requests may be absent
    judgement: Judgement  # what counts of it, and what it shows
    warnings: tuple[str, ...] = ()  # for the reader
    launch: Launch | None = None  # how to start a replica; of two pools to decode
    prefill_launch: Launch | None = None  # for prompts alone, where there are such
    work: Work | None = None  # whose; None while its table of requests is there
    sessions: SessionsServed | None = None  # of conversations
    # some of its turns; None while its table of requests is there
    kept_session: OneSession | None = None

    @property
    def configuration(self) -> Configuration:
        """What its replicas are; of two pools those that decode."""
        return self.deployment.pools[-1].configuration

    @property
    def replica_count(self) -> int:
        """Replicas of all pools."""
        return self.deployment.replica_count

    @cached_property
    def hours(self) -> ReplicaHours | None:
        """Replica-hours, where replicas come and go."""
        if self.simulation.lives is None or self.simulation.times is None:
            return None
        asked, scaled = self.deployment, bool(self.deployment.autoscaler)
        return replica_hours(self.simulation, 0 if scaled else asked.replica_count)

    @cached_property
    def cost(self) -> Cost | None:
        """What its pools cost, and its tokens; None without a price.

        Under an autoscaler the nodes that are paid in the mean.
        """
        totals, hours = self.simulation.totals, self.hours
        scaled = bool(self.deployment.autoscaler)
        work = self.work or work_of(self.simulation, self.deployment)
        return cost(
            self.deployment.pools,
            paid_shares=hours.paid_shares if scaled and hours else None,
            rate_per_s=totals.rate_per_s,
            mean_prompt_tokens=totals.mean_prompt_tokens,
            mean_output_tokens=totals.mean_output_tokens,
            mean_cached_tokens=totals.cached_tokens / totals.request_count,
            prompt_share=work.prompt_share if work else None,
        )

    @property
    def busy_share(self) -> float:
        """Share of the time of replicas that are ready in which an iteration ran."""
        hours = self.hours
        if hours is None:
            return self.simulation.busy_share
        return hours.busy_h / hours.ready_h if hours.ready_h > 0 else 0.0

    @property
    def interrupted_of(self) -> int | None:
        """Requests of the trace, where it was stopped before all had finished."""
        return self.simulation.arrived_count if self.simulation.interrupted else None

    @property
    def output_tokens_per_s(self) -> float:
        """Output tokens of all requests over the time to the last. [tokens/s]

        Of users those given while requests count, over that time.
        """
        totals = self.simulation.totals
        if totals.answers is not None:
            return totals.answers.output_tokens_per_s
        return totals.output_tokens / totals.makespan_s if totals.makespan_s > 0 else 0

    @property
    def span_output_tokens_per_s(self) -> float | None:
        """Output tokens from the first arrival to the last, over that time. [tokens/s]

        None where requests were not kept, arrive at one moment, or are users'.
        """
        if self.simulation.totals.answers is not None:
            return None
        times, span_s = self.simulation.times, self.simulation.totals.duration_s
        if times is None or not span_s > 0:
            return None
        return times.output_tokens_by(float(times.arrival_s.max())) / span_s

    @property
    def completed_per_s(self) -> float:
        """Rate of finished requests: that of arrivals, unless the queue grows.

        [requests/s]
        """
        totals = self.simulation.totals
        known = totals.answers is not None or not totals.makespan_s > 0
        if self.judgement.stable or known:
            return totals.rate_per_s
        load = self.judgement.steadiness
        if load.overloaded:
            return totals.rate_per_s / load.utilisation
        return min(totals.rate_per_s, totals.request_count / totals.makespan_s)

    @property
    def goodput_per_s(self) -> float | None:
        """Rate of requests that meet their SLO. [requests/s]"""
        attainment = self.judgement.attainment
        if attainment is None or not self.completed_per_s > 0:
            return None
        return attainment.share * self.completed_per_s

    def without_requests(self) -> "Run":
        """Return the run without its table of requests, but with whose work it did."""
        work = self.work or work_of(self.simulation, self.deployment)
        alone, kept = replace(self.simulation, times=None), self.one_session
        return replace(self, simulation=alone, work=work, kept_session=kept)

    @property
    def one_session(self) -> OneSession | None:
        """Turns of a session that stands for others; None where there are none."""
        simulation = self.simulation
        if simulation.times is None or simulation.turns is None:
            return self.kept_session
        if not len(simulation.table):
            return None
        return one_session(simulation.table, simulation.turns, self.judgement.warmup_s)


def judged_run(
    load: Load,
    slo: Slo | None,
    deployment: Deployment,
    how: Judging,
    first: Simulation | None = None,
) -> Run:
    """Simulate a deployment and judge it.

    Drawn arrivals are judged by :func:`replicated`; where the first sample attains less
    than half of the target, or only it is asked for, by that alone, and where a few of
    its length that start empty decide that the SLO is missed, by these. ``first`` is
    the first sample where it was simulated already.
    """
    simulate_with = how.simulate_with
    if deployment.split is not None:
        simulate_with = split_simulation(simulate_with)

    def simulated(trace: Trace) -> Simulation:
        simulation = simulate_with(
            trace, deployment, slo=slo, seed=how.seed, stopped=how.stopped
        )
        if simulation.interrupted:
            raise Interrupted
        return simulation

    if first is None:
        first = simulated(load.trace)
    load, first = load.as_served(first, simulated)
    of_sessions = None
    if isinstance(load, SessionLoad):
        of = (simulated, load, slo, deployment, how, first)
        load, first, judgement = judged_sessions(*of)
        of_sessions = served(load, first, deployment, slo)
    else:
        judgement = _of_requests(simulated, load, slo, deployment, how, first)
    if not how.by_then and how.stopped is not None and how.stopped():
        raise Interrupted
    varies = load.process is None or deployment.is_changing
    if slo is not None and varies and len(first.table):
        judgement = with_windows(judgement, first, slo, load)
    if judgement.answers is not None:  # the rate is that of what counts
        judgement = replace(judgement, unsteady=load.unsteady(judgement.answers))
        totals = replace(first.totals, answers=judgement.answers)
        first = replace(first, totals=totals)
    given = deployment, load.base.source, load.base.notes, slo, first, judgement
    return Run(*given, sessions=of_sessions)


def _of_requests(
    simulated: Callable[[Trace], Simulation],
    load: Load,
    slo: Slo | None,
    deployment: Deployment,
    how: Judging,
    first: Simulation,
) -> Judgement:
    """Return the judgement of requests whose first sample was simulated."""
    metrics = how.metrics
    alone = sample_of(first, slo, load.warmup_s, metrics, load.until_s)
    judge, judgement = Judge(slo, first.class_names), None
    if deployment.is_changing:  # what it does now is not what it will do
        steadiness = Steadiness()
    elif slo is not None and how.only_whether and _misses(load, alone, judge):
        steadiness = Steadiness(drawn=load.is_resampled)
    elif slo is not None and load.is_resampled and not first.interrupted:
        steadiness = drawn_steadiness(load, deployment, slo)
        judge = replace(judge, steadiness=steadiness)
        short = how.first_only or steadiness.overloaded or judge.is_hopeless(alone)
        with suppress(Interrupted):
            looks = [] if short else first_looks(simulated, load, slo, alone, metrics)
            if looks and judge.verdict(looks) is False:
                judgement = judge.judgement(looks, load.warmup_s)
            elif looks:
                judgement = replicated(simulated, load, judge, deployment, how)
    else:
        steadiness = given_steadiness(load, deployment, slo, first)
    if judgement is None:
        judge = replace(judge, steadiness=steadiness)
        judgement = judge.judgement([alone], load.warmup_s)
    return judgement


def _misses(load: Load, first: Sample, judge: Judge) -> bool:
    """Return whether a first sample misses the SLO whatever the utilisation."""
    if load.is_resampled:
        return judge.is_hopeless(first)
    return judge.verdict([first]) is False


def simulate_deployment(
    settings: SimulateSettings,
    progress: RequestProgress | None = None,
    stopped: Stopped | None = None,
    on_finished: Finished | None = None,
) -> Run:
    """Simulate one deployment and judge it; a large CSV is streamed.

    ``progress`` gets the requests that have finished, and all there are where known.
    When ``stopped`` says so, the run is that of the first requests; before any has
    finished, KeyboardInterrupt is raised. ``on_finished`` gets the requests of a
    streamed run, which keeps no table.
    """
    with collected_warnings() as texts:
        slo = settings.objective()
        of = of_pools(settings, only_configuration(settings))
        if is_streamed(settings):
            how = (settings, of, slo, progress, stopped, on_finished)
            deployment, simulation, warmup_s = streamed(*how)
            judge = Judge(slo, simulation.class_names)
            judgement = judge.judgement([sample_of(simulation, slo)], warmup_s)
            path = str(settings.trace)
            run = Run(deployment, path, (), slo, simulation, judgement)
        else:
            run = _kept(settings, of, slo, progress, stopped)
        if run.judgement.steadiness.filling:
            warn(FILLING)
        if run.judgement.unsteady:
            warn(run.judgement.unsteady)
        if run.sessions is not None and (caution := run.sessions.caution()):
            warn(caution)
    hand_off, pools = run.deployment.hand_off, run.deployment.pools
    started = [launch(pool.configuration, settings, hand_off) for pool in pools]
    return replace(
        run,
        warnings=tuple(texts),
        launch=started[-1],
        prefill_launch=started[0] if hand_off else None,
    )


def _kept(
    settings: SimulateSettings,
    configurations: Sequence[Configuration],
    slo: Slo | None,
    progress: RequestProgress | None,
    stopped: Stopped | None,
) -> Run:
    rng = np.random.default_rng(settings.seed)
    asked = settings
    if settings.changes_replicas and settings.extend is None:  # all the time asked for
        asked = settings.model_copy(update={"extend": False})
    load = judged_traffic(asked, slo, rng, configurations)
    if isinstance(load, SessionLoad) and settings.router is None:
        settings = settings.model_copy(update={"router": STICKY_ROUTER})
    shares = bool(load.base.prefix_tokens.any())
    of = [with_caching_as_used(each, settings, shares) for each in configurations]
    deployment = simulated(settings, of, load.trace)

    def look(trace: Trace) -> Simulation:
        return simulate(
            trace,
            deployment,
            slo=slo,
            seed=settings.seed,
            sink=Table(watching(progress, len(trace))),
            record_iterations=bool(settings.record_iterations or settings.trace_events),
            stopped=stopped,
        )

    def longer(trace: Trace) -> Simulation:
        simulation = look(trace)
        if simulation.interrupted:
            raise Interrupted
        return simulation

    simulation = look(load.trace)
    if simulation.interrupted:  # then the first sample alone is judged
        simulation = finished_part(simulation)
        if not isinstance(load, SessionLoad):
            load = replace(load, base=load.trace, request_count=0)
    elif (
        predictions_matter(
            load.trace, deployment, slo, settings.seed, stopped, simulation
        )
        is False
    ):
        warn(
            "the predicted answer lengths change nothing: with true ones every request "
            f"finishes at the same time (scheduler {of[-1].engine.scheduler}, "
            f"router {deployment.placed_by})"
        )
    with suppress(Interrupted):
        load, simulation = load.as_served(simulation, longer)
    how = Judging(settings.seed, stopped=stopped, by_then=True)
    return judged_run(load, slo, deployment, how, simulation)


def run_of(
    inputs: PlanInputs,
    deployment: Deployment,
    *,
    thorough: bool = False,
    metrics: tuple[str, ...] = ("ttft_s", "tpot_s", "e2e_s"),
    only_whether: bool = False,
) -> Run:
    """Simulate a deployment and judge it.

    Of several configurations each count gets fewer samples, unless ``thorough``. Raises
    Interrupted when the plan is to stop.
    """
    few = OF_FEW if inputs.candidate_count <= 2 else 1
    how = inputs.judging(
        metrics=metrics,
        budget_requests=BUDGET_REQUESTS * (THOROUGH if thorough else few),
        only_whether=only_whether or inputs.only_price,
        simulate_with=inputs.simulate_with,
    )
    return judged_run(inputs.load, inputs.slo, deployment, how)
