"""When a fleet has forgotten how it started: two starts of the same arrivals meet.

One fleet starts empty. The other one starts full: at time 0 as many requests of the mix
arrive on each replica as fill its seats or its KV, and, where the policy serves them in
order, as many again behind them. Both then serve the same arrivals. Requests in the
system and KV in use of the second come from above, those of the first from below; where
they agree, neither start is seen any more, and a fleet that holds its load has
recovered from a full queue. A fleet that does not hold it never does, however well it
looks while it fills.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment
from capplan.errors import HostFullError
from capplan.planning.evaluate.executors import side_by_side
from capplan.planning.evaluate.saturation import Saturation
from capplan.planning.load.load import Load
from capplan.simulator.results.request_times import RequestTimes
from capplan.simulator.results.times import Simulation
from capplan.workload.trace import Trace

AGREEMENT = 0.05
"""Difference of the two starts in a later window, as a share of the mean, at most."""
_DEVIATIONS = 3.0
"""Standard deviations from one window to the next that they may differ by as well."""
BUDGET_S = 3 * 3600.0
"""Traffic simulated until the two starts are said not to meet. [s]"""
_BUDGET_REQUESTS = 2_000_000
"""Requests in it at most."""
_WINDOWS = 40
_LATER = 0.5
"""Part of a sample at its end that the two starts must have met before."""
_ROOM = 2.5
"""Time simulated first, over that in which a full queue should have drained."""
_LEAST_SHOWN = 0.125
"""Part of the budget after which the rate at which the queue drains is believed."""
_LONGER = (2.0, 8.0)
"""How much longer the next sample is, at least and at most."""


@dataclass(frozen=True, eq=False)
class Settling:
    """What two starts of a fleet show."""

    duration_s: float  # of the arrivals simulated [s]
    recovery_s: float | None  # from a full queue; None: it does not recover [s]
    longest_stay_s: float  # of the requests after that [s]
    empty: Simulation  # that started empty

    @property
    def settled(self) -> bool:
        """Whether the two starts met."""
        return self.recovery_s is not None


Simulated = Callable[[Trace], Simulation]
"""Simulates arrivals on the fleet."""
Agree = Callable[[Simulation, Simulation, float], bool]
"""Whether two simulations, of what arrives after a time, come to the same verdict."""
Misses = Callable[[Simulation, float], bool]
"""Whether a simulation, of what arrives after a time, shows that the SLO is missed."""


def settle(
    simulated: Simulated,
    agree: Agree,
    misses: Misses,
    load: Load,
    deployment: Deployment,
    saturation: Saturation | None,
) -> Settling:
    """Simulate a fleet from two starts, until they meet or the budget is spent.

    They have met at the first window of time from which on requests in the system and
    KV in use differ by at most 5 % of their later mean in every window, or by what they
    change by chance from one window to the next, and those of the empty start do not
    rise any more. That must be before the middle of the sample, and the requests that
    arrive after it must give the same verdict. Samples get longer by how fast the full
    queue drains; none that starts empty and misses the SLO in its later part is made
    longer.
    """
    queued = _full_queue(load.base, deployment)
    rate_per_s = load.rate_per_s
    budget_s = min(BUDGET_S, _BUDGET_REQUESTS / rate_per_s)
    duration_s = load.request_count / rate_per_s
    duration_s = max(duration_s, load.lasts_s)
    budget_s = max(budget_s, load.lasts_s)
    if saturation is not None and load.is_open:
        spare_per_s = saturation.rate_per_s - rate_per_s
        drained_s = _ROOM * queued / max(spare_per_s, 1e-9)
        if drained_s < budget_s:
            duration_s = max(duration_s, drained_s)
        elif saturation.binds:  # a part of the budget shows how fast it drains
            duration_s = max(duration_s, _LEAST_SHOWN * budget_s)
    if load.falls_in_step:  # over hours: what looks settled before is not
        duration_s = budget_s
    while True:
        duration_s = min(duration_s, budget_s)
        arrivals = load.sample(0, duration_s)
        behind, waiting = load.behind_a_queue(arrivals, queued)
        try:
            empty, full = side_by_side(simulated, [arrivals, behind])
        except HostFullError:  # more than a full queue can be on its host
            return _settling(simulated(arrivals), duration_s, None)
        met_s, left = _meeting(empty, full, waiting, duration_s)
        later_s = duration_s * _LATER
        if met_s is not None and met_s <= later_s:
            if load.falls_in_step:
                met_s = later_s
            if agree(empty, full, met_s):
                return _settling(empty, duration_s, met_s)
        drained_s = duration_s / max(1 - left, 1e-9)
        hopeless = duration_s >= _LEAST_SHOWN * budget_s and drained_s > budget_s
        if duration_s >= budget_s or hopeless or misses(empty, later_s):
            return _settling(empty, duration_s, None)
        factor = _ROOM * max(drained_s, met_s or 0.0) / duration_s
        duration_s *= min(max(factor, _LONGER[0]), _LONGER[1])


def _full_queue(mix: Trace, deployment: Deployment) -> int:
    """Return how many requests a fleet is full of, and has in front of it.

    Of two pools those that decode; of pools side by side each with its part.
    """
    parts = [(deployment.pools[-1], mix)]
    if deployment.split is not None:
        pool_of = deployment.split.pools_of(mix)
        parts = [
            (pool, mix.select(pool_of == index))
            for index, pool in enumerate(deployment.pools)
        ]
    queued = 0
    for pool, part in parts:
        engine = pool.configuration.engine
        # Policies that order a queue take long to order one that no fleet would hold.
        times = 2 if engine.scheduler.rules.in_order else 1
        if len(part):
            queued += times * full_batch(part, engine) * pool.replica_count
    return queued


def full_batch(mix: Trace, engine: EngineSettings) -> int:
    """Return how many requests of a mix fill a replica's seats or its KV."""
    blocks = engine.request_blocks(mix.prompt_tokens + mix.output_tokens)
    by_kv = (engine.kv_blocks - 1) / float(blocks.mean())
    of_rank = min(engine.max_num_seqs, by_kv)
    return max(1, int(engine.data_parallel_size * of_rank))


