"""What a fleet attains while replicas are gone, and how many spares keep its SLO."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from capplan.conflicts import refuse_conflicts
from capplan.deployment.changes import Change
from capplan.deployment.engine import EngineSettings
from capplan.deployment.features import features_of_engine
from capplan.deployment.pools import Deployment
from capplan.planning.autoscale.cases import Cases, outcome_of
from capplan.planning.autoscale.known_to_policies import name_of
from capplan.planning.autoscale.settings import AutoscaleSettings
from capplan.planning.configure.deployments import changing, node_gpus
from capplan.planning.count_ladder import fewest_that
from capplan.planning.evaluate.run import Run

_MOST_TIMES = 2
"""Spares looked at, in times of the fleet."""
_MORE = 8


@dataclass(frozen=True)
class Loss:
    """What a fleet attains while it loses replicas."""

    what: str  # as it was asked for: "outage 2@peak:4h"
    fleet: str  # "fixed", or the policy's name
    replica_count: int  # of a fixed fleet, or at the start
    slo_attainment: float  # of all requests
    worst_hour_attainment: float | None  # None where no hour tells it
    # of requests that arrive while replicas are gone; None where none does
    gone_attainment: float | None
    meets: bool  # the target, in all and while replicas are gone
    recomputed: int  # requests computed again: by a death, or a preemption
    # that an outage takes, and the nodes that they fill; None: none, or not known
    replicas_gone: int | None = None
    nodes_gone: float | None = None
    spares: int | None = None  # of a fixed fleet: more replicas that meet it; or None


def losses_of(settings: AutoscaleSettings) -> list[tuple[str, AutoscaleSettings]]:
    """Return what is to be lost, each by itself, with the settings of that alone."""
    none, found = settings.without_losses(), []
    for text in settings.outage:
        found.append((f"outage {text}", none.model_copy(update={"outage": (text,)})))
    for name in ("rolling_update", "spot"):
        if value := getattr(settings, name):
            text = f"{name.replace('_', ' ')} {value}"
            found.append((text, none.model_copy(update={name: value})))
    return found


def fixed_loss(cases: Cases, what: str, losing: AutoscaleSettings, count: int) -> Loss:
    """Return what a fixed fleet attains, and the spares with which it keeps the SLO."""

    def with_spares(spares: int) -> Loss:
        deployment = _fixed_losing(cases, losing, count + spares)
        return _loss(cases, what, "fixed", cases.run(deployment))

    without = with_spares(0)
    if without.meets:
        return replace(without, spares=0)
    most = _MOST_TIMES * count + _MORE
    spares = fewest_that(lambda more: with_spares(more).meets, 1, most, 2.0)
    return replace(without, spares=spares)


def scaled_loss(
    cases: Cases, what: str, losing: AutoscaleSettings, policy: str, cold_start_s: float
) -> Loss:
    """Return what an autoscaled fleet attains, which orders others itself."""
    deployment = cases.scaled_by(policy, cold_start_s, losing)
    return _loss(cases, what, name_of(policy), cases.run(deployment), cold_start_s)


def _fixed_losing(cases: Cases, losing: AutoscaleSettings, count: int) -> Deployment:
    deployment = cases.deployment.with_replicas(count)
    return changing(losing, deployment, cases.load.trace, "", losing.seed)


def _loss(
    cases: Cases, what: str, fleet: str, run: Run, back_after_s: float = 0.0
) -> Loss:
    times, slo = run.simulation.table, cases.slo
    names = run.simulation.class_names
    met = np.logical_and.reduce(times.met(slo.columns(times.request_class, names)))
    gone = np.zeros(len(met), bool)
    for start_s, end_s in absences(run.deployment.changes, back_after_s):
        gone |= (times.arrival_s >= start_s) & (times.arrival_s < end_s)
    outcome = outcome_of(run)
    keeps = outcome.meets
    for group in slo.groups(names):
        rows = gone & np.isin(times.request_class, group.indices)
        keeps &= not rows.any() or float(met[rows].mean()) >= group.target
    return Loss(
        what,
        fleet,
        run.replica_count,
        outcome.slo_attainment,
        outcome.worst_hour_attainment,
        float(met[gone].mean()) if gone.any() else None,
        keeps,
        int((times.preemptions > 0).sum()),
        *_gone(run.deployment),
    )


def _gone(deployment: Deployment) -> tuple[int | None, float | None]:
    """Return the replicas that die at once, and the nodes that they fill."""
    died = [change for change in deployment.changes if change.kind == "fail"]
    if not died or deployment.cold_start_s:  # one by one, by their cloud or the policy
        return None, None
    count, size = max(change.count for change in died), node_gpus(deployment)
    gpus = deployment.pool.configuration.gpus
    return count, None if size is None else count / max(1, size // gpus)


def absences(
    changes: Iterable[Change], back_after_s: float = 0.0
) -> list[tuple[float, float]]:
    """Return from when to when some replicas are gone. [s]

    ``back_after_s`` is how long those are gone of which no return is known.

    Examples
    --------
    >>> absences([Change(5.0, "fail", 2), Change(9.0, "up", 2)])
    [(5.0, 9.0)]
    >>> absences([Change(5.0, "fail")], 60.0)
    [(5.0, 65.0)]
    """
    ordered = sorted(changes, key=lambda change: change.at_s)
    returning = any(change.kind == "up" for change in ordered)
    found: list[tuple[float, float]] = []
    gone, since_s = 0, 0.0
    for change in ordered:
        if not returning:
            found.append((change.at_s, change.at_s + back_after_s))
        elif change.kind == "up":
            gone -= change.count
            if gone <= 0:
                found.append((since_s, change.at_s))
                gone = 0
        else:
            since_s = change.at_s if gone == 0 else since_s
            gone += change.count
    if gone:
        found.append((since_s, np.inf))
    return found


def check_losses(cases: Cases, count: int) -> None:
    """Refuse losses that a fixed fleet of a count cannot have."""
    for _, losing in losses_of(cases.settings):
        _fixed_losing(cases, losing, count)


def check_scheduler(settings: AutoscaleSettings, engine: EngineSettings) -> None:
    """Refuse replicas that die under a scheduler that does not allow it."""
    for flag in settings.given(("outage", "spot")):
        refuse_conflicts({"deaths": f"--{flag}", **features_of_engine(engine)})
