"""What runs in the next iteration, step by step: a function per scheduler but V1.

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
