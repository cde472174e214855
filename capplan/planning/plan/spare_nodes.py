"""Spare nodes of a plan, and what it attains when more nodes are gone than those."""

import math
from dataclasses import dataclass, replace

import numpy as np

from capplan.deployment.changes import Absence, busiest_s, outage
from capplan.deployment.pools import Deployment
from capplan.errors import InputError
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.inputs import PlanInputs, Progress
from capplan.planning.evaluate.judging import BUDGET_REQUESTS, Judging
from capplan.planning.evaluate.run import judged_run
from capplan.planning.money.cost import HOURS_PER_MONTH
from capplan.planning.money.spares import failures_per_node_day, spares_at
from capplan.simulator.checks import check_deployment

_HOUR_S = 3600.0
_BEYOND = 2
"""Nodes gone beyond the spares that are simulated, at most."""


@dataclass(frozen=True)
class NodesGone:
    """What the fleet attains while nodes are gone, the spares in the place of some."""

    nodes_gone: int
    replica_count: int  # that serve
    slo_attainment: float  # of the busiest hour; of all at a rate that stays


@dataclass(frozen=True)
class SpareNodes:
    """How many spare nodes keep the planned ones up, and what they are worth."""

    availability: float  # share of the time in which enough nodes are up
    repair_h: float  # until a failed node serves again [h]
    failures_per_node_day: float | None = None  # None where nodes are not known
    node_count: int | None = None  # planned, without spares
    spare_nodes: int | None = None
    # at the low and the high published rate of failures; None where it is given
    spare_nodes_range: tuple[int, int] | None = None
    replicas_per_node: int | None = None
    nodes_per_replica: int = 1  # a replica is down while any of its nodes is away
    usd_per_month: float | None = None  # of the spares [$]
    usd_per_node_month: float | None = None  # of one node more [$]
    # in which the requests arrive that tell; None: all, at a rate that stays [s]
    busiest_s: float | None = None
    # nodes are gone during all requests: such replicas are not simulated as they die
    is_gone_throughout: bool = False
    # none, then one more than the spares, and two more
    gone: tuple[NodesGone, ...] = ()
    reason: str = ""  # why no number is known
    untested: str = ""  # why nothing was taken away


def spares_of(
    inputs: PlanInputs, candidate: Candidate, progress: Progress
) -> SpareNodes:
    """Return the spare nodes of a candidate, tested by taking nodes away."""
    settings, cost = inputs.settings, candidate.cost
    assert settings.availability is not None
    assert candidate.run is not None
    availability, repair_h = settings.availability, settings.repair_h
    rows = () if cost is None else cost.nodes
    nodes = max(rows, key=lambda row: row.gpus_per_node or math.inf, default=None)
    if nodes is None or nodes.gpus_per_node is None or nodes.count is None:
        reason = "the nodes are not known: choose some with --nodes or --provider"
        return SpareNodes(availability, repair_h, reason=reason)
    deployment = candidate.run.deployment
    # Of several sizes all are taken for the largest, which takes most with it.
    size, count = nodes.gpus_per_node, int(sum(row.count or 0 for row in rows))
    node_usd = HOURS_PER_MONTH * nodes.usd_per_h / nodes.count
    gpus = deployment.pool.configuration.gpus
    each = -(-gpus // size)  # nodes of a replica; spares are as many for another
    needed = spares_at(
        count // each, size, repair_h, availability, settings.failures, each
    )
    ends = None
    if needed.low is not None and needed.high is not None:
        ends = each * needed.low, each * needed.high
    spares = each * needed.count
    found = SpareNodes(
        availability,
        repair_h,
        failures_per_node_day(size, settings.failures),
        count,
        spares,
        ends,
        max(1, size // gpus),
        each,
        node_usd * spares,
        node_usd,
        None if inputs.load.process is not None else min(_HOUR_S, repair_h * _HOUR_S),
        inputs.load.process is None and not _may_die(deployment),
    )
    progress("taking nodes away at the busiest hour")
    gone, untested = _tested(inputs, deployment, found)
    return replace(found, gone=gone, untested=untested)


def _may_die(deployment: Deployment) -> bool:
    """Return whether replicas of a fleet are simulated as they die and come back."""
    try:
        check_deployment(deployment, moves=True)
    except InputError:
        return False
    return True


def _tested(
    inputs: PlanInputs, deployment: Deployment, found: SpareNodes
) -> tuple[tuple[NodesGone, ...], str]:
    """Return what is attained with nodes gone, or why it was not simulated."""
    assert found.spare_nodes is not None
    rows = []
    most = min((found.node_count or 0) // found.nodes_per_replica, _BEYOND)
    try:
        for beyond in range(most + 1):
            lost = min(
                beyond * (found.replicas_per_node or 1), deployment.replica_count
            )
            left = deployment.replica_count - lost
            attainment = 0.0
            if left:
                attainment = _attainment(inputs, deployment, lost, found)
            # Of a replica on several nodes one: each may be of another replica.
            stood_in = found.spare_nodes // found.nodes_per_replica
            gone = beyond + (stood_in if beyond else 0)
            rows.append(NodesGone(gone, left, attainment))
    except InputError as error:
        return (), str(error)
    return tuple(rows), ""


def _attainment(
    inputs: PlanInputs, deployment: Deployment, lost: int, found: SpareNodes
) -> float:
    """Return what is attained without some replicas.

    Of a trace's own arrivals by the requests of the busiest hour, or of the busiest
    time of repair where that is shorter; else of all, at the rate that stays. Replicas
    that are not simulated as they die are away from the start.
    """
    load, slo = inputs.load, inputs.slo
    arrival_s = load.trace.arrival_s
    smaller = deployment.with_replicas(deployment.replica_count - lost)
    if found.busiest_s is None or arrival_s is None:
        how = Judging(inputs.settings.seed, (), BUDGET_REQUESTS)
        attainment = judged_run(load, slo, smaller, how).judgement.attainment
        return 0.0 if attainment is None else attainment.share
    begin_s = busiest_s(arrival_s, found.busiest_s)
    losing = smaller if found.is_gone_throughout else deployment
    if lost and losing is deployment:
        since_s = begin_s - float(arrival_s[0])
        absence = Absence(lost, since_s, _HOUR_S * found.repair_h)
        changes = outage(absence, arrival_s, comes_back=True)
        losing = replace(deployment, changes=changes)
    run = judged_run(load, slo, losing, Judging(inputs.settings.seed, ()))
    times, names = run.simulation.table, run.simulation.class_names
    met = np.logical_and.reduce(times.met(slo.columns(times.request_class, names)))
    rows = (times.arrival_s >= begin_s) & (times.arrival_s < begin_s + found.busiest_s)
    return float(met[rows].mean())
