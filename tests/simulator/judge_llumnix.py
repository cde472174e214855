"""Llumnix step by step: freeness, who gives to whom, and a request on its way.

Sun et al., OSDI 2024, with the constants of Llumnix's main branch.
"""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from judge_best_fit import known
from judge_fleet_clock import Order
from judge_fleet_replica import FleetReplica, FleetRequest, is_decoding
from judge_kv import Block
from judge_routers import recharge


class Llumnix(NamedTuple):
    """Settings of the rebalancer."""

    theta: float = 3.0  # blocks per request
    period_s: float = 0.05
    usage: str = "head"  # or all: whose demand is counted
    stages: int = 3
    last: int = 16  # blocks of a last stage, at most
    handshake_s: float = 0.0  # of each stage
    block_s: float = 1e-3  # to copy a block
    target: int = 0  # blocks for which a replica with a high priority aims; 0: off
    high: int = 0  # priorities below are high
    victim: str = "shortest"  # or newest


@dataclass(eq=False)
class Move:
    """One migration."""

    source: FleetReplica
    target: FleetReplica
    request: FleetRequest
    began_s: float
    preemptions: int  # of the request when it began
    stages: int = 0  # begun
    blocks: list[Block] = field(default_factory=list)  # taken at the target
    sent: int = 0
    has_left: bool = False
    is_over: bool = False
    ended_s: float = math.nan
    outcome: str = ""  # joined, or why not


def demand(replica: FleetReplica, usage: str) -> float:
    """Blocks that the queue wants."""
    wanting = list(replica.waiting)
    if usage == "head":
        wanting = wanting[:1]
    tokens = sum(
        known(replica, request)
        for request in wanting
        if not (request.stale and is_complete(replica, request))
    )
    return tokens / replica.engine.block_size


def is_complete(replica: FleetReplica, request: FleetRequest) -> bool:
    """Whether its last token is in flight: it will compute nothing more."""
    return known(replica, request) == request.prompt_count + request.output_count


def has_high(replica: FleetReplica, high: int) -> bool:
    """Whether a request of high priority is there."""
    return any(
        request.priority < high for request in [*replica.running, *replica.waiting]
    )


def headroom(replica: FleetReplica, target: int, high: int) -> int:
    """Blocks kept for high priorities."""
    if target > 0 and has_high(replica, high):
        return replica.engine.kv_blocks - 1 - target
    return 0


def freeness(
    replica: FleetReplica,
    requests: int,
    usage: str,
    target: int,
    high: int,
) -> float:
    """Blocks per request; infinite without requests."""
    if requests == 0:
        return math.inf
    free = len(replica.pool.free) - demand(replica, usage)
    return (free - headroom(replica, target, high)) / requests


class Seen(NamedTuple):
    """What the router knows of a replica since its last look."""

    requests: int = 0
    left: float = 0.0  # blocks that are free and not wanted
    priorities: tuple[int, ...] = ()


def seen_of(replica: FleetReplica) -> Seen:
    """What a look at a replica shows."""
    here = [*replica.running, *replica.waiting]
    left = len(replica.pool.free) - demand(replica, "all")
    count = replica.running_count + len(replica.waiting)
    return Seen(count, left, tuple(request.priority for request in here))


def llumnix_router(
    replicas, index, draw, request, now_s, slo, target=0, high=0, refresh=0
):
    """The highest dispatch freeness at the last look, the first of equals.

    Requests of high priority gather where there are such, others keep away.
    """
    found = []
    for each in replicas:
        count, left, priorities = each.seen_by_llumnix
        has_high = any(priority < high for priority in priorities)
        if target and has_high != (request.priority < high):
            left -= each.engine.kv_blocks - 1 - target
        found.append(left / count if count else math.inf)
    return found.index(max(found))


def rebalance(fleet: Any, settings: Llumnix, now_s: float) -> None:
    """Pair who has too little room with who has much; begin to move requests."""
    pool = fleet.pools[0]
    draining = [
        each
        for each in pool.replicas
        if each not in pool.open
        and not each.is_dead
        and each.running_count + len(each.waiting) > 0
    ]
    free, killed = {}, {}
    for each in pool.open:
        count = each.running_count + (len(each.waiting) > 0)
        free[each] = freeness(
            each, count, settings.usage, settings.target, settings.high
        )
        killed[each] = bool(each.waiting) and each.waiting[0].preemptions > 0
    poor = [each for each in pool.open if free[each] < settings.theta or killed[each]]
    poor.sort(key=lambda each: (free[each], each.index))
    rich = [
        each for each in pool.open if free[each] > settings.theta and not killed[each]
    ]
    rich.sort(key=lambda each: (-free[each], each.index))
    fleet.counted["ticks"] += 1
    fleet.counted["ticks at which several drain"] += len(draining) > 1
    for source, target in zip([*draining, *poor], rich, strict=False):
        if source.is_moving or target.is_moving:
            continue
        request = victim(source, settings)
        if request is None:
            continue
        move = Move(source, target, request, now_s, request.preemptions)
        fleet.moves.append(move)
        source.is_moving = target.is_moving = True
        begin_stage(fleet, settings, move, now_s)


