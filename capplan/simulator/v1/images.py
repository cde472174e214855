"""Images of requests: in which iteration each is encoded, and until when it is held.

vLLM 0.32, ``Scheduler._try_schedule_encoder_inputs`` (v1/core/sched/scheduler.py). An
image is encoded in the iteration that computes the first of its tokens, whole. A chunk
ends before an image for which there is no room. A request refers to its images until
their tokens are computed, when the engine collects the result.

What is known of a request when it arrives (``image_columns``) stands in
``request_memory`` from ``GIVEN_AT`` on.
"""

import numpy as np

from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import NONE, Phase, State
from capplan.simulator.v1.encoder_cache import (
    MEMORY,
    REQUEST,
    SETTING,
    encode_images,
    encode_s,
    leave_images,
    tokens_ahead,
)
from capplan.simulator.v1.stages import was_in
from capplan.workload.trace import Trace

GIVEN_AT = REQUEST.count
"""The first of the columns that ``image_columns`` gives."""


def image_columns(trace: Trace, rows: slice) -> np.ndarray:
    """Return what is known of the images of each request, shape (n, 5)."""
    count, offset = trace.images[rows], trace.image_offset[rows]
    tokens = trace.image_tokens[rows] // np.maximum(count, 1)
    prefix = np.where(trace.prefix_group[rows] < 0, 0, trace.prefix_tokens[rows])
    shared = -(-(prefix - offset) // np.maximum(tokens, 1))
    own = np.clip(shared, 0, count)
    return np.stack([count, tokens, offset, own, trace.prefix_group[rows]], axis=1)


def unlike_images(trace: Trace) -> np.ndarray:
    """Return which requests' images are not those of their prefix, shape (n,), bool.

    Requests of a prefix group have the same images where their prefixes overlap.
    """
    _, tokens, offset, shared, group = image_columns(trace, slice(None)).T
    rows = np.flatnonzero(shared)
    if len(rows) == 0:
        return np.zeros(len(trace), bool)
    known, first = np.unique(group[rows], return_index=True)
    place = np.minimum(np.searchsorted(known, group), len(known) - 1)
    one = rows[first][place]
    within = (known[place] == group) & (trace.prefix_tokens > offset[one])
    alike = (shared > 0) & (offset == offset[one]) & (tokens == tokens[one])
    return np.asarray(within & ~alike)


@inlined()
def look_from(state: State, r: int, slot: int, start):
    """Let a request need the images that end behind ``start``; return the first.

    One that it has referred to when it was tried before it does not refer to again.
    """
    images = state.request_memory[slot]
    before = 0.0
    if images[REQUEST.count] > 0.0:
        passed = (start - images[REQUEST.offset]) // images[REQUEST.tokens]
        before = min(max(passed, 0.0), images[REQUEST.count])
    if images[REQUEST.first] < images[REQUEST.end]:
        if images[REQUEST.first] == before:
            return int(before)
        leave_images(state, r, slot, state.requests[slot].prompt_tokens)
    images[REQUEST.first] = before
    images[REQUEST.end] = before
    return int(before)


@inlined()
def note_run(state: State, r: int, slot: int):
    """Note that a request is in the next iteration."""
    images = state.request_memory[slot]
    images[REQUEST.before] = images[REQUEST.newest]
    images[REQUEST.newest] = state.replicas[r].iterations + 1
    images[REQUEST.since] += 1.0
    images[REQUEST.encoded] = 0.0


@inlined()
def _ran_in(state: State, slot: int, iteration):
    """Return whether a request was in one of the iterations in flight."""
    images = state.request_memory[slot]
    if state.engine[0].depth > 2:
        return was_in(state, slot, iteration)
    return images[REQUEST.newest] == iteration or images[REQUEST.before] == iteration


@inlined()
def _collected_tokens(state: State, slot: int, iteration):
    """Return how many tokens of a request the engine goes by when it collects one.

    At least. With async scheduling the newest token is in flight, and it goes by those
    before; a draft with KV reads a token further.
    """
    request = state.requests[slot]
    images = state.request_memory[slot]
    ahead = tokens_ahead(state)
    if request.computed_tokens < request.known_tokens:
        return request.computed_tokens - ahead
    is_last = images[REQUEST.newest] == iteration
    if request.phase == Phase.DRAINING and is_last:
        return request.known_tokens
    since = max(0, int(images[REQUEST.since]) - int(not is_last))
    in_flight = int(state.engine[0].depth > 1)
    return request.known_tokens + min(since, 2) - in_flight - ahead


@compiled()
def _leave_collected(state: State, r: int, newest, in_flight):
    """Do what the engine does when it collects the oldest iteration, beforehand.

    Nothing is scheduled before.
    """
    memory = state.replica_memory[r]
    if memory[MEMORY.held_tokens] == 0.0:
        return
    oldest = newest - (in_flight - 1)
    slot = state.replicas[r].running_head
    while slot != NONE:
        images = state.request_memory[slot]
        holds = images[REQUEST.first] < images[REQUEST.end]
        if holds and _ran_in(state, slot, oldest):
            leave_images(state, r, slot, _collected_tokens(state, slot, oldest))
        slot = state.requests[slot].next


@inlined()
def begin_images(state: State, r: int):
    """Begin an iteration that has no images yet."""
    memory = state.replica_memory[r]
    memory[MEMORY.budget] = state.settings[SETTING.cache_tokens]
    memory[MEMORY.encode_s] = 0.0
    memory[MEMORY.longest_s] = 0.0
    memory[MEMORY.may_lose] = 0.0


@inlined()
def needs_walk(state: State, r: int):
    """Return whether running requests are to be looked at one by one."""
    memory = state.replica_memory[r]
    return memory[MEMORY.unfinished] + memory[MEMORY.held_tokens] > 0.0


@inlined()
def run_chunk(state: State, r: int, slot: int, first):
    """Note a chunk of the iteration, and encode its images from ``first`` on."""
    note_run(state, r, slot)
    encode_images(state, r, slot, first)
    request = state.requests[slot]
    if request.computed_tokens < request.known_tokens:
        return
    state.replica_memory[r, MEMORY.unfinished] -= 1.0
    images = state.request_memory[slot]
    images[REQUEST.since] = 0.0
    images[REQUEST.beyond] = request.known_tokens - request.prompt_tokens


@compiled()
def leave_encoder(state: State, r: int, slot: int):
    """Take what the iteration was to encode for a request out of it again.

    The engine's cache keeps these images, as if they had been encoded.
    """
    images = state.request_memory[slot]
    memory = state.replica_memory[r]
    this = state.replicas[r].iterations + 1
    if images[REQUEST.newest] != this or images[REQUEST.encoded] == 0.0:
        return
    tokens = images[REQUEST.tokens]
    memory[MEMORY.budget] += images[REQUEST.encoded] * tokens
    memory[MEMORY.encode_s] -= images[REQUEST.encoded] * encode_s(state, tokens)
    images[REQUEST.encoded] = 0.0
    memory[MEMORY.longest_s] = 0.0
    other = state.replicas[r].running_head
    while other != NONE:
        images = state.request_memory[other]
        if images[REQUEST.newest] == this and images[REQUEST.encoded] > 0.0:
            took_s = encode_s(state, images[REQUEST.tokens])
            memory[MEMORY.longest_s] = max(memory[MEMORY.longest_s], took_s)
        other = state.requests[other].next


@inlined()
def drop_images(state: State, r: int, slot: int):
    """Let a request that is preempted no longer refer to images."""
    request = state.requests[slot]
    unfinished = request.computed_tokens < request.known_tokens
    if request.phase == Phase.PREFILLING and unfinished:
        state.replica_memory[r, MEMORY.unfinished] -= 1.0
    leave_images(state, r, slot, request.prompt_tokens)


@inlined()
def run_first_chunk(state: State, r: int, slot: int, first):
    """Note the first chunk of a request that was admitted, as ``run_chunk``."""
    state.replica_memory[r, MEMORY.unfinished] += 1.0
    run_chunk(state, r, slot, first)


@inlined()
def refuse_images(state: State, r: int, slot: int, hits_free):
    """Let a waiting request no longer refer to images, since it does not fit.

    Each try evicts images for those of its chunk: another chunk's, where blocks that it
    finds have been taken.
    """
    if hits_free > 0 and state.request_memory[slot, REQUEST.count] > 0.0:
        state.replica_memory[r, MEMORY.may_lose] = 1.0
    leave_images(state, r, slot, state.requests[slot].prompt_tokens)


@inlined()
def images_change(state: State, r: int):
    """Return whether the next iteration may differ for its images."""
    may_lose = state.replica_memory[r, MEMORY.may_lose] != 0.0
    return may_lose or needs_walk(state, r)


@inlined()
def note_images(state: State, r: int, runs):
    """Note what the engine does if this ``runs``; return the encoder's time. [s]"""
    replica = state.replicas[r]
    memory = state.replica_memory[r]
    newest = replica.iterations
    in_flight = replica.in_flight
    took_s = 0.0
    if runs:
        newest += 1
        in_flight += 1
        if memory[MEMORY.budget] < state.settings[SETTING.cache_tokens]:
            shared_s = memory[MEMORY.encode_s] / state.settings[SETTING.encoders]
            shared_s = max(shared_s, memory[MEMORY.longest_s])
            shared_s += state.settings[SETTING.call_s]
            took_s = max(shared_s, state.settings[SETTING.least_s])
    if in_flight == state.engine[0].depth or (in_flight > 0 and not runs):
        _leave_collected(state, r, newest, in_flight)
    return took_s
