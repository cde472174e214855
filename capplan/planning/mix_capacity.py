"""What a replica of each kind carries of requests of each size."""

from dataclasses import replace
from functools import partial

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.deployment.split import SizeBand
from capplan.errors import InputError, collected_warnings
from capplan.planning.candidates import cannot_serve
from capplan.planning.deployments import one_pool
from capplan.planning.executors import side_by_side
from capplan.planning.inputs import PlanInputs, Progress
from capplan.planning.load import OpenLoad
from capplan.planning.replica_load import replica_load
from capplan.planning.replications import Interrupted

FLEET = 4
"""Replicas among which the requests of a band are balanced, to measure one."""
LEAST_REQUESTS = 4_000
"""Requests by which a rate is judged: 40 may miss a target of 99 %."""


def capacities(
    inputs: PlanInputs,
    bands: tuple[SizeBand, ...],
    kinds: list[Configuration],
    progress: Progress,
) -> np.ndarray:
    """Return the highest rate of each band on a replica of each kind.

    Shape (bands, kinds), 0 where a kind does not serve the band within its SLO; each
    by bisection on the rate of a Poisson process, simulated. [requests/s]
    """
    found = np.zeros((len(bands), len(kinds)))
    for column, kind in enumerate(kinds):
        progress(f"measuring what a replica of {kind} carries", column / len(kinds))
        found[:, column] = side_by_side(partial(_capacity, inputs, kind), bands)
    return found


def _capacity(inputs: PlanInputs, kind: Configuration, band: SizeBand) -> float:
    """Return the highest rate of a band alone on a replica of a kind. [requests/s]"""
    if inputs.is_stopped():
        raise Interrupted
    base = inputs.load.base
    part = base.select(band.holds(base))
    alone = replace(inputs, load=OpenLoad(part, None))
    with collected_warnings():
        if cannot_serve(alone, kind) is not None:
            return 0.0
        # The requests have their predicted lengths already.
        read = {"predictor": None, "scale": None}
        settings = inputs.settings.model_copy(update=read)
        deployment = one_pool(inputs.settings, kind, FLEET)
        try:
            carried = replica_load(
                settings,
                part,
                inputs.slo,
                deployment,
                inputs.stopped,
                least_requests=LEAST_REQUESTS,
            )
        except InputError:  # a policy that refuses these requests does not serve them
            return 0.0
    return 0.0 if carried is None else carried.rate_per_s
