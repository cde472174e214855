"""A fluid fleet: what an autoscaler makes of a curve of rates, in a second.

A replica starts 2 requests/s at most and has 25 in flight then, 0.9 of its KV. A
request that is not started within the tick it came in is late. Replicas are paid from
their order to their end, which is at once.
"""

from dataclasses import dataclass

import numpy as np

from capplan.simulator.autoscalers import Known, View, parse_autoscaler, start

PER_REPLICA_PER_S = 2.0
_IN_FLIGHT = 25
_KV_SHARE = 0.9
_BLOCKS = 1000


@dataclass(frozen=True)
class Run:
    """What happened at each tick, shape (ticks,)."""

    ready: np.ndarray
    paid: np.ndarray  # those that start, too
    need: np.ndarray
    late: np.ndarray  # [requests]
    arrived: np.ndarray  # [requests]

    @property
    def on_time(self) -> float:
        """Share of the requests that were started in the tick they came in."""
        return 1 - self.late.sum() / max(self.arrived.sum(), 1)

    @property
    def turns(self) -> int:
        """How often the count turned from more to fewer or back."""
        changes = np.diff(self.paid)
        signs = np.sign(changes[changes != 0])
        return int((signs[1:] != signs[:-1]).sum())


def arrivals(rate_per_s, period_s, rng=None):
    """Return the arrivals of each tick: Poisson counts, or rates without noise."""
    mean = np.asarray(rate_per_s) * period_s
    return rng.poisson(mean) if rng else np.round(mean).astype(int)


def run(given, arrived, *, replicas, cold_start_s=60.0, most=None):
    """Return what a policy makes of the arrivals of each of its periods."""
    policy = parse_autoscaler(given)
    period_s = policy.settings["period"]
    arrived = np.asarray(arrived)
    known = Known(
        PER_REPLICA_PER_S,
        # Those of a tick came in the period before it.
        np.repeat((np.arange(len(arrived)) - 0.5) * period_s, arrived)[arrived[0] :],
        replicas=replicas,
        cold_start_s=cold_start_s,
        in_flight_per_replica=_IN_FLIGHT,
    )
    decide = start(policy, known)
    fleet = _Fleet(replicas, period_s, cold_start_s)
    rows = []
    for tick, count in enumerate(arrived.tolist()):
        late = fleet.serve(tick * period_s, count)
        fleet.want(decide(fleet.view(count)), tick * period_s)
        rows.append((fleet.ready, fleet.ready + len(fleet.starting), late))
    ready, paid, late = np.array(rows).T
    need = np.ceil(arrived / period_s / PER_REPLICA_PER_S - 1e-9)
    return Run(ready, paid, need, late, arrived)


class _Fleet:
    def __init__(self, replicas, period_s, cold_start_s):
        self.ready, self.period_s, self.cold_start_s = replicas, period_s, cold_start_s
        self.starting: list[float] = []  # when each is ready
        self.backlog = self.begun = 0
        self.now_s = 0.0

    def serve(self, now_s, arrived):
        """Start what can be started until now; return how many came and were not."""
        room = int(self.ready * PER_REPLICA_PER_S * self.period_s)
        self.begun = min(self.backlog + arrived, room)
        self.backlog += arrived - self.begun
        self._bring_up(now_s)
        return min(self.backlog, arrived)

    def view(self, arrived):
        n = self.ready
        full = self.begun / (PER_REPLICA_PER_S * self.period_s)  # replicas that were
        running = _spread(round(full * _IN_FLIGHT), n)
        waiting = _spread(self.backlog, n)
        share = np.full(n, min(_KV_SHARE * full / max(n, 1), 1.0))
        requests = running + (waiting > 0)
        demand = (waiting > 0) * _BLOCKS * _KV_SHARE / _IN_FLIGHT
        free = _BLOCKS * (1 - share) - demand
        freeness = np.where(requests > 0, free / np.maximum(requests, 1), np.inf)
        held = 0 if n else self.backlog
        seen = (n, len(self.starting), 0, running, waiting, share, freeness)
        tokens = (arrived * 500, arrived * 100)
        return View(
            self.now_s,
            *seen,
            _BLOCKS,
            held,
            arrived,
            *tokens,
            self.begun,
            self.period_s,
        )

    def want(self, wanted, now_s):
        """Order or close replicas, those that start before those that are ready."""
        more = wanted - self.ready - len(self.starting)
        self.starting += more * [now_s + self.cold_start_s]
        for _ in range(-more):
            if self.starting:
                self.starting.pop()
            else:
                self.ready -= 1
        self._bring_up(now_s)

    def _bring_up(self, now_s):
        self.now_s = now_s
        while self.starting and self.starting[0] <= now_s:
            self.starting.pop(0)
            self.ready += 1


def _spread(count, n):
    """Return whole counts on n replicas that differ by one at most, shape (n,)."""
    return (count + np.arange(n)) // n if n else np.empty(0, int)
