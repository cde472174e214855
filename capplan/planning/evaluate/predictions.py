"""Whether predicted output lengths change what a fleet does."""

from dataclasses import replace

import numpy as np

from capplan.deployment.pools import Deployment
from capplan.simulator.fleet.fleet import Stopped
from capplan.simulator.results.times import Simulation
from capplan.simulator.simulate import simulate
from capplan.workload.slo import Slo
from capplan.workload.trace import Trace


def predictions_matter(
    trace: Trace,
    deployment: Deployment,
    slo: Slo | None,
    seed: int,
    stopped: Stopped | None = None,
    predicted: Simulation | None = None,
) -> bool | None:
    """Return whether any request finishes at another time with its true length known.

    None where the trace has no predictions. ``predicted`` is the simulation with them,
    where there is one already.
    """
    if trace.predicted_output_tokens is None:
        return None

    def simulated(trace: Trace) -> Simulation:
        return simulate(trace, deployment, slo=slo, seed=seed, stopped=stopped)

    true = replace(trace, predicted_output_tokens=trace.output_tokens)
    found = predicted or simulated(trace)
    return not np.array_equal(
        found.table.finish_s, simulated(true).table.finish_s, equal_nan=True
    )
