"""The fewest replicas of one configuration that meet the SLO, by simulation."""

from collections.abc import Callable

import numpy as np

from capplan.planning.run import Run

_KV_FULL = 0.97
_PREEMPTED_SHARE = 0.01
_GROWTH = 1.5


def fewest_replicas(
    run_with: Callable[[int], Run], at_least: int, most: int
) -> tuple[Run | None, list[Run]]:
    """Return the run of the first count that meets the SLO, and all runs.

    Brackets from a lower bound upward in growing steps, then bisects. The count
    below the first that meets it is among the runs, and fails, unless it is 0.

    Parameters
    ----------
    run_with
        Simulates and judges a count. Where more replicas change nothing (a router
        that fills replicas leaves the new ones idle), the search gives up.
    at_least
        Lower bound of the count.
    most
        Count at which the search gives up.
    """
    runs: dict[int, Run] = {}

    def meets(count: int) -> bool:
        if count not in runs:
            runs[count] = run_with(count)
        return runs[count].judgement.meets

    low, count = at_least - 1, at_least
    while not meets(count):
        if count >= most or _changes_nothing(runs.get(low), runs[count]):
            return None, [runs[key] for key in sorted(runs)]
        low = count
        # The first miss says how far off the bound is: go near it, then in strides.
        growth = 1.25 if len(runs) == 1 else _GROWTH
        count = min(most, max(count + 1, int(np.ceil(count * growth))))
    high = count
    while high - low > 1:
        middle = (low + high) // 2
        if meets(middle):
            high = middle
        else:
            low = middle
    while high > 1 and meets(high - 1):
        high -= 1
    return runs[high], [runs[key] for key in sorted(runs)]


def _changes_nothing(fewer: Run | None, more: Run) -> bool:
    """Return whether added replicas did not change a single iteration."""
    if fewer is None:
        return False
    shares = [
        run.judgement.attainment and run.judgement.attainment.share
        for run in (fewer, more)
    ]
    return (
        fewer.simulation.iteration_count == more.simulation.iteration_count
        and shares[0] == shares[1]
    )


def binding_limit(failing: Run | None) -> str:
    """Return what keeps the deployment from being smaller.

    Read off the count below, which fails: KV when requests were preempted or the
    cache was full, else the limit that most requests miss. Nothing binds a single
    replica.
    """
    if failing is None:
        return "none"
    simulation = failing.simulation
    preempted = float((simulation.table.preemptions > 0).mean())
    full = float(np.quantile(simulation.series.kv_share, 0.9)) > _KV_FULL
    if preempted > _PREEMPTED_SHARE or full:
        return "KV"
    assert failing.judgement.attainment is not None
    shares = failing.judgement.attainment.by_limit
    return min(shares, key=lambda name: shares[name]).upper()
