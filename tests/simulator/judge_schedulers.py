"""What runs in the next iteration, step by step: one plain function per scheduler.

Each takes a replica of ``judge.py`` and the scheduler's settings, and returns the
parts of the next iteration, (request, tokens computed before, new tokens), and
whether it preempted. They follow the sources that the schedulers' files name.
"""

from judge_accelgen import accelgen
from judge_alise import alise
from judge_fastgen import fastgen
from judge_fastserve import fastserve
from judge_oracle import oracle
from judge_sa import sa
from judge_sglang import sglang
from judge_trtllm import trtllm
from judge_vllm_v0 import vllm_v0


def vllm_v1(
    replica,
    settings,
    plan=lambda budget: None,
    may=lambda request: True,
    last=lambda running: running[-1],
):
    """Running requests first, then the queue; blocks are taken as KV grows.

    ``plan`` may change the queue's order, ``may`` keep a request from being admitted;
    ``last`` is the one to preempt.
    """
    parts, budget, preempted = going_on(replica, last)
    if not preempted:
        plan(budget)
        parts += from_queue(
            replica, budget, lambda r, b: admitted(r, b) if may(r.waiting[0]) else None
        )
    return parts, preempted


def going_on(
    replica, last=lambda running: running[-1], defers=False, skips=lambda request: False
):
    """Let the running ones go on; return their parts, the budget left, if preempted.

    ``defers``: nothing is preempted whose result is in flight. From one on that lacks a
    block for that reason, all sit the iteration out. One that it ``skips`` does.
    """
    pool = replica.pool
    budget = replica.engine.max_num_batched_tokens
    parts, preempted = [], False
    for request in list(replica.running):
        last_in_flight = request.placeholders and (
            request.computed + 2 - request.placeholders
            >= request.prompt_count + request.output_count
        )
        wanted = len(request.tokens) + request.placeholders - request.computed
        new = min(wanted, budget)
        if request not in replica.running or last_in_flight or new == 0:
            continue
        if skips(request):
            continue
        tokens = request.computed + new
        while pool.missing(request, tokens, []) > len(pool.free):
            victim = last(replica.running)
            if defers and victim.in_flight:
                return parts, budget, preempted
            preempted = True
            replica.running.remove(victim)
            budget += sum(new for other, _, new in parts if other is victim)
            parts = [part for part in parts if part[0] is not victim]
            replica.preempt(victim)
            if request not in replica.running:
                break
        if request not in replica.running:
            break
        pool.give(request, tokens, [])
        pool.enter(request, min(tokens, len(request.tokens)))
        parts.append((request, request.computed, new))
        budget -= new
    return parts, budget, preempted


def from_queue(replica, budget, admit):
    """Take from the queue while there are seats and budget, until one may not run.

    ``admit`` takes its head and returns parts, or returns None.
    """
    parts, set_aside = [], []
    while replica.waiting and budget and replica.seats_left > 0:
        if replica.waiting[0].stale:
            set_aside.append(replica.waiting.popleft())
            continue
        found = admit(replica, budget)
        if found is None:
            break
        parts += found
        budget -= sum(new for _, _, new in found)
    replica.waiting.extendleft(reversed(set_aside))
    return parts


def admitted(replica, budget):
    """Admit the head of the queue if all its known tokens fit."""
    pool, request = replica.pool, replica.waiting[0]
    hits = pool.hits(request)
    if pool.missing(request, len(request.tokens), hits) > len(pool.free):
        return None
    start = len(hits) * replica.engine.block_size
    new = min(len(request.tokens) - start, budget)
    pool.give(request, start + new, hits)
    pool.enter(request, start + new)
    if request.scheduled_s is None:
        request.cached_tokens = start
    replica.admit()
    return [(request, start, new)]


def vllm_v1_priority(replica, settings):
    """The same by priority: the queue in its order, the last of it preempted."""

    def order(request):
        return request.priority, request.row

    def sort(budget=0):
        waiting = sorted(replica.waiting, key=order)
        replica.waiting.clear()
        replica.waiting.extend(waiting)

    found = vllm_v1(replica, settings, sort, last=lambda r: max(r, key=order))
    sort()
    return found


def orca(replica, settings):
    """All decode; whole prompts join while there is a seat and room for max_len."""
    parts = decodes(replica.running)
    return parts + whole_prompts(replica, settings), False


def static(replica, settings):
    """A new batch is admitted when no request of the last one is left.

    With padding each runs for as long as the longest of its batch.
    """
    if replica.running:
        return decodes(replica.running), False
    parts = whole_prompts(replica, settings)
    if settings["padded"]:
        longest = max(request.output_count for request, _, _ in parts)
        for request in replica.running:
            request.output_count = longest
    return parts, False


def sarathi(replica, settings):
    """Decodes, the rest of the unfinished prompt, then new ones, up to a chunk."""
    pool = replica.pool
    kept, preempted = decodes_with_a_free_block(replica)
    parts = decodes(request for request in kept if prefilled(request))
    left = replica.engine.max_num_batched_tokens - len(parts)
    for request in kept:
        rest = len(request.tokens) - request.computed
        if not prefilled(request) and min(rest, left) > 0:
            parts.append((request, request.computed, min(rest, left)))
            left -= min(rest, left)
    while replica.waiting and not preempted and left > 0:
        request = replica.waiting[0]
        known = len(request.tokens)
        after = len(pool.free) - pool.missing(request, known, [])
        if after < watermark(replica) or len(replica.running) >= seats(replica):
            break
        pool.give(request, known, [])
        replica.admit()
        parts.append((request, 0, min(known, left)))
        left -= min(known, left)
    return parts, preempted


def whole_prompts(replica, settings):
    """Admit whole prompts, each with blocks for ``max_len`` tokens."""
    pool, parts = replica.pool, []
    while replica.waiting and len(replica.running) < seats(replica):
        request = replica.waiting[0]
        if pool.missing(request, settings["max_len"], []) > len(pool.free):
            break
        pool.give(request, settings["max_len"], [])
        replica.admit()
        parts.append((request, 0, len(request.tokens)))
    return parts


def decodes_with_a_free_block(replica):
    """Give each decode its block where one is free at its turn, needed or not.

    Returns the requests that still run. The latest arrival is preempted for others.
    """
    pool = replica.pool
    unseen = sorted(replica.running, key=lambda request: request.row)
    kept, preempted = [], False
    while unseen:
        request = unseen.pop(0)
        if prefilled(request):
            while not pool.free and unseen:
                _preempt(replica, unseen.pop())
                preempted = True
            if not pool.free:
                _preempt(replica, request)
                preempted = True
                continue
            pool.give(request, request.computed + 1, [])
        kept.append(request)
    return kept, preempted


def _preempt(replica, request):
    replica.running.remove(request)
    replica.preempt(request)


def prefilled(request):
    return request.computed >= request.known_at_admission


def decodes(requests):
    return [(request, request.computed, 1) for request in requests]


def seats(replica):
    return replica.engine.max_num_seqs


def watermark(replica):
    return int(0.01 * (replica.engine.kv_blocks - 1))


SCHEDULERS = {
    "vllm-v1": vllm_v1,
    "vllm-v1-priority": vllm_v1_priority,
    "orca": orca,
    "static": static,
    "sarathi": sarathi,
    "vllm-v0": vllm_v0,
    "fastgen": fastgen,
    "fastserve": fastserve,
    "alise": alise,
    "oracle": oracle,
    "sa": sa,
    "accelgen": accelgen,
    "sglang": sglang,
    "trtllm": trtllm,
}
