"""Images of requests: which are encoded when, and which stay in the encoder cache.

vLLM 0.32, ``Scheduler._try_schedule_encoder_inputs`` (v1/core/sched/scheduler.py) and
``EncoderCacheManager`` (v1/core/encoder_cache_manager.py). An image is encoded in the
iteration that computes the first of its tokens, whole. The tokens encoded in an
iteration are bounded, and those of the images in the cache: a chunk ends before an
image for which there is no room. A request refers to its images until their tokens are
computed, when the engine collects the result; others may go, the first left first.

``replica_memory`` has, after ``FIELDS``, five columns for each image in the cache.
``request_memory`` begins with what is known of a request when it arrives
(``image_columns``). An image that begins within the request's shared prefix is that of
its prefix group; others are the request's own.
"""

import numpy as np

from capplan.deployment.engine import EngineSettings
from capplan.deployment.images import MOST_ITEMS
from capplan.deployment.policy import Knob, Policy, Rules, indices
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import NONE, Phase
from capplan.workload.trace import Trace

FIELDS = (
    "items",  # images in the cache
    "cached_tokens",  # of them
    "held_tokens",  # of those that requests refer to
    "left",  # references dropped so far
    "runs",  # iterations put together so far
    "budget",  # tokens that may still be encoded in this one
    "encode_s",  # of all images that it encodes [s]
    "longest_s",  # of the longest of them [s]
    "unfinished",  # running requests whose prompt is not done
    "may_lose",  # 1: the head waits, and blocks that it finds may be taken
)
GIVEN = ("count", "tokens", "offset", "shared")
"""Of a request's images: how many, of how many tokens each, behind how many others,
and how many are those of the prefix group."""
_WIDTH = 5  # columns of an image in the cache: these
_OWNER, _INDEX, _TOKENS, _REFERENCES, _LEFT = range(_WIDTH)
RULES = Rules(
    settings={
        "cache_tokens": Knob(1),
        "disable_chunked_mm_input": Knob(0, least=0),
        "encoders": Knob(1),
        "least_s": Knob(0.0, least=0.0),
        "call_s": Knob(0.0, least=0.0),
        "image_s": Knob(0.0, least=0.0),
        "token_s": Knob(0.0, least=0.0),
        "token_pair_s": Knob(0.0, least=0.0),
    },
    async_scheduling=True,
    prefix_caching=True,
    request_columns=(
        *GIVEN,
        "first",  # images before it are computed
        "end",  # images from it on are not looked at yet
        "newest",  # iteration in which it last ran
        "before",  # and the one before
        "ended",  # iteration that ended its prompt
    ),
    replica_columns=FIELDS,
    keeps_batch=True,  # iterations are no shorter than without images
)
SETTING = indices(RULES.settings)
MEMORY = indices(FIELDS)
REQUEST = indices(RULES.request_columns)
_FIRST = len(FIELDS)


def images_policy(engine: EngineSettings) -> Policy:
    """Return vLLM V1's scheduler as it schedules images, which no user names."""
    assert engine.images is not None
    tokens = engine.images.cache_tokens(engine.max_num_batched_tokens)
    _, *names = RULES.settings
    values = (tokens, *(float(getattr(engine.images, name)) for name in names))
    items = tuple(f"item_{k}" for k in range(_WIDTH * min(tokens, MOST_ITEMS)))
    rules = RULES._replace(replica_columns=(*FIELDS, *items))
    return Policy("vllm-v1-images", rules, values)


