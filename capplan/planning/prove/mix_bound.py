"""What no mix of a plan's configurations costs less than."""

from collections.abc import Sequence

import numpy as np

from capplan.bounds.asked import Asked
from capplan.bounds.cost_bound import CostBound, Priced, cost_bound
from capplan.bounds.lower_bound import QUICK, Pricing, proven_pricings
from capplan.deployment.configuration import Configuration
from capplan.planning.configure.scheduling import widest_of_replica
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.inputs import PlanInputs
from capplan.planning.prove.proof import BOUND_SAMPLES, MIX, bound_inputs, group_targets


def bound_of_mix(
    inputs: PlanInputs, kinds: Sequence[Configuration], candidates: Sequence[Candidate]
) -> CostBound:
    """Return the least that any split of the requests over these kinds costs.

    By GPUs, at the price that the plan pays for them. As of one configuration: of
    drawn arrivals the smallest of several samples, or that of the mix.
    """
    priced = [_priced(inputs, kind, candidates) for kind in kinds]
    drawn = inputs.load.is_resampled and inputs.load.is_open
    found = [
        _of_sample(inputs, kinds, priced, sample)
        for sample in range(BOUND_SAMPLES if drawn else 1)
    ]
    least = min(found, key=lambda bound: bound.usd_per_h)
    if not drawn:
        return least
    return max(
        least, _of_sample(inputs, kinds, priced, MIX), key=lambda bound: bound.usd_per_h
    )


def _of_sample(
    inputs: PlanInputs,
    kinds: Sequence[Configuration],
    priced: Sequence[Priced],
    sample: int,
) -> CostBound:
    # All kinds see the same requests; of the mix each is given as many as make the time
    # long for its slowest request, and the kind that is given most is taken.
    columns = [bound_inputs(inputs, kind, sample).columns for kind in kinds]
    most = max(columns, key=lambda each: len(each["arrival_s"]))
    # Due when the last of the kinds would be due.
    slack_s = np.ptp([kind.tables.request_s for kind in kinds])
    given = {**most, "e2e_s": np.asarray(most["e2e_s"]) + slack_s * (sample == MIX)}
    return cost_bound(given, group_targets(inputs, sample), priced)


def _priced(
    inputs: PlanInputs, kind: Configuration, candidates: Sequence[Candidate]
) -> Priced:
    """Return a kind with prices of its iterations that were proven, or are now."""
    assert kind.price is not None
    engine, tables = widest_of_replica(kind)
    usd_per_h = kind.gpus * min(ask.usd_per_gpu_h for ask in kind.price.asks)
    for row in candidates:
        if str(row) == str(kind) and row.bound is not None and row.bound.prices:
            pricing = row.bound.pricing
            return Priced(str(kind), usd_per_h, tables, engine, pricing)
    return Priced(str(kind), usd_per_h, tables, engine, _proven(inputs, kind))


def _proven(inputs: PlanInputs, kind: Configuration) -> Pricing:
    engine, tables = widest_of_replica(kind)
    columns = bound_inputs(inputs, kind).columns
    asked = Asked.of(columns, group_targets(inputs), tables.request_s)
    return next(proven_pricings(asked.requests, tables, engine, QUICK, 1))
