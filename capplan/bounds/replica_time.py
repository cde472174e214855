"""A lower bound on the time of all replicas together, however many there are when.

A fleet that grows and shrinks is held to the work of all its requests, not to that of
its busiest window. ``docs/internals/bounds.md`` has the proof.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from capplan.bounds.asked import Asked
from capplan.bounds.lower_bound import QUICK, Pricing, prefill_prices_s, proven_pricings
from capplan.bounds.prices import engine_bounds, fit_prices, prove_prefill_price
from capplan.bounds.standing import standing_s
from capplan.bounds.work import Requests
from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import LatencyTables

WINDOWS_S = (300.0, 3600.0)
"""Lengths of disjoint windows that are tried. [s]"""
PARTS = (2, 3, 4, 6, 8)
"""Windows that a cold start is cut into."""
_BY_TPOT = 2
"""Prices proven that spread the fixed time as far as the TPOT allows, at most."""
_BY_OVERLAP = 3
"""Those that spread it over the requests that may be there at the same time."""
_OVERLAP_MIX = (0.0, 0.0, 0.0)
"""No share of the fixed time: that of requests at the same time is added here."""


WORK, STANDING = "work of all requests", "replicas that must stand"
"""What a bound rests on."""


@dataclass(frozen=True)
class ReplicaTime:
    """A lower bound on the time of all replicas, with what it rests on."""

    replica_s: float  # of all replicas together [s]
    method: str  # WORK or STANDING
    window_s: float | None  # length of the disjoint windows; None: one for all [s]
    droppable: int  # requests that may miss their SLO


class _Priced(NamedTuple):
    """What each request costs at some prices, shape (n,)."""

    work_s: np.ndarray  # when it meets its SLO [s]
    base_s: np.ndarray  # when it is answered, maybe outside its SLO [s]


def replica_time(
    columns: Mapping[str, np.ndarray],
    attainment: float | Sequence[float],
    tables: LatencyTables,
    engine: EngineSettings,
    cold_start_s: float = 0.0,
) -> ReplicaTime:
    """Return a lower bound on the time of all replicas that attain a target. [s]

    Whoever decides when there are how many: with less, fewer than ``attainment`` of the
    requests of a group meet their limits, or some are not answered. Those of the first
    arrival aside, a replica serves ``cold_start_s`` after its time begins. ``columns``
    and ``attainment`` are those of :class:`Asked`.
    """
    asked = Asked.of(columns, attainment, tables.request_s)
    requests, group, may_miss = asked.requests, asked.group, asked.droppable.tolist()
    due_s = _due_s(requests)
    priced = _proven(requests, tables, engine, due_s)
    windows = _windows(requests, due_s, priced, group, cold_start_s)
    missing = sum(may_miss)
    found = [
        ReplicaTime(_answered_s(priced, group, may_miss), WORK, None, missing),
        *(
            ReplicaTime(
                _kept_s(each.work_s, each.group, may_miss), WORK, each.length_s, missing
            )
            for each in windows
        ),
        *(
            ReplicaTime(
                standing_s(each.window, each.work_s, each.length_s, ahead, missing),
                STANDING,
                each.length_s,
                missing,
            )
            for each in windows
            if (ahead := each.ahead) > 0
        ),
    ]
    return max(found, key=lambda bound: bound.replica_s)


def at_once(release_s: np.ndarray, due_s: np.ndarray) -> np.ndarray:
    """Return the most requests that may be there at one moment of each one's time.

    Examples
    --------
    >>> at_once(np.array([0.0, 1.0, 5.0]), np.array([2.0, 3.0, 6.0]))
    array([2, 2, 1])
    """
    starts, ends = np.sort(release_s), np.sort(due_s)
    # Only an arrival raises the count: the most of a time is at its begin, or at the
    # last arrival within it with the most.
    there = np.searchsorted(starts, starts, side="right") - np.searchsorted(
        ends, starts
    )
    levels = [there]  # the most of 1, 2, 4 … arrivals from each on
    while 2 ** len(levels) <= len(starts):
        half = 2 ** (len(levels) - 1)
        levels.append(np.maximum(levels[-1][:-half], levels[-1][half:]))
    first = np.searchsorted(starts, release_s)
    last = np.maximum(np.searchsorted(starts, due_s, side="right"), first + 1)
    power = np.floor(np.log2(last - first)).astype(np.int64)
    found = np.zeros(len(release_s), np.int64)
    for k, level in enumerate(levels):
        rows = power == k
        found[rows] = np.maximum(level[first[rows]], level[last[rows] - 2**k])
    return found


def _due_s(requests: Requests) -> np.ndarray:
    """Return when each request that meets its SLO has its last token. [s]"""
    steps = requests.output_tokens - 1
    decoding_s = np.where(steps > 0, requests.tpot_s, 0.0) * steps
    lasting_s = np.minimum(requests.ttft_s + decoding_s, requests.e2e_s)
    return np.asarray(requests.release_s + np.maximum(lasting_s, 0.0))


def _proven(
    requests: Requests, tables: LatencyTables, engine: EngineSettings, due_s: np.ndarray
) -> list[_Priced]:
    """Return the work of each request at proven prices of several kinds."""
    shared = 1.0 / np.minimum(
        at_once(requests.release_s, due_s), engine_bounds(engine).batch
    )
    by_tpot = proven_pricings(requests, tables, engine, QUICK, _BY_TPOT)
    by_overlap = _by_overlap(requests, tables, engine, shared)
    proven = *by_tpot, *(each.proven(tables, engine, QUICK) for each in by_overlap)
    return [_priced(pricing, requests, engine, shared) for pricing in proven]


def _by_overlap(
    requests: Requests,
    tables: LatencyTables,
    engine: EngineSettings,
    shared: np.ndarray,
) -> list[Pricing]:
    """Return prices that are tight at the batches that requests may share."""
    bounds = engine_bounds(engine)
    steps = np.maximum(requests.output_tokens - 1, 0)
    contexts = steps * (requests.prompt_tokens + steps / 2)
    context = max(float(contexts.sum()) / max(float(steps.sum()), 1.0), 2.0)
    # What prompts are charged, the fixed time of the iterations is charged less.
    prices_s = prefill_prices_s(tables, bounds, (0.0, *QUICK.prefill_slopes))
    batches = np.unique(np.quantile(1 / shared, [0.1, 0.5, 0.9, 1.0]).round())
    ranked = []
    for batch in np.minimum(batches, bounds.batch).tolist():
        for prefill_s in prices_s:
            prices = fit_prices(tables, bounds, batch, context, prefill_s)
            estimate = prove_prefill_price(
                tables, bounds, prices, 0.0, context, token_step=None
            )
            pricing = Pricing(estimate, _OVERLAP_MIX, context)
            total_s = float(_priced(pricing, requests, engine, shared).work_s.sum())
            ranked.append((total_s, Pricing(prices, _OVERLAP_MIX, context)))
    ranked.sort(key=lambda item: -item[0])
    return [pricing for _, pricing in ranked[:_BY_OVERLAP]]


def _priced(
    pricing: Pricing, requests: Requests, engine: EngineSettings, shared: np.ndarray
) -> _Priced:
    """Return the work of each request, of which an iteration is ``shared`` at least."""
    work = pricing.work(requests, engine)
    if pricing.mix != _OVERLAP_MIX:
        return _Priced(work.work_s, work.base_s)
    added_s = pricing.prices.fixed_s * requests.output_tokens * shared
    return _Priced(work.base_s + added_s, work.base_s)


class _Windows(NamedTuple):
    """Requests released and due in one of disjoint windows, shape (inside,)."""

    length_s: float
    ahead: int  # windows before theirs in which replicas must be paid
    window: np.ndarray  # of each request
    work_s: np.ndarray  # at the prices that are best for its window [s]
    group: np.ndarray


def _windows(
    requests: Requests,
    due_s: np.ndarray,
    priced: Sequence[_Priced],
    group: np.ndarray,
    cold_start_s: float,
) -> list[_Windows]:
    """Return the requests in windows of several lengths, prices chosen in each."""
    of_cold_start = [
        (cold_start_s / parts, parts - 1) for parts in PARTS if cold_start_s > 0
    ]
    found = []
    for length_s, ahead in [*((width_s, 0) for width_s in WINDOWS_S), *of_cold_start]:
        since_s = requests.release_s - requests.release_s.min()
        index = (since_s / length_s).astype(np.int64)
        inside = due_s - requests.release_s.min() <= (index + 1) * length_s
        index, rows = index[inside], np.flatnonzero(inside)
        if not len(rows):
            continue
        works_s = np.array([each.work_s[rows] for each in priced])
        sums_s = np.array([np.bincount(index, work_s) for work_s in works_s])
        chosen = sums_s.argmax(axis=0)[index]
        work_s = works_s[chosen, np.arange(len(rows))]
        found.append(_Windows(length_s, ahead, index, work_s, group[rows]))
    return found


def _answered_s(
    priced: Sequence[_Priced], group: np.ndarray, may_miss: Sequence[int]
) -> float:
    """Return the work of all requests, all of which are answered. [s]"""
    return max(
        float(each.base_s.sum()) + _kept_s(each.work_s - each.base_s, group, may_miss)
        for each in priced
    )


def _kept_s(work_s: np.ndarray, group: np.ndarray, may_miss: Sequence[int]) -> float:
    """Return the work without that of the costliest requests that may miss. [s]"""
    kept_s = 0.0
    for index, missing in enumerate(may_miss):
        members_s = np.sort(work_s[group == index])
        kept_s += float(members_s[: max(len(members_s) - missing, 0)].sum())
    return kept_s