def image_columns(trace: Trace, rows: slice) -> np.ndarray:
    """Return what is known of the images of each request, shape (n, len(GIVEN))."""
    count, offset = trace.images[rows], trace.image_offset[rows]
    tokens = trace.image_tokens[rows] // np.maximum(count, 1)
    prefix = np.where(trace.prefix_group[rows] < 0, 0, trace.prefix_tokens[rows])
    shared = -(-(prefix - offset) // np.maximum(tokens, 1))
    return np.stack([count, tokens, offset, np.clip(shared, 0, count)], axis=1)


def unlike_images(trace: Trace) -> np.ndarray:
    """Return which requests' images are not those of their prefix, shape (n,), bool.

    Requests of a prefix group have the same images where their prefixes overlap.
    """
    _, tokens, offset, shared = image_columns(trace, slice(None)).T
    group, rows = trace.prefix_group, np.flatnonzero(shared)
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
    request = state.requests[slot]
    if index < state.request_memory[slot, REQUEST.shared]:
        return request.prefix_group
    return -2 - request.row


@compiled()
def _find(state, r, slot, index):
    """Return the column at which an image of a request is in the cache, or NONE."""
    memory = state.replica_memory[r]
    owner = _owner(state, slot, index)
    tokens = state.request_memory[slot, REQUEST.tokens]
    for item in range(int(memory[MEMORY.items])):
        at = _FIRST + _WIDTH * item
        if (
            memory[at + _OWNER] == owner
            and memory[at + _INDEX] == index
            and memory[at + _TOKENS] == tokens
        ):
            return at
    return NONE


@compiled()
def _evict_oldest(state, r):
    """Let the image go that has been without references for longest."""
    memory = state.replica_memory[r]
    best = NONE
    for item in range(int(memory[MEMORY.items])):
        at = _FIRST + _WIDTH * item
        if memory[at + _REFERENCES] == 0.0 and (
            best == NONE or memory[at + _LEFT] < memory[best + _LEFT]
        ):
            best = at
    memory[MEMORY.cached_tokens] -= memory[best + _TOKENS]
    memory[MEMORY.items] -= 1.0
    last = _FIRST + _WIDTH * int(memory[MEMORY.items])
    for column in range(_WIDTH):
        memory[best + column] = memory[last + column]


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
    are encoded by ``encode_images``, if the chunk is scheduled.
    """
    images = state.request_memory[slot]
    memory = state.replica_memory[r]
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
            if memory[at + _REFERENCES] == 0.0:
                memory[MEMORY.held_tokens] += tokens
            memory[at + _REFERENCES] += 1.0
        elif _make_room(state, r, tokens, wanted):
            wanted += tokens
        else:
            return max(0, begin - start)
        images[REQUEST.end] += 1.0
    return chunk


@compiled()
def encode_images(state, r, slot, first):
    """Encode the images of a scheduled chunk from ``first`` on that are not cached."""
    images = state.request_memory[slot]
    memory = state.replica_memory[r]
    tokens = images[REQUEST.tokens]
    took_s = state.settings[SETTING.token_s]
    took_s += tokens * state.settings[SETTING.token_pair_s]
    took_s = state.settings[SETTING.image_s] + tokens * took_s
    for index in range(first, int(images[REQUEST.end])):
        if _find(state, r, slot, index) != NONE:
            continue
        at = _FIRST + _WIDTH * int(memory[MEMORY.items])
        memory[at + _OWNER] = _owner(state, slot, index)
        memory[at + _INDEX] = index
        memory[at + _TOKENS] = tokens
        memory[at + _REFERENCES] = 1.0
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
    tokens = images[REQUEST.tokens]
    while images[REQUEST.first] < images[REQUEST.end]:
        index = images[REQUEST.first]
        if images[REQUEST.offset] + (index + 1.0) * tokens > computed:
            return
        images[REQUEST.first] += 1.0
        at = _find(state, r, slot, index)
        if at == NONE:
            continue
        memory[at + _REFERENCES] -= 1.0
        if memory[at + _REFERENCES] == 0.0:
            memory[MEMORY.held_tokens] -= tokens
            memory[at + _LEFT] = memory[MEMORY.left]
            memory[MEMORY.left] += 1.0


@inlined()
def look_from(state, slot, start):
    """Let a request that is admitted need the images that end behind ``start``."""
    images = state.request_memory[slot]
    before = 0.0
    if images[REQUEST.count] > 0.0:
        passed = (start - images[REQUEST.offset]) // images[REQUEST.tokens]
        before = min(max(passed, 0.0), images[REQUEST.count])
    images[REQUEST.first] = before
    images[REQUEST.end] = before


@inlined()
def note_run(state, r, slot):
    """Note that a request is in the next iteration."""
    images = state.request_memory[slot]
    images[REQUEST.before] = images[REQUEST.newest]
    images[REQUEST.newest] = state.replica_memory[r, MEMORY.runs] + 1.0


@compiled()
def leave_collected(state, r):
    """Do what the engine does when it collects the oldest iteration, beforehand.

    Nothing is scheduled before. With async scheduling the newest token is in flight,
    and the engine goes by the tokens before it: an image at the end of the prompt is
    left one iteration later.
    """
    replica = state.replicas[r]
    memory = state.replica_memory[r]
    if memory[MEMORY.held_tokens] == 0.0:
        return
    oldest = memory[MEMORY.runs] - (replica.in_flight - 1)
    slot = replica.running_head
    while slot != NONE:
        request = state.requests[slot]
        images = state.request_memory[slot]
        runs = images[REQUEST.newest] == oldest or images[REQUEST.before] == oldest
        if images[REQUEST.first] < images[REQUEST.end] and runs:
            computed = request.prompt_tokens
            if request.phase == Phase.PREFILLING:
                computed = request.computed_tokens
            elif state.engine[0].depth == 2 and images[REQUEST.ended] >= oldest:
                finishes = (
                    request.phase == Phase.DRAINING and images[REQUEST.newest] == oldest
                )
                computed -= int(not finishes)
            leave_images(state, r, slot, computed)
        slot = request.next
