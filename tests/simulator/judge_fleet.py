"""A simulator of fleets in motion that steps through everything, to judge by.

``judge_fleet_clock.py`` holds the order of things, ``judge_fleet_service.py`` who asks
and what changes, ``judge_fleet_replica.py`` the replicas, ``judge_aladdin.py``,
``judge_llumnix.py`` and ``judge_hand_off.py`` what happens between them.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from judge_aladdin import Aladdin
from judge_fleet_pool import PoolOf
from judge_fleet_replica import FleetReplica
from judge_fleet_service import Fleet
from judge_hand_off import HandOff
from judge_llumnix import Llumnix

from capplan.workload.slo import RequestSlo
from capplan.workload.trace import Trace


class Event(NamedTuple):
    """A change of the fleet."""

    time_s: float
    kind: str  # up, close or fail
    count: int


class Served(NamedTuple):
    """One request."""

    row: int
    arrival_s: float
    replica: int  # where it finished, in its pool
    prefill_replica: int  # -1: none
    scheduled_s: float  # first, on whichever replica
    token_s: list[float]
    prefilled_s: float  # nan: it was not handed over, as in the next two
    handed_s: float
    ready_s: float
    preemptions: int  # on all replicas
    cached_tokens: int  # where its prompt was computed first
    copied_hits: int  # tokens found on the decode replica, not copied
    migrations: int


class Moved(NamedTuple):
    """One migration."""

    began_s: float
    source: int
    target: int
    row: int
    stages: int
    blocks: int  # copied or being copied, of windows and states none
    outcome: str  # joined, or why it was aborted
    ended_s: float  # of the join or the abort


@dataclass
class Verdict:
    """What the judge found: the requests in order, and what moved."""

    requests: list[Served]
    moves: list[Moved]
    pools: list[list[FleetReplica]]
    counted: Counter


def judge_fleet(
    trace: Trace,
    pools: Sequence[PoolOf],
    *,
    events: Sequence[Event] = (),
    dispatcher: Aladdin | None = None,
    rebalancer: Llumnix | None = None,
    hand_off: HandOff | None = None,
    seed: int = 0,
    slo: RequestSlo | None = None,
) -> Verdict:
    """Serve a trace step by step in a fleet in motion.

    Two pools, prefill and decode, with a hand-off; else one. Users ask where the trace
    has them.
    """
    assert len(pools) == (2 if hand_off else 1)
    scheduler = pools[-1][2]
    if hand_off:
        assert not events
        assert not rebalancer
        assert not dispatcher
        assert scheduler == "vllm-v1" or hand_off.kind == "nixl"
    if rebalancer or any(event.kind == "fail" for event in events):
        assert scheduler.startswith("vllm-v1")
    fleet = Fleet(trace, pools, events, dispatcher, rebalancer, hand_off, seed, slo)
    fleet.run()
    return verdict_of(fleet)


def verdict_of(fleet: Fleet) -> Verdict:
    """Return what happened in a fleet whose requests are done."""
    served = []
    for request in fleet.requests:
        final = fleet.final(request)
        first = request.prefill or final  # where its prompt is computed first
        both = {first, final}
        assert final.home is not None
        assert first.scheduled_s is not None
        served.append(
            Served(
                row=request.row,
                arrival_s=request.arrival_s,
                replica=final.home.index,
                prefill_replica=first.home.index if request.prefill else -1,
                scheduled_s=first.scheduled_s,
                token_s=final.token_s,
                prefilled_s=request.prefilled_s,
                handed_s=request.handed_s,
                ready_s=request.ready_s,
                preemptions=sum(each.preemptions for each in both),
                cached_tokens=first.cached_tokens,
                copied_hits=final.cached_tokens if len(both) == 2 else 0,
                migrations=final.migrations,
            )
        )
    moves = [
        Moved(
            move.began_s,
            move.source.index,
            move.target.index,
            move.request.row,
            move.stages,
            move.sent,
            move.outcome,
            move.ended_s,
        )
        for move in fleet.moves
    ]
    return Verdict(
        served, moves, [pool.replicas for pool in fleet.pools], fleet.counted
    )
