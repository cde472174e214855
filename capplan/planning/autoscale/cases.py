"""Fleets on the same requests: each simulated once, and its replica-hours."""

from dataclasses import dataclass, field, replace

import numpy as np

from capplan.deployment.changes import Change
from capplan.deployment.pools import Deployment
from capplan.errors import HostFullError
from capplan.fleet.bills import signed
from capplan.planning.autoscale.settings import AutoscaleSettings
from capplan.planning.configure.deployments import changing
from capplan.planning.count_ladder import fewest_that
from capplan.planning.evaluate.judging import Judging
from capplan.planning.evaluate.replica_hours import Hours, ReplicaHours
from capplan.planning.evaluate.run import Run, judged_run
from capplan.planning.load.load import Load
from capplan.planning.money.cost import alike, bills_of, of_provider, warn_of_doubts
from capplan.simulator.fleet.fleet import Stopped
from capplan.workload.slo import Slo

_HOUR_S = 3600.0
_MOST_TIMES = 4
"""Times a policy's peak up to which a fixed fleet is sought that attains as much."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a fleet attained, and its hours, without the table of its requests."""

    deployment: Deployment
    meets: bool  # the target
    slo_attainment: float
    worst_hour_attainment: float | None  # None where no hour tells it
    hours: Hours
    makespan_s: float  # from the first arrival to the last token [s]
    moments: ReplicaHours | None  # replicas over time; None: always as many
    usd_per_month: float | None  # None without a price
    judged_s: float | None = None  # windows that are to attain the target [s]

    @property
    def replica_count(self) -> int:
        """Replicas at the start; of a fixed fleet, always."""
        return self.deployment.replica_count

    @property
    def gpu_hours_paid(self) -> float:
        """From a replica's order until it is gone. [GPU h]"""
        return self.hours.paid_h * self.deployment.pool.configuration.gpus

    @property
    def gpu_hours_ready(self) -> float:
        """From a replica's first request on until it is gone. [GPU h]"""
        return self.hours.ready_h * self.deployment.pool.configuration.gpus

    @property
    def gpu_hours_busy(self) -> float:
        """In which an iteration ran. [GPU h]"""
        return self.hours.busy_h * self.deployment.pool.configuration.gpus

    def share_of(self, other: "Outcome") -> float | None:
        """Return its bill in whole nodes over another's; None where that is nothing.

        Where a price is not known, replica-hours paid.
        """
        ours, theirs = self.usd_per_month, other.usd_per_month
        if ours is None or theirs is None:
            ours, theirs = self.hours.paid_h, other.hours.paid_h
        return ours / theirs if theirs else None

    def costs_less_than(self, other: "Outcome") -> bool:
        """Return whether it bills less, by more than rounding."""
        share = self.share_of(other)
        return share is not None and share < 1 - 1e-9

    def attains(self, other: "Outcome") -> bool:
        """Return whether it attains as much as another, in the worst hour too."""
        worst, other_worst = self.worst_hour_attainment, other.worst_hour_attainment
        if other_worst is not None and (worst is None or worst < other_worst):
            return False
        return self.slo_attainment >= other.slo_attainment


def outcome_of(run: Run) -> Outcome:
    """Return what a run attained."""
    attainment = run.judgement.attainment
    windows = run.judgement.in_windows.worst
    worst = [each for each in windows if each.seconds == _HOUR_S]
    return Outcome(
        run.deployment,
        run.judgement.meets is True,
        0.0 if attainment is None else attainment.share,
        worst[0].slo_attainment if worst else None,
        hours_of(run),
        run.simulation.totals.makespan_s,
        run.hours,
        None if run.cost is None else run.cost.usd_per_month,
        next((each.seconds for each in windows if each.is_judged), None),
    )


