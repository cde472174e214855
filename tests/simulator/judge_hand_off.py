"""Disaggregated prefill and decode, step by step.

``nixl``: vLLM 0.32's scheduler with the NIXL connector behind llm-d's router, which
chooses the decode replica first. ``distserve``: Zhong et al., OSDI 2024, which chooses
it at the hand-off; the prefill replica's token is the first one.
"""

from dataclasses import replace
from typing import Any, NamedTuple

from judge_fleet_replica import FleetReplica, FleetRequest


class HandOff(NamedTuple):
    """How requests get from the prefill pool to the decode pool."""

    kind: str = "nixl"  # or distserve
    threshold: int = 0  # nixl: tokens not cached below which decode serves alone
    hop_s: float = 0.0  # from the prefill replica to the decode replica
    handshake_s: float = 0.0  # of each copy
    block_s: float = 1e-3  # to copy a block
    report: str = "end"  # nixl; launch: workers look when they start an iteration


def arrive(fleet: Any, settings: HandOff, request: FleetRequest, now_s: float) -> None:
    """Send a request to a prefill replica, or to a decode replica alone."""
    prefills, decodes = fleet.pools
    if settings.kind == "nixl":
        chosen = decodes.choose(request, now_s)
        hits = len(chosen.pool.hits(request)) * chosen.engine.block_size
        if request.prompt_count - hits < settings.threshold:
            fleet.counted["served by decode alone"] += 1
            chosen.arrive(request, now_s)
            return
        chosen.promised.append(request)
        request.home = chosen
    leaves = settings.kind == "nixl" or request.output_count > 1
    request.to_copy = leaves
    first = request.prefill = replace(
        request,
        tokens=list(request.tokens),
        blocks=[],
        bounded=[],
        token_s=[],
        output_count=1,
        predicted_count=1,
        is_handed_over=leaves,
        home=None,
        to_copy=False,
    )
    prefills.choose(first, now_s).arrive(first, now_s)


def hand_over(
    fleet: Any, settings: HandOff, request: FleetRequest, now_s: float
) -> None:
    """Put a request whose prompt is computed at the end of a decode queue."""
    request.handed_s = now_s
    if settings.kind == "nixl":
        chosen = request.home
        assert chosen is not None
        chosen.promised.remove(request)
    else:
        assert request.prefill is not None
        chosen = fleet.pools[1].choose(request, now_s)  # by its prompt
        request.tokens = list(request.prefill.tokens)
        request.token_s = list(request.prefill.token_s)
    chosen.arrive(request, now_s)


def nixl(settings: HandOff):
    """Return the scheduler of the decode replicas: one token is computed again."""

    def schedule(replica: FleetReplica) -> None:
        replica.go_on()
        if replica.by_priority:
            replica.holding.sort(key=replica.order)
        found = [each for each in replica.holding if is_known(replica, each)]
        if replica.made_way:
            return
        start(replica, found)
        replica.take_from_queue(lambda request: admit(replica, request))
        if not replica.parts and not any(each.parts for each in replica.in_flight):
            # It is idle and knows of each copy at once.
            here = [each for each in replica.holding if each.ready_s <= replica.now_s]
            if replica.by_priority:
                here.sort(key=replica.order)
            start(replica, here)
            replica.take_from_queue(lambda request: admit(replica, request))

    def is_known(replica: FleetReplica, request: FleetRequest) -> bool:
        if request.ready_s > replica.now_s:
            return False
        if request.found_by < 0:
            told = replica.depth if settings.report == "launch" else 0
            request.found_by = replica.calls + told
        return replica.calls >= request.found_by

    def start(replica: FleetReplica, requests: list) -> None:
        for request in requests:
            if replica.budget and replica.seats_left:
                join(replica, request)
                replica.add(request, request.prompt_count - 1, 1, 0, [])

    def admit(replica: FleetReplica, request: FleetRequest) -> bool | None:
        if not request.to_copy:
            return replica.admitted(request)
        hits = replica.pool.hits(request)
        if not begin_copy(replica, settings, hits, reserved(replica)):
            return None
        if request.ready_s <= replica.now_s:  # a copy that takes no time
            start(replica, [request])
        return True

    return schedule


def distserve(settings: HandOff):
    """Return the scheduler of the decode replicas: a copy joins as a decode."""

    def schedule(replica: FleetReplica) -> None:
        for request in list(replica.holding):
            if request.ready_s <= replica.now_s and replica.seats_left:
                join(replica, request)
                request.computed = request.known_at_admission = request.prompt_count
                replica.run_before_prompts(replica.running.pop())
        replica.go_on()
        if not replica.made_way:
            replica.take_from_queue(lambda request: admit(replica, request))

    def admit(replica: FleetReplica, request: FleetRequest) -> bool | None:
        if not request.to_copy:
            return replica.admitted(request)
        full = (request.prompt_count - 1) // replica.engine.block_size
        hits = replica.pool.hits(request)[:full]  # a block at least is copied
        return begin_copy(replica, settings, hits, reserved(replica)) or None

    return schedule


SCHEDULERS = {"nixl": nixl, "distserve": distserve}


def prepare(settings: HandOff, decodes: list[FleetReplica]) -> None:
    """Let decode replicas schedule so."""
    for replica in decodes:
        replica.schedule_next = SCHEDULERS[settings.kind](settings)
        replica.defers = True
        replica.sent.pulls = True


def reserved(replica: FleetReplica) -> int:
    """Blocks that an unfinished prompt still needs."""
    return sum(
        replica.pool.missing(request, len(request.tokens), [])
        for request in replica.running
    )


def begin_copy(
    replica: FleetReplica, settings: HandOff, hits: list, reserved_blocks: int
) -> bool:
    """Take blocks for the head of the queue and copy its KV, if they are free."""
    pool, request = replica.pool, replica.waiting[0]
    prompt, source = request.prompt_count, request.prefill.home
    if pool.missing(request, prompt, hits) + reserved_blocks > len(pool.free):
        replica.copies_refused.add(request)
        return False
    replica.waiting.popleft()
    pool.give(request, prompt, hits)
    request.cached_tokens = len(hits) * pool.block_size
    request.to_copy = False
    begin_s = max(replica.now_s, source.link_s, replica.link_s)
    copied = pool.blocks_for(prompt) - len(hits)
    ready_s = begin_s + settings.handshake_s + copied * settings.block_s
    source.link_s = replica.link_s = request.ready_s = ready_s
    replica.holding.append(request)
    replica.copies.append(request)
    return True


def join(replica: FleetReplica, request: FleetRequest) -> None:
    """Let a request run whose copy is there."""
    replica.holding.remove(request)
    request.is_copied = True
    request.scheduled_s = replica.now_s
    request.known_at_admission = len(request.tokens)
    replica.pool.enter(request, request.prompt_count)
    replica.running.append(request)
