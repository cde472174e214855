"""The least that any mix of configurations can cost, whatever goes where.

A request that configuration j serves is at least ``w_j`` replica seconds of its work
(:mod:`capplan.bounds.work`), which fill a share of its replicas' time, at ``p_j`` a
second. Whatever the split, a request costs at least the smallest ``p_j w_j``; what the
requests of a window cost at least, over its length, is below the price of every fleet
that serves them. ``docs/internals/bounds.md`` has the proof.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from capplan.bounds.asked import Asked
from capplan.bounds.lower_bound import Pricing
from capplan.bounds.window import busiest_window
from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import LatencyTables

_ROUNDING = 1e-9
_NEVER_USD = 1e15
"""Stands for what no configuration serves where infinity cannot be capped. [$]"""


@dataclass(frozen=True, eq=False)
class Priced:
    """A configuration of which a mix may have replicas."""

    name: str
    usd_per_h: float  # of a replica, by its GPUs [$/h]
    tables: LatencyTables
    engine: EngineSettings
    pricing: Pricing  # proven for its iterations


@dataclass(frozen=True)
class CostBound:
    """A lower bound on what a mix costs, with the window that shows it."""

    usd_per_h: float  # no split of the requests costs less [$/h]
    window_start_s: float = 0.0  # [s]
    window_end_s: float = 0.0  # [s]
    requests_in_window: int = 0
    droppable: int = 0  # may miss their SLO and were left out [requests]
    # whose work is the cheapest, by the requests of the window, most first
    cheapest: tuple[tuple[str, int], ...] = ()


def cost_bound(
    columns: Mapping[str, np.ndarray],
    attainment: Sequence[float],
    priced: Sequence[Priced],
) -> CostBound:
    """Return a lower bound on the cost of any mix that meets the SLO.

    ``columns`` and ``attainment`` are those of :class:`Asked`. Infinite where too many
    requests miss their SLO even alone on a replica of any configuration.
    """
    usd, release_s, deadline_s = [], [], []
    for each in priced:
        asked = Asked.of(columns, attainment, each.tables.request_s)
        work = each.pricing.work(asked.requests, each.engine)
        usd.append(np.where(work.possible, each.usd_per_h * work.work_s, np.inf))
        release_s.append(asked.requests.release_s)
        deadline_s.append(work.deadline_s)
    droppable, least = asked.droppable, np.min(usd, axis=0)
    if (asked.by_group(np.isinf(least)) > droppable).any():
        return CostBound(np.inf)
    # Those that none serves are among the costliest, which are left out.
    least = np.where(np.isinf(least), _NEVER_USD, least)
    # Of all configurations the earliest start and the latest end.
    release, deadline = np.min(release_s, axis=0), np.max(deadline_s, axis=0)
    best = busiest_window(release, deadline, least, droppable, group=asked.group)
    if best is None:
        return CostBound(0.0)
    inside = (release >= best.start_s) & (deadline <= best.end_s)
    chosen = np.bincount(np.argmin(usd, axis=0)[inside], minlength=len(priced))
    order = np.argsort(-chosen, kind="stable")
    return CostBound(
        best.replicas * (1 - _ROUNDING),
        best.start_s,
        best.end_s,
        best.requests,
        int(droppable.sum()),
        tuple((priced[k].name, int(chosen[k])) for k in order if chosen[k]),
    )
