"""Deployments of one pool, from what a test has at hand."""

from dataclasses import replace

from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import Deployment
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
    return replace(run, deployment=Deployment.of(configuration, count, run.router))
