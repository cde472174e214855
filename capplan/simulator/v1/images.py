"""Images of requests: which are encoded when, and which stay in the encoder cache.

vLLM 0.32, ``Scheduler._try_schedule_encoder_inputs`` (v1/core/sched/scheduler.py) and
``EncoderCacheManager`` (v1/core/encoder_cache_manager.py). An image is encoded in the
iteration that computes the first of its tokens, whole. The tokens encoded in an
iteration are bounded, and those of the images in the cache: a chunk ends before an
image for which there is no room. A request refers to its images until their tokens are
computed, when the engine collects the result; others may go, the first left first.

``State.encoded`` has five columns for each image in the cache. What is known of a
request when it arrives (``image_columns``) stands in ``request_memory`` from
``GIVEN_AT`` on. An image that begins within the request's shared prefix is that of its
prefix group; others are the request's own.
"""

import numpy as np

from capplan.deployment.engine import EngineSettings
from capplan.deployment.images import MOST_ITEMS
from capplan.deployment.policy import Knob, indices
from capplan.simulator.columns import REPLICA_COLUMNS, REQUEST_COLUMNS, places
from capplan.simulator.engine import speculation
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import NONE, Phase
from capplan.workload.trace import Trace

SETTINGS = {
    **speculation.RULES.settings,
    "cache_tokens": Knob(1),
    "disable_chunked_mm_input": Knob(0, least=0),
    "encoders": Knob(1),
    "least_s": Knob(0.0, least=0.0),
    "call_s": Knob(0.0, least=0.0),
    "image_s": Knob(0.0, least=0.0),
    "token_s": Knob(0.0, least=0.0),
    "token_pair_s": Knob(0.0, least=0.0),
}
SETTING = indices(SETTINGS)
REQUEST = places(REQUEST_COLUMNS, "images")
MEMORY = places(REPLICA_COLUMNS, "images")
GIVEN_AT = REQUEST.count
"""The first of the columns that ``image_columns`` gives."""
_WIDTH = 5  # columns of an image in the cache: these
_OWNER, _INDEX, _TOKENS, _REFERENCES, _LEFT = range(_WIDTH)


def images_values(engine: EngineSettings) -> dict[str, float]:
    """Return the settings of an engine's images by name."""
    assert engine.images is not None
    first, *names = list(SETTINGS)[len(speculation.RULES.settings) :]
    tokens = engine.images.cache_tokens(engine.max_num_batched_tokens)
    return {
        first: tokens,
        **{name: float(getattr(engine.images, name)) for name in names},
    }


def cache_columns(engine: EngineSettings) -> int:
    """Return the columns of ``State.encoded``."""
    assert engine.images is not None
    tokens = engine.images.cache_tokens(engine.max_num_batched_tokens)
    return _WIDTH * min(tokens, MOST_ITEMS)


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
def _owner(state, slot, index):
    """Return whose an image of a request is: its prefix group's, or its own."""
    images = state.request_memory[slot]
    if index < images[REQUEST.shared]:
        return int(images[REQUEST.group])
    return -2 - state.requests[slot].row


@compiled()
def _find(state, r, slot, index):
    """Return the column at which an image of a request is in the cache, or NONE."""
    memory = state.replica_memory[r]
    cache = state.encoded[r]
    owner = _owner(state, slot, index)
    tokens = state.request_memory[slot, REQUEST.tokens]
    for item in range(int(memory[MEMORY.items])):
        at = _WIDTH * item
        if (
            cache[at + _OWNER] == owner
            and cache[at + _INDEX] == index
            and cache[at + _TOKENS] == tokens
        ):
            return at
    return NONE


@compiled()
def _evict_oldest(state, r):
    """Let the image go that has been without references for longest."""
    memory = state.replica_memory[r]
    cache = state.encoded[r]
    best = NONE
    for item in range(int(memory[MEMORY.items])):
        at = _WIDTH * item
        if cache[at + _REFERENCES] == 0.0 and (
            best == NONE or cache[at + _LEFT] < cache[best + _LEFT]
        ):
            best = at
    memory[MEMORY.cached_tokens] -= cache[best + _TOKENS]
    memory[MEMORY.items] -= 1.0
    last = _WIDTH * int(memory[MEMORY.items])
    for column in range(_WIDTH):
        cache[best + column] = cache[last + column]


@compiled()
def _make_room(state, r, tokens, wanted):
    """Return whether an image can be encoded beside ``wanted`` tokens of others.

    Images without references are evicted for it.
    """
    memory = state.replica_memory[r]
    size = state.settings[SETTING.cache_tokens]
    if wanted + tokens > memory[MEMORY.budget]:
        return False
    if wanted + tokens > size - memory[MEMORY.held_tokens]:
        return False
    while wanted + tokens > size - memory[MEMORY.cached_tokens]:
        _evict_oldest(state, r)
    return True


