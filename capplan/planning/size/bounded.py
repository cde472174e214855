"""Configurations that cannot serve the requests, and bounds of the others."""

from dataclasses import replace

from capplan.deployment.configuration import Configuration
from capplan.planning.configure.excluded import Excluded
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.executors import side_by_side
from capplan.planning.evaluate.inputs import PlanInputs, Progress
from capplan.planning.evaluate.saturation import saturation
from capplan.planning.prove.proof import bound_of
from capplan.planning.size.candidates import cannot_serve
from capplan.planning.size.prospects import NOT_BOUNDED, Prospect, cheapest_first
from capplan.simulator.checks import check_engine


def bounded(
    inputs: PlanInputs, tried: list[Configuration | Excluded], progress: Progress
) -> tuple[list[Candidate], list[Prospect]]:
    """Return the configurations that cannot serve, and the others with their bounds.

    Where one is likely the best, the others are bounded only once they may still win.
    """
    infeasible: list[Candidate] = []
    able: list[Configuration] = []
    for configuration in tried:
        if isinstance(configuration, Excluded):
            infeasible.append(
                Candidate(
                    configuration.gpu,
                    configuration.tp,
                    "infeasible",
                    infeasible_reason=configuration.reason,
                    layout=configuration.layout,
                )
            )
            continue
        check_engine(configuration.engine)
        reason = cannot_serve(inputs, configuration)
        if reason is not None:
            candidate = Candidate.of(configuration, "infeasible")
            infeasible.append(replace(candidate, infeasible_reason=reason))
            continue
        able.append(configuration)
    progress(f"bounding {', '.join(map(str, able))}")
    held = side_by_side(lambda configuration: _held(inputs, configuration), able)
    prospects = [
        Prospect(configuration, NOT_BOUNDED, held=count)
        for configuration, count in zip(able, held, strict=True)
    ]
    likely = [row for row in prospects if row.configuration.key == inputs.likely]
    first = likely or prospects
    others = [row for row in prospects if row not in first]
    return infeasible, [*with_bounds(inputs, first), *others]


def with_bounds(inputs: PlanInputs, prospects: list[Prospect]) -> list[Prospect]:
    """Return prospects with their bounds, the cheapest first."""

    def with_bound(prospect: Prospect) -> Prospect:
        bound, sample = bound_of(inputs, prospect.configuration)
        return replace(prospect, bound=bound, sample=sample)

    return sorted(side_by_side(with_bound, prospects), key=cheapest_first)


def _held(inputs: PlanInputs, configuration: Configuration) -> int:
    """Return the fewest replicas with a utilisation below 1; 0 where it tells nothing.

    That is for arrivals of a trace's own, and for policies that let long requests wait.
    """
    if not (inputs.load.is_resampled and inputs.load.is_open):
        return 0
    found = saturation(inputs.load, configuration, inputs.slo)
    if found is None or not found.binds:
        return 0
    return found.replicas_at(inputs.load.rate_per_s)