def victim(source: FleetReplica, settings: Llumnix) -> FleetRequest | None:
    """The request to move: of the lowest priority, the shortest or the newest.

    None of high priority moves where a replica keeps room for them.
    """
    places = {
        request: place
        for place, request in enumerate(source.running)
        if is_decoding(source, request)
        and request.held > request.joined_with
        and not (settings.target and request.priority < settings.high)
    }
    if not places:
        return None

    def order(request: FleetRequest) -> tuple:
        newest = settings.victim == "newest"
        own = -places[request] if newest else request.held
        return -request.priority, own, places[request]

    return min(places, key=order)


def begin_stage(fleet: Any, settings: Llumnix, move: Move, now_s: float) -> None:
    """Copy what is new but its last block, or stop the request and copy all."""
    source, target, request = move.source, move.target, move.request
    pool = target.pool
    move.stages += 1
    new = pool.blocks_for(request.held) - move.sent
    if move.stages > settings.stages:
        abort(move, now_s, "stages")
        return
    if new > settings.last:
        if new - 1 > len(pool.free):
            abort(move, now_s, "blocks")
            return
        move.blocks += [pool.take() for _ in range(new - 1)]
        move.sent += new - 1
        end_s = now_s + settings.handshake_s + (new - 1) * settings.block_s
        fleet.clock.at(
            end_s,
            Order.STAGE_END,
            (source.index,),
            lambda t: end_stage(fleet, settings, move, t),
        )
        return
    bounded = pool.bounded_tokens(request) // pool.block_size
    if new + bounded > len(pool.free):
        abort(move, now_s, "blocks")
        return
    if target.seats_left <= 0:
        abort(move, now_s, "seat")
        return
    move.blocks += [pool.take() for _ in range(new + bounded)]
    move.sent += new
    move.has_left = True
    source.running.remove(request)
    source.leaving.append(request)
    target.coming.append(request)
    ends_s = [batch.end_s for batch in source.in_flight if batch.parts]
    stopped_s = max([now_s, *ends_s])
    join_s = stopped_s + settings.handshake_s + new * settings.block_s
    assert join_s > stopped_s, "a copy takes time"
    fleet.clock.at(join_s, Order.JOIN, (source.index,), lambda t: join(move, t))


def end_stage(fleet: Any, settings: Llumnix, move: Move, now_s: float) -> None:
    """Go on with the next stage unless the request is gone."""
    request = move.request
    if move.is_over:
        return
    if request.done:
        abort(move, now_s, "finished")
    elif request.preemptions > move.preemptions:
        abort(move, now_s, "preempted")
    elif not is_decoding(move.source, request):
        abort(move, now_s, "finishing")
    else:
        begin_stage(fleet, settings, move, now_s)


def join(move: Move, now_s: float) -> None:
    """Let the request run at the target."""
    if move.is_over:
        return
    source, target, request = move.source, move.target, move.request
    assert request.in_flight == request.placeholders == request.stale == 0
    assert request.computed == len(request.tokens) - 1
    source.touch(now_s)
    source.leaving.remove(request)
    source.pool.take_back(request)
    if target.is_dead:
        request.begin_again()
        request.preemptions += 1
        source.waiting.append(request)
        over(move, now_s, "target died")
        return
    request.blocks, request.bounded = move.blocks[: move.sent], move.blocks[move.sent :]
    target.pool.enter(request, request.computed)
    target.coming.remove(request)
    target.touch(now_s)
    target.run_before_prompts(request)
    recharge(request, source, target)
    request.home = target
    request.migrations += 1
    request.joined_with = request.computed
    over(move, now_s, "joined")


def abort(move: Move, now_s: float, reason: str) -> None:
    """Give back what was taken at the target."""
    target = move.target
    target.touch(now_s)
    for block in move.blocks:
        block.references = 0
    target.pool.free[:0] = move.blocks
    if move.has_left:
        target.coming.remove(move.request)
        move.source.leaving.remove(move.request)
    over(move, now_s, reason)


def over(move: Move, now_s: float, outcome: str) -> None:
    move.source.is_moving = move.target.is_moving = False
    move.is_over, move.ended_s, move.outcome = True, now_s, outcome


def source_dies(moves: list[Move], dead: FleetReplica, now_s: float) -> list:
    """Abort what is on its way from a dying replica; return who had left it."""
    lost = []
    for move in moves:
        if not move.is_over and move.source is dead:
            if move.has_left:
                lost.append(move.request)
            abort(move, now_s, "source died")
    return lost


def target_dies(moves: list[Move], dead: FleetReplica, now_s: float) -> list[str]:
    """Abort what is on its way to it; who has left is preempted when it would join.

    Return what happened, to be counted.
    """
    happened = []
    for move in moves:
        if not move.is_over and move.target is dead:
            if move.has_left:
                dead.is_moving = False
                happened.append("target died after the request had left its source")
            else:
                abort(move, now_s, "target died")
    return happened
