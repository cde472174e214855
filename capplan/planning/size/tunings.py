"""Which configurations a smaller token budget may make the best."""

from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.inputs import PlanInputs
from capplan.planning.size.candidates import Tuning
from capplan.planning.size.prospects import (
    Prospect,
    feasible_of,
    most_against,
    price_of,
    without_doubts,
)


def tunings(
    inputs: PlanInputs, simulated: list[Prospect], done: list[Candidate]
) -> list[Tuning]:
    """Return the configurations that a smaller token budget may make the best.

    Of each the largest count that beats the best candidate: one replica fewer of the
    best itself, of the others fewer GPUs or a lower cost than it has.
    """
    rows = {row.key: row for row in done}
    feasible = feasible_of(done)
    tunings = []
    for prospect in simulated:
        configuration = prospect.configuration
        row = rows[configuration.key]
        rivals = feasible if configuration.is_estimated else without_doubts(feasible)
        best = min(rivals, key=price_of, default=None)
        max_replicas = 0 if row.replica_count is None else row.replica_count - 1
        if best is not None and row is not best:
            beats = most_against(configuration, [best])
            max_replicas = (
                beats if row.replica_count is None else min(beats, max_replicas)
            )
        if max_replicas >= max(1, prospect.bound.replica_count):
            run = row.run
            router = inputs.routers[0] if run is None else run.deployment.router
            tunings.append(Tuning(prospect, router, max_replicas))
    return tunings
