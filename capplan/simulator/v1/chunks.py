"""Chunks of a tier: which there are, and in which order they were used.

A chunk is so many blocks of a prompt, known by the row or text whose own its last block
is, and by its place. ``State.blocks`` are the chunks of a replica's tier, ``table``
finds them, and where no two are equal they stand in order of their last use. Where
there is no room the idle chunks go that were used longest ago.

One that is stored is the newest in vLLM 0.32. In 0.33 one that a request stores or
loads is used as of when it first used one, its last the oldest. When a request has
ended, all chunks that it used become the newest, its last first.
"""

from capplan.deployment.policy import Knob, indices
from capplan.simulator.columns import REPLICA_COLUMNS, REQUEST_COLUMNS, places
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.block_table import add_hash, find, remove_hash
from capplan.simulator.kv.kvcache import ceil_div
from capplan.simulator.kv.linked_list import linked, unlinked
from capplan.simulator.kv.paths import owner_of
from capplan.simulator.state import BITS, NONE, State
from capplan.simulator.v1 import adapters

SETTINGS = {
    **adapters.SETTINGS,
    "chunks": Knob(0, 0),
    "answers": Knob(0, 0, 1),
    "by_request": Knob(0, 0, 1),  # the order of use, as vLLM 0.33 has it
    "latency_s": Knob(0.0, 0, 1e6),  # of each copy
    "load_block_s": Knob(0.0, 0, 1e6),
    "store_block_s": Knob(0.0, 0, 1e6),
}
SETTING = indices(SETTINGS)
REQUEST = places(REQUEST_COLUMNS, "tiers")
REPLICA = places(REPLICA_COLUMNS, "tiers")


@inlined()
def _put_before(state: State, r: int, label, following):
    """Put a chunk before another in the order of use, or last where that is NONE."""
    memory = state.replica_memory[r]
    oldest, newest = int(memory[REPLICA.oldest]) - 1, int(memory[REPLICA.newest]) - 1
    oldest, newest = linked(state.blocks[r], oldest, newest, label, following)
    memory[REPLICA.oldest], memory[REPLICA.newest] = oldest + 1, newest + 1


@inlined()
def _leave_order(state: State, r: int, label):
    memory = state.replica_memory[r]
    oldest, newest = int(memory[REPLICA.oldest]) - 1, int(memory[REPLICA.newest]) - 1
    oldest, newest = unlinked(state.blocks[r], oldest, newest, label)
    memory[REPLICA.oldest], memory[REPLICA.newest] = oldest + 1, newest + 1


@compiled()
def note_path(state: State, r: int, row, start, end):
    """Note which chunks of a row from ``start`` to before ``end`` the tier has.

    ``spare`` has the chunk of each place, or -2 - the row or text whose own it would
    be. Return how many are missing, and how many others are being stored.
    """
    size = state.engine[0].blocks_per_chunk
    blocks, spare = state.blocks[r], state.spare[r]
    node, label = row, NONE
    missing = stored = 0
    for k in range(end - 1, start - 1, -1):
        node = owner_of(state, node, (k + 1) * size - 1)
        label -= 1  # chunks stored at once mostly stand side by side
        if label < 0 or blocks[label].owner != node or blocks[label].index != k:
            label = find(state, r, node, k)
        if label == NONE:
            spare[k] = -2 - node
            missing += 1
        else:
            spare[k] = label
            stored += int(blocks[label].references < 0)
    return missing, stored


@inlined()
def _next_rank(state: State, r: int):
    state.replica_memory[r, REPLICA.rank] += 1.0
    return int(state.replica_memory[r, REPLICA.rank])


@compiled()
def _move(state: State, r: int, slot: int, label):
    """Let a chunk be used as of when its request first used one, as vLLM 0.33 has it.

    Of those of a request the last is the oldest.
    """
    rank = int(state.request_memory[slot, REQUEST.rank])
    if state.transfers[r, label].rank >= rank:
        return
    _leave_order(state, r, label)
    k = state.blocks[r, label].index
    state.transfers[r, label].rank = rank
    following = NONE
    before = int(state.replica_memory[r, REPLICA.newest]) - 1
    moved = int(state.request_memory[slot, REQUEST.moved]) - 1
    if moved != NONE and (
        state.transfers[r, moved].rank == rank and state.blocks[r, moved].index < k
    ):
        following, before = moved, state.blocks[r, moved].previous
    state.request_memory[slot, REQUEST.moved] = label + 1
    while before != NONE:
        other = state.transfers[r, before].rank
        if other < rank or (other == rank and state.blocks[r, before].index > k):
            break
        following = before
        before = state.blocks[r, before].previous
    _put_before(state, r, label, following)