@compiled()
def fit_images(state, r, slot, start, chunk):
    """Return the tokens of a chunk before the first image for which there is no room.

    The request refers to images of the chunk that are in the cache. Those that are not
    are encoded by ``_encode_images``, if the chunk is scheduled.
    """
    images = state.request_memory[slot]
    memory = state.replica_memory[r]
    cache = state.encoded[r]
    tokens = images[REQUEST.tokens]
    wanted = 0.0
    while images[REQUEST.end] < images[REQUEST.count]:
        index = images[REQUEST.end]
        begin = int(images[REQUEST.offset] + index * tokens)
        if begin >= start + chunk:
            break
        if (
            state.settings[SETTING.disable_chunked_mm_input] != 0.0
            and start < begin
            and start + chunk < begin + tokens
        ):
            return begin - start
        at = _find(state, r, slot, index)
        if at != NONE:
            if cache[at + _REFERENCES] == 0.0:
                memory[MEMORY.held_tokens] += tokens
            cache[at + _REFERENCES] += 1.0
        elif _make_room(state, r, tokens, wanted):
            wanted += tokens
        else:
            return max(0, begin - start)
        images[REQUEST.end] += 1.0
    return chunk


@inlined()
def _encode_s(state, tokens):
    """Return the time to encode an image. [s]"""
    took_s = state.settings[SETTING.token_s]
    took_s += tokens * state.settings[SETTING.token_pair_s]
    return state.settings[SETTING.image_s] + tokens * took_s


@compiled()
def _encode_images(state, r, slot, first):
    """Encode the images of a scheduled chunk from ``first`` on that are not cached."""
    images = state.request_memory[slot]
    memory = state.replica_memory[r]
    cache = state.encoded[r]
    tokens = images[REQUEST.tokens]
    took_s = _encode_s(state, tokens)
    for index in range(first, int(images[REQUEST.end])):
        if _find(state, r, slot, index) != NONE:
            continue
        at = _WIDTH * int(memory[MEMORY.items])
        images[REQUEST.encoded] += 1.0
        cache[at + _OWNER] = _owner(state, slot, index)
        cache[at + _INDEX] = index
        cache[at + _TOKENS] = tokens
        cache[at + _REFERENCES] = 1.0
        memory[MEMORY.items] += 1.0
        memory[MEMORY.cached_tokens] += tokens
        memory[MEMORY.held_tokens] += tokens
        memory[MEMORY.budget] -= tokens
        memory[MEMORY.encode_s] += took_s
        memory[MEMORY.longest_s] = max(memory[MEMORY.longest_s], took_s)


@compiled()
def leave_images(state, r, slot, computed):
    """Let a request no longer refer to images that end within ``computed`` tokens."""
    images = state.request_memory[slot]
    memory = state.replica_memory[r]
    cache = state.encoded[r]
    tokens = images[REQUEST.tokens]
    while images[REQUEST.first] < images[REQUEST.end]:
        index = images[REQUEST.first]
        if images[REQUEST.offset] + (index + 1.0) * tokens > computed:
            return
        images[REQUEST.first] += 1.0
        at = _find(state, r, slot, index)
        if at == NONE:
            continue
        cache[at + _REFERENCES] -= 1.0
        if cache[at + _REFERENCES] == 0.0:
            memory[MEMORY.held_tokens] -= tokens
            cache[at + _LEFT] = memory[MEMORY.left]
            memory[MEMORY.left] += 1.0


@inlined()
def look_from(state, slot, start):
    """Let a request need the images that end behind ``start``; return the first."""
    images = state.request_memory[slot]
    before = 0.0
    if images[REQUEST.count] > 0.0:
        passed = (start - images[REQUEST.offset]) // images[REQUEST.tokens]
        before = min(max(passed, 0.0), images[REQUEST.count])
    images[REQUEST.first] = before
    images[REQUEST.end] = before
    return int(before)


@inlined()
def note_run(state, r, slot):
    """Note that a request is in the next iteration."""
    images = state.request_memory[slot]
    images[REQUEST.before] = images[REQUEST.newest]
    images[REQUEST.newest] = state.replicas[r].iterations + 1
    images[REQUEST.encoded] = 0.0