def hours_of(run: Run) -> Hours:
    """Return the replica-hours of a run, whether its replicas come and go or not."""
    if run.hours is not None:
        return run.hours
    paid_h = run.replica_count * run.simulation.totals.makespan_s / _HOUR_S
    return Hours(
        paid_h=paid_h,
        ready_h=paid_h,
        busy_h=run.simulation.busy_s / _HOUR_S,
        mean_replicas=float(run.replica_count),
        peak_replicas=run.replica_count,
        actions_per_day=0.0,
    )


@dataclass(eq=False)
class Cases:
    """Fleets that serve the same requests; each is simulated once."""

    settings: AutoscaleSettings
    load: Load  # one sample, as it is
    slo: Slo
    deployment: Deployment  # its replicas, as many as there are at the start
    stopped: Stopped | None = None
    _fixed: dict[int, Outcome] = field(default_factory=dict)

    def buy_for(self, count: int) -> None:
        """Buy all nodes of the provider whose bill counts for so many replicas."""
        pool = replace(self.deployment.pool, replica_count=count)
        if pool.configuration.price is not None:
            provider = signed(bills_of([pool])).provider
            pools = of_provider(self.deployment.pools, provider)
            self.deployment = replace(self.deployment, pools=pools)
            warn_of_doubts(pool.configuration.gpu, [p for p, _ in alike([pool])])

    def fixed_run(self, count: int) -> Run:
        """Return the run of a fixed fleet, without its table of requests."""
        run = self.run(self.deployment.with_replicas(count))
        self._fixed[count] = outcome_of(run)
        return run.without_requests()

    def fixed(self, count: int) -> Outcome:
        """Return what a fixed fleet attains."""
        if count not in self._fixed:
            self.fixed_run(count)
        return self._fixed[count]

    def scaled(self, policy: str, cold_start_s: float) -> Outcome:
        """Return what an autoscaled fleet attains that loses nothing."""
        return outcome_of(self.run(self.scaled_by(policy, cold_start_s)))

    def scaled_by(
        self, policy: str, cold_start_s: float, losing: AutoscaleSettings | None = None
    ) -> Deployment:
        """Return an autoscaled deployment, with what it loses.

        Of replicas that die together only those that are there do.
        """
        settings = losing or self.settings.without_losses()
        settings = settings.model_copy(update={"cold_start": f"{cold_start_s!r}s"})
        deployment = changing(
            settings, self.deployment, self.load.trace, policy, settings.seed
        )
        changes: list[Change] = []
        for change in deployment.changes:
            one = replace(change, count=1, of=max(change.of, 1))
            changes += [one] * change.count if change.kind == "fail" else [change]
        return replace(deployment, changes=tuple(changes))

    def run(self, deployment: Deployment) -> Run:
        """Simulate and judge a deployment; raise Interrupted when that is to stop."""
        metrics = ("ttft_s", "tpot_s", "e2e_s")
        how = Judging(self.settings.seed, metrics, stopped=self.stopped)
        return judged_run(self.load, self.slo, deployment, how)

    def as_good_as(self, other: Outcome) -> Outcome | None:
        """Return the smallest fixed fleet that attains as much as another, or None.

        In all, and in the worst hour. It is taken for granted that more replicas do
        not attain less; the count below the one returned was simulated and does.
        """

        def attains(count: int) -> bool:
            try:
                return self.fixed(count).attains(other)
            except HostFullError:
                return False

        most = _MOST_TIMES * max(other.hours.peak_replicas, 1)
        first = max(1, min(most, self.deployment.replica_count))
        fewest = fewest_that(attains, first, most, 1.5)
        return None if fewest is None else self.fixed(fewest)


def one_sample(load: Load) -> Load:
    """Return requests as one trace, also where arrivals are drawn."""
    if load.process is None:
        return load
    return replace(load, base=load.trace, process=None, request_count=0)


def since_s(load: Load) -> np.ndarray:
    """Return the arrivals of all requests since the first one. [s]"""
    arrival_s = load.trace.arrival_s
    assert arrival_s is not None  # read from a trace, or drawn
    return np.asarray(arrival_s - arrival_s[0])