@compiled()
def use(state: State, r: int, slot: int, start, end):
    """Note that a request uses the chunks of its path that were noted."""
    for word in range(start // BITS, ceil_div(end, BITS)):
        low, high = max(start - word * BITS, 0), min(end - word * BITS, BITS)
        bits = ((1 << high) - 1) ^ ((1 << low) - 1)
        if state.settings[SETTING.by_request] != 0.0:
            _use_by_rank(state, r, slot, word, bits & ~state.holdings[slot, word])
        state.holdings[slot, word] |= bits


@inlined()
def _use_by_rank(state: State, r: int, slot: int, word, bits):
    for k in range(word * BITS, (word + 1) * BITS):
        if (bits >> (k - word * BITS)) & 1 == 1:
            if state.request_memory[slot, REQUEST.rank] == 0.0:
                state.request_memory[slot, REQUEST.rank] = _next_rank(state, r)
            if state.spare[r, k] >= 0:
                _move(state, r, slot, state.spare[r, k])


@compiled()
def make_newest(state: State, r: int, slot: int):
    """Let all chunks that a request has used be the newest, its last the oldest."""
    row = state.requests[slot].row
    for word in range(state.holdings.shape[1] - 1, -1, -1):
        used = state.holdings[slot, word]
        if used == 0:
            continue
        state.holdings[slot, word] = 0
        first = word * BITS
        last = min(first + BITS, state.spare.shape[1])
        note_path(state, r, row, first, last)
        for k in range(last - 1, first - 1, -1):
            label = state.spare[r, k]
            if (used >> (k - first)) & 1 == 1 and label >= 0:
                _leave_order(state, r, label)
                _put_before(state, r, label, NONE)
                state.transfers[r, label].rank = _next_rank(state, r)


@inlined()
def _is_offered(state: State, r: int, label, start, end):
    """Return whether a chunk is among those of the path that was noted."""
    k = state.blocks[r, label].index
    return start <= k < end and state.spare[r, k] == label


@compiled()
def evict(state: State, r: int, count, start, end):
    """Let ``count`` idle chunks go, but for those noted; return whether there are."""
    memory = state.replica_memory[r]
    if count <= 0:
        return True
    if count > memory[REPLICA.idle]:
        return False
    left = count
    label = int(memory[REPLICA.oldest]) - 1
    while label != NONE and left > 0:
        idle = state.blocks[r, label].references == 0
        left -= int(idle and not _is_offered(state, r, label, start, end))
        label = state.blocks[r, label].next
    if left > 0:
        return False
    label = int(memory[REPLICA.oldest]) - 1
    while left < count:
        block = state.blocks[r, label]
        following = block.next
        if block.references == 0 and not _is_offered(state, r, label, start, end):
            _leave_order(state, r, label)
            remove_hash(state, r, label)
            state.transfers[r, label].rank = 0
            block.next = int(memory[REPLICA.unused])
            memory[REPLICA.unused] = label + 1
            left += 1
        label = following
    memory[REPLICA.idle] -= count
    memory[REPLICA.free] += count
    memory[REPLICA.evicted] += count
    return True


@inlined()
def _new_chunk(state: State, r: int):
    """Return a chunk without content."""
    memory = state.replica_memory[r]
    memory[REPLICA.free] -= 1
    label = int(memory[REPLICA.unused]) - 1
    if label == NONE:
        label = int(memory[REPLICA.used])
        memory[REPLICA.used] += 1
    else:
        memory[REPLICA.unused] = state.blocks[r, label].next
    return label


@inlined()
def add_chunk(state: State, r: int, slot: int, owner, k):
    """Return a new chunk of a request, the newest; it is being stored."""
    label = _new_chunk(state, r)
    add_hash(state, r, label, owner, k, False)
    _put_before(state, r, label, NONE)
    state.transfers[r, label].rank = 0
    if state.settings[SETTING.by_request] != 0.0:
        _move(state, r, slot, label)
    state.blocks[r, label].references = -1
    return label