@compiled()
def _leave_collected(state, r, newest, in_flight):
    """Do what the engine does when it collects the oldest iteration, beforehand.

    Nothing is scheduled before. With async scheduling the newest token is in flight,
    and the engine goes by the tokens before it: an image at the end of the prompt is
    left one iteration later.
    """
    memory = state.replica_memory[r]
    if memory[MEMORY.held_tokens] == 0.0:
        return
    oldest = newest - (in_flight - 1)
    slot = state.replicas[r].running_head
    while slot != NONE:
        request = state.requests[slot]
        images = state.request_memory[slot]
        last = images[REQUEST.newest]
        runs = last == oldest or images[REQUEST.before] == oldest
        if images[REQUEST.first] < images[REQUEST.end] and runs:
            computed = request.prompt_tokens
            if request.phase == Phase.PREFILLING:
                computed = min(computed, request.computed_tokens)
            if computed == request.prompt_tokens and (
                state.engine[0].depth == 2 and images[REQUEST.ended] >= oldest
            ):
                finishes = request.phase == Phase.DRAINING and last == oldest
                computed -= int(not finishes)
            leave_images(state, r, slot, computed)
        slot = request.next


@inlined()
def begin_images(state, r):
    """Begin an iteration that has no images yet."""
    memory = state.replica_memory[r]
    memory[MEMORY.budget] = state.settings[SETTING.cache_tokens]
    memory[MEMORY.encode_s] = 0.0
    memory[MEMORY.longest_s] = 0.0
    memory[MEMORY.may_lose] = 0.0


@inlined()
def needs_walk(state, r):
    """Return whether running requests are to be looked at one by one."""
    memory = state.replica_memory[r]
    return memory[MEMORY.unfinished] + memory[MEMORY.held_tokens] > 0.0


@inlined()
def run_chunk(state, r, slot, first):
    """Note a chunk of the iteration, and encode its images from ``first`` on."""
    note_run(state, r, slot)
    _encode_images(state, r, slot, first)
    request = state.requests[slot]
    if request.computed_tokens < request.known_tokens:
        return
    state.replica_memory[r, MEMORY.unfinished] -= 1.0
    images = state.request_memory[slot]
    fresh = request.known_tokens == request.prompt_tokens
    images[REQUEST.ended] = images[REQUEST.newest] if fresh else 0.0


@compiled()
def leave_encoder(state, r, slot):
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
    memory[MEMORY.encode_s] -= images[REQUEST.encoded] * _encode_s(state, tokens)
    images[REQUEST.encoded] = 0.0
    memory[MEMORY.longest_s] = 0.0
    other = state.replicas[r].running_head
    while other != NONE:
        images = state.request_memory[other]
        if images[REQUEST.newest] == this and images[REQUEST.encoded] > 0.0:
            took_s = _encode_s(state, images[REQUEST.tokens])
            memory[MEMORY.longest_s] = max(memory[MEMORY.longest_s], took_s)
        other = state.requests[other].next


@inlined()
def drop_images(state, r, slot):
    """Let a request that is preempted no longer refer to images."""
    request = state.requests[slot]
    if request.phase == Phase.PREFILLING:
        state.replica_memory[r, MEMORY.unfinished] -= 1.0
    leave_images(state, r, slot, request.prompt_tokens)


@inlined()
def run_first_chunk(state, r, slot, first):
    """Note the first chunk of a request that was admitted, as ``run_chunk``."""
    state.replica_memory[r, MEMORY.unfinished] += 1.0
    run_chunk(state, r, slot, first)


@inlined()
def refuse_images(state, r, slot, hits_free):
    """Let a waiting request no longer refer to images, since it does not fit.

    Each try evicts images for those of its chunk: another chunk's, where blocks that it
    finds have been taken.
    """
    if hits_free > 0 and state.request_memory[slot, REQUEST.count] > 0.0:
        state.replica_memory[r, MEMORY.may_lose] = 1.0
    leave_images(state, r, slot, state.requests[slot].prompt_tokens)


@inlined()
def images_change(state, r):
    """Return whether the next iteration may differ for its images."""
    may_lose = state.replica_memory[r, MEMORY.may_lose] != 0.0
    return may_lose or needs_walk(state, r)


@inlined()
def note_images(state, r, runs):
    """Note the time of encoding, and what the engine does next if this ``runs``."""
    replica = state.replicas[r]
    memory = state.replica_memory[r]
    newest = replica.iterations
    in_flight = replica.in_flight
    if runs:
        newest += 1
        in_flight += 1
        if memory[MEMORY.budget] < state.settings[SETTING.cache_tokens]:
            shared_s = memory[MEMORY.encode_s] / state.settings[SETTING.encoders]
            shared_s = max(shared_s, memory[MEMORY.longest_s])
            shared_s += state.settings[SETTING.call_s]
            replica.more_s += max(shared_s, state.settings[SETTING.least_s])
    if in_flight == state.engine[0].depth or (in_flight > 0 and not runs):
        _leave_collected(state, r, newest, in_flight)
