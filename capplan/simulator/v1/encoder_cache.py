"""The encoder cache of a replica: which images stay in it, and which have room.

vLLM 0.32, ``EncoderCacheManager`` (v1/core/encoder_cache_manager.py). The tokens of the
images in the cache are bounded, and those encoded in an iteration. A request refers to
images; others may go, the first left first. ``State.encoded`` has five columns for each
image in the cache. An image that begins within the request's shared prefix is that of
its prefix group; others are the request's own.
"""

from capplan.deployment.engine import EngineSettings
from capplan.deployment.images import MOST_ITEMS
from capplan.deployment.policy import Knob, indices
from capplan.simulator.capable import Capability
from capplan.simulator.columns import REPLICA_COLUMNS, REQUEST_COLUMNS, places
from capplan.simulator.engine import speculation
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import NONE, State

SETTINGS = {
    **speculation.SETTINGS,
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
_WIDTH = 5  # columns of an image in the cache: these
_OWNER, _INDEX, _TOKENS, _REFERENCES, _LEFT = range(_WIDTH)


def _values(engine: EngineSettings) -> dict[str, float]:
    assert engine.images is not None
    first, *names = list(SETTINGS)[len(speculation.SETTINGS) :]
    tokens = engine.images.cache_tokens(engine.max_num_batched_tokens)
    return {
        first: tokens,
        **{name: float(getattr(engine.images, name)) for name in names},
    }


CAPABILITY = Capability(
    lambda engine: engine.images is not None,
    settings=SETTINGS,
    values=_values,
    keeps_batch=True,  # iterations are no shorter than without images
)


def cache_columns(engine: EngineSettings) -> int:
    """Return the columns of ``State.encoded``."""
    assert engine.images is not None
    tokens = engine.images.cache_tokens(engine.max_num_batched_tokens)
    return _WIDTH * min(tokens, MOST_ITEMS)


@inlined()
def _owner(state: State, slot: int, index):
    """Return whose an image of a request is: its prefix group's, or its own."""
    images = state.request_memory[slot]
    if index < images[REQUEST.shared]:
        return int(images[REQUEST.group])
    return -2 - state.requests[slot].row


@compiled()
def _find(state: State, r: int, slot: int, index):
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
def _evict_oldest(state: State, r: int):
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
def _make_room(state: State, r: int, tokens, wanted):
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


@inlined()
def tokens_ahead(state: State):
    """Return how many tokens behind those computed a draft with KV reads."""
    return int(state.settings[speculation.SETTING.drops_block])


@compiled()
def fit_images(state: State, r: int, slot: int, start, chunk):
    """Return the tokens of a chunk before the first image for which there is no room.

    The request refers to images of the chunk that are in the cache. Those that are not
    are encoded by ``encode_images``, if the chunk is scheduled. A draft with KV reads a
    token further.
    """
    ahead = tokens_ahead(state)
    images = state.request_memory[slot]
    memory = state.replica_memory[r]
    cache = state.encoded[r]
    tokens = images[REQUEST.tokens]
    wanted = 0.0
    while images[REQUEST.end] < images[REQUEST.count]:
        index = images[REQUEST.end]
        begin = int(images[REQUEST.offset] + index * tokens)
        if begin >= start + chunk + ahead:
            break
        if (
            state.settings[SETTING.disable_chunked_mm_input] != 0.0
            and start < begin
            and start + chunk < begin + tokens
        ):
            return _cut_before(state, slot, begin - start - ahead, wanted)
        at = _find(state, r, slot, index)
        if at != NONE:
            if cache[at + _REFERENCES] == 0.0:
                memory[MEMORY.held_tokens] += tokens
            cache[at + _REFERENCES] += 1.0
        elif _make_room(state, r, tokens, wanted):
            wanted += tokens
        else:
            return _cut_before(state, slot, begin - start - ahead, wanted)
        images[REQUEST.end] += 1.0
    return chunk


@inlined()
def _cut_before(state: State, slot: int, tokens, wanted):
    """Return the tokens of a chunk that ends before an image, at least none.

    Of none, the one image before it that a draft would read keeps its reference where
    it is in the cache; where it is to be encoded it is looked for again.
    """
    if tokens <= 0 and wanted > 0.0:
        state.request_memory[slot, REQUEST.end] -= 1.0
    return max(0, tokens)


@inlined()
def encode_s(state: State, tokens):
    """Return the time to encode an image. [s]"""
    took_s = state.settings[SETTING.token_s]
    took_s += tokens * state.settings[SETTING.token_pair_s]
    return state.settings[SETTING.image_s] + tokens * took_s


@compiled()
def encode_images(state: State, r: int, slot: int, first):
    """Encode the images of a scheduled chunk from ``first`` on that are not cached."""
    images = state.request_memory[slot]
    memory = state.replica_memory[r]
    cache = state.encoded[r]
    tokens = images[REQUEST.tokens]
    took_s = encode_s(state, tokens)
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
def leave_images(state: State, r: int, slot: int, computed):
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