def _settling(empty: Simulation, duration_s: float, met_s: float | None) -> Settling:
    times = empty.table
    later = times.arrival_s >= (met_s or 0.0)
    # Of a request in days none may arrive after the starts have met.
    longest_stay_s = float(times.e2e_s[later if later.any() else ...].max())
    return Settling(duration_s, met_s, longest_stay_s, empty)


def _meeting(
    empty: Simulation, full: Simulation, crowd_count: int, duration_s: float
) -> tuple[float | None, float]:
    """Return when two starts have met, and how much of the crowd is left at the end.

    None where they differ in the last window. [s]
    """
    edges_s = np.linspace(0.0, duration_s, _WINDOWS + 1)
    low, high = (requests_in_system(each.table, edges_s) for each in (empty, full))
    left = float(np.clip((high[-1] - low[-1]) / crowd_count, 0, 1))
    differs = _differ(low, high)
    differs |= _differ(*(_kv_in_use(each, edges_s) for each in (empty, full)))
    if differs[-1] or _grows(low):
        return None, left
    last = int(np.flatnonzero(differs)[-1]) + 1 if differs.any() else 0
    return float(edges_s[last]), left


def _differ(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the windows in which two starts differ, shape (windows,), bool."""
    later = low[int(_WINDOWS * _LATER) :]
    chance = _DEVIATIONS * float(np.diff(later).std())
    tolerance = max(AGREEMENT * float(later.mean()), chance, 1e-9)
    return np.asarray(np.abs(high - low) > tolerance)


def _grows(number: np.ndarray) -> bool:
    """Return whether the requests of an empty start still rise in its later part.

    From the first half of it to the second by 10 %, and by more than chance: three
    standard deviations of the difference of two means of so many windows.
    """
    first, second = np.split(number[-2 * (_WINDOWS // 4) :], 2)
    chance = _DEVIATIONS * float(np.diff(number[-_WINDOWS // 2 :]).std())
    rise = float(second.mean() - first.mean())
    return rise > max(0.1 * float(first.mean()), chance / np.sqrt(len(first)))


def requests_in_system(times: RequestTimes, edges_s: np.ndarray) -> np.ndarray:
    """Return the mean number of requests between moments, shape (moments - 1,).

    The area under their number over time is the time that requests spend in the system
    (Little, "A Proof for the Queuing Formula L = λW", 1961).
    """
    spent_s = _time_until(times.finish_s, edges_s)
    spent_s = _time_until(times.arrival_s, edges_s) - spent_s
    return np.asarray(np.diff(spent_s) / np.diff(edges_s))


def _time_until(moments_s: np.ndarray, edges_s: np.ndarray) -> np.ndarray:
    """Return the sum of ``max(edge - moment, 0)`` for each edge. [s]"""
    ascending = np.sort(moments_s)
    count = np.searchsorted(ascending, edges_s)
    sums = np.concatenate([[0.0], np.cumsum(ascending)])
    return np.asarray(count * edges_s - sums[count])


def _kv_in_use(simulation: Simulation, edges_s: np.ndarray) -> np.ndarray:
    """Return the mean share of KV blocks in use in each window, shape (windows,)."""
    series = simulation.series
    share = np.concatenate([[0.0], np.cumsum(series.kv_share)])
    at_s = np.append(series.start_s, 2 * series.start_s[-1] - series.start_s[-2])
    return np.asarray(np.diff(np.interp(edges_s, at_s, share)))
