"""Lower bound on the replicas from the sum of each resource over all requests.

In any placement the requests' total is at most the capacity of N replicas, in each
resource: prefill work (c, d), KV in each iteration (e), and for (b) the context plus a
toll per request. This is the linear relaxation of the placement problem, with every
request spread evenly over all replicas; a solver's own relaxation is no stronger.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from capplan.latency.rank_bounds import upper_hull
from capplan.placement.integer_units import IntegerUnits, integer_units
from capplan.placement.problem import PlacementProblem, kv_tokens


class VolumeBound(NamedTuple):
    """A lower bound on the replicas used and the resource that sets it."""

    replicas: int
    resource: str


def volume_bound(
    problem: PlacementProblem, units: IntegerUnits | None = None
) -> VolumeBound:
    """Return the largest bound over all resources.

    Let E be the replicas with ongoing requests, w_j >= 0 the weight of request j in a
    resource, c the capacity of an empty replica and c_i what is left on replica i of
    E. A placement on N replicas has ``sum of free w_j <= sum over E of c_i + (N - |E|)
    * c``, so N is at least |E| plus the rest over c, rounded up.
    """
    units = integer_units(problem) if units is None else units
    ongoing = problem.ongoing_replicas
    least = max(len(ongoing), 1)
    bounds = (
        VolumeBound(least, "replicas that hold ongoing requests"),
        VolumeBound(_prefill(problem, units, ongoing), "prefill (c, d)"),
        VolumeBound(_context(problem, units, ongoing), "decode SLO (b)"),
        _kv(problem, ongoing),
    )
    return max(bounds, key=lambda bound: bound.replicas)


def _replicas(need: int, held: int, room: int, ongoing: int) -> int:
    """Return |E| + ceil((need - held) / room)."""
    if need <= held:
        return ongoing
    # Without room no number is enough: 2**31 stands for infeasible.
    return ongoing + -(-(need - held) // room) if room > 0 else 2**31


def _prefill(
    problem: PlacementProblem, units: IntegerUnits, ongoing: np.ndarray
) -> int:
    # A replica with a request of ceiling t holds prefills of at most t in sum.
    rooms = [int(units.prefill_ceiling[problem.replica == i].min()) for i in ongoing]
    free = problem.replica < 0
    new = free & (units.prefill > 0)
    bound = 0
    for ceiling in np.unique(units.prefill_ceiling[new]).tolist():
        need = int(units.prefill[new & (units.prefill_ceiling <= ceiling)].sum())
        held = sum(min(room, ceiling) for room in rooms)
        bound = max(bound, _replicas(need, held, ceiling, len(ongoing)))
    return bound


def _context(
    problem: PlacementProblem, units: IntegerUnits, ongoing: np.ndarray
) -> int:
    batch = np.arange(units.limit.shape[1])
    bound = 0
    free = problem.replica < 0
    for row, full_limit in enumerate(units.limit):
        # Requests of tighter TPOTs obey this limit too.
        members = free & (units.tpot_class <= row)
        if not members.any():
            continue
        limit = _reachable(full_limit, units.context)
        # The limit on the contexts falls with the batch. A toll on each request bends
        # it flat: with the slope of its hull as toll, every batch has about the same
        # room for contexts and tolls together, and a volume is all that counts.
        for toll in _multipliers(limit):
            value = np.where(limit >= 0, limit + toll * batch, -1)
            held = 0
            for i in ongoing:
                here = problem.replica == i
                count, context = int(here.sum()), int(units.context[here].sum())
                left = value[count:] - context - toll * count
                held += max(int(left.max()), 0)
            need = int(units.context[members].sum()) + toll * int(members.sum())
            room = int(value.max())
            bound = max(bound, _replicas(need, held, room, len(ongoing)))
    return bound


def _reachable(limit: np.ndarray, context: np.ndarray) -> np.ndarray:
    """Return the limit cut to contexts that a batch of these requests can have.

    The b largest requests have the most context, the b smallest the least; -1 where
    not even those fit.
    """
    rising = np.cumsum(np.sort(context))
    falling = np.cumsum(np.sort(context)[::-1])
    largest = min(len(context), len(limit) - 1)
    rising, falling = rising[:largest], falling[:largest]
    within = limit[1 : largest + 1]
    reached = np.full(len(limit), -1)
    reached[0] = 0
    fits = rising <= within
    reached[1 : largest + 1] = np.where(fits, np.minimum(within, falling), -1)
    return reached


def _multipliers(limit: np.ndarray) -> list[int]:
    """Return tolls per request: the rounded slopes of the limit's upper hull."""
    batch = np.flatnonzero(limit >= 0)
    steps = pairwise(batch[upper_hull(batch, limit[batch])].tolist())
    slopes = {max(int(limit[p] - limit[q]) // (q - p), 0) for p, q in steps}
    return sorted(slopes | {0})


def _kv(problem: PlacementProblem, ongoing: np.ndarray) -> VolumeBound:
    capacity = problem.template.kv_capacity_tokens
    free = np.flatnonzero(problem.replica < 0)
    best = VolumeBound(0, "KV (e)")
    # In chunks, since a table of requests times iterations may not fit into memory.
    for iterations in np.array_split(np.unique(problem.remaining_tokens[free]), 64):
        if len(iterations) == 0:
            continue
        # KV rises until requests end, so that the moment that binds is not the first.
        need = np.zeros(len(iterations), np.int64)
        for rows in np.array_split(free, max(len(free) // 4096, 1)):
            need += kv_tokens(problem, rows, iterations).sum(axis=0)
        held = np.zeros(len(iterations), np.int64)
        for i in ongoing:
            rows = np.flatnonzero(problem.replica == i)
            held += capacity - kv_tokens(problem, rows, iterations).sum(axis=0)
        replicas = len(ongoing) + np.maximum(-(-(need - held) // capacity), 0)
        k = int(replicas.argmax())
        if replicas[k] > best.replicas:
            resource = f"KV (e) {iterations[k]} iterations ahead"
            best = VolumeBound(int(replicas[k]), resource)
    return best
