"""Deployments of one pool, from what a test has at hand."""

from dataclasses import replace

from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import Deployment
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.run import Run
from capplan.planning.money.cost import cost
from capplan.simulator.schedulers import parse_scheduler


def fleet_of(tables, engine, replica_count=1, *, router="jsq", scheduler=None):
    """Return equal replicas; ``scheduler`` is a text, by default the engine's own."""
    if scheduler is not None:
        engine = replace(engine, scheduler=parse_scheduler(scheduler))
    return Deployment.of(Configuration(engine, tables), replica_count, router)


def changed(run, replica_count=None, **changes):
    """Return a run with another count, or with changes to its configuration."""
    count = replica_count or run.replica_count
    configuration = replace(run.configuration, **changes)
    return replace(
        run, deployment=Deployment.of(configuration, count, run.deployment.router)
    )


def candidate_of(configuration, replica_count):
    """Return a feasible candidate of so many replicas, of which no more is known."""
    run = Run(Deployment.of(configuration, replica_count), "", (), None, None, None)
    candidate = Candidate.of(configuration, "feasible")
    return replace(candidate, run=run, cost=cost(run.deployment.pools))


def rated(candidate, ratio):
    """Return a candidate of which real engines sustain these shares (low, high)."""
    pool = candidate.run.deployment.pool
    configuration = replace(pool.configuration)
    vars(configuration)["capacity_ratio"] = ratio  # of a profile, computed once
    deployment = Deployment.of(configuration, pool.replica_count)
    run = replace(candidate.run, deployment=deployment)
    return replace(candidate, configuration=configuration, run=run)
