"""KV of prompts that host memory keeps: vLLM's ``--kv-offloading-size``.

vLLM 0.32, v1/core/sched/scheduler.py with ``OffloadingConnector`` (kv_connector/v1/
offloading/scheduler.py) and its CPU manager (v1/kv_offload/cpu). A chunk is so many
blocks of a prompt, known by the row or text whose own its last block is, and by its
place. ``State.blocks`` are the chunks of a replica's tier, ``table`` finds them,
and where no two are equal they stand in order of their last use.

- Stored are the chunks of each request that an iteration has tokens of, once these are
  full, and those left when it ends. Where there is no room the idle chunks go that were
  used longest ago; if they are not enough none is stored, and all are offered again.
- A request that has nothing on the GPU looks in the tier behind what the prefix cache
  has. While a chunk that it would use is being copied it is passed over. It takes its
  blocks at once, but no seat, and goes before all that hold none; it runs when the
  scheduler knows that its copy has ended.
- When a request has ended, all chunks that it used become the newest, its last first.
- Copies run one at a time in each direction. Stores begin before the next iteration,
  loads behind their own. The workers look for ended copies when they start an iteration
  and tell with its result, or at once where nothing runs.
- An iteration waits for the stores of requests that it preempts, and for those of ended
  requests whose blocks it takes or finds.

What may be preempted with two iterations in flight, and which blocks stay free, is as
in ``copies.py``.
"""

import math

from capplan.deployment.engine import EngineSettings
from capplan.deployment.policy import Knob, indices
from capplan.simulator.capable import Capability
from capplan.simulator.columns import REPLICA_COLUMNS, REQUEST_COLUMNS, places
from capplan.simulator.engine.decoding import computed_tokens
from capplan.simulator.engine.queues import (
    give_slot,
    insert_waiting_before,
    is_flying,
    remove_waiting,
)
from capplan.simulator.engine.speculation import verified_tokens
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.block_table import add_hash, find, remove_hash
from capplan.simulator.kv.copies import REPLICA as PULLED
from capplan.simulator.kv.kvcache import (
    adopt_hits,
    ceil_div,
    share_full_blocks,
    take_blocks,
)
from capplan.simulator.kv.linked_list import linked, unlinked
from capplan.simulator.state import BITS, NONE, Lineage, Phase, State
from capplan.simulator.v1 import adapters, copies
from capplan.simulator.v1.drafts import lookahead_tokens

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
LOADS, ENDED, FOUND = 1.0, 2.0, 3.0
"""Of ``REQUEST.load``."""


def _values(engine: EngineSettings) -> dict[str, float]:
    names = list(SETTINGS)[len(adapters.SETTINGS) :]
    return {name: float(getattr(engine.tier, name)) for name in names}


CAPABILITY = Capability(
    lambda engine: engine.has_tier,
    settings=SETTINGS,
    values=_values,
    keeps_batch=True,
)


# Chunks: which there are, and in which order they were used.


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
def _note_path(state: State, r: int, row, start, end):
    """Note which chunks of a row from ``start`` to before ``end`` the tier has.

    ``spare`` has the chunk of each place, or -2 - the row or text whose own it would
    be.
    """
    size = state.engine[0].blocks_per_chunk
    node = row
    for k in range(end - 1, start - 1, -1):
        while (k + 1) * size <= state.lineage[node, Lineage.FIRST]:
            node = state.lineage[node, Lineage.PARENT]
        label = find(state, r, node, k)
        state.spare[r, k] = -2 - node if label == NONE else label


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


@inlined()
def _use(state: State, r: int, slot: int, k, label):
    """Note that a request uses a chunk at a place of its path; NONE: a new one."""
    word, bit = k // BITS, 1 << (k % BITS)
    if state.holdings[slot, word] & bit == 0:
        state.holdings[slot, word] |= bit
        if state.settings[SETTING.by_request] != 0.0:
            if state.request_memory[slot, REQUEST.rank] == 0.0:
                state.request_memory[slot, REQUEST.rank] = _next_rank(state, r)
            if label >= 0:
                _move(state, r, slot, label)


@compiled()
def _make_newest(state: State, r: int, slot: int):
    """Let all chunks that a request has used be the newest, its last the oldest."""
    row = state.requests[slot].row
    for word in range(state.holdings.shape[1] - 1, -1, -1):
        used = state.holdings[slot, word]
        if used == 0:
            continue
        state.holdings[slot, word] = 0
        first = word * BITS
        last = min(first + BITS, state.spare.shape[1])
        _note_path(state, r, row, first, last)
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
def _evict(state: State, r: int, count, start, end):
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


# Copies: those that are not known to have ended, in the order they were asked for.


@compiled()
def _begin_transfer(state: State, r: int, slot: int, first, blocks, loads):
    """Note a copy of the chunks from ``first`` on, which is still to begin."""
    memory = state.replica_memory[r]
    transfer = state.transfers[r, first]
    transfer.end_s = math.inf
    transfer.slot = slot
    transfer.blocks = blocks
    transfer.loads = loads
    transfer.known = 0
    before, last = int(memory[REPLICA.first]) - 1, int(memory[REPLICA.last]) - 1
    before, last = linked(state.transfers[r], before, last, first, NONE)
    memory[REPLICA.first], memory[REPLICA.last] = before + 1, last + 1
    state.request_memory[slot, REQUEST.transfers] += 1.0


@inlined()
def _begin_copying(state: State, r: int, label, launch_s):
    """Let a copy begin, behind those before it and what the GPU has begun."""
    memory = state.replica_memory[r]
    replica = state.replicas[r]
    transfer = state.transfers[r, label]
    begin_s = max(launch_s, replica.gpu_s)
    took_s = state.settings[SETTING.latency_s]
    if transfer.loads != 0:
        begin_s = max(begin_s, replica.in_link_s)
        took_s += transfer.blocks * state.settings[SETTING.load_block_s]
        replica.in_link_s = begin_s + took_s
        memory[REPLICA.loads] += 1
        memory[REPLICA.loaded_blocks] += transfer.blocks
        memory[REPLICA.load_s] += took_s
    else:
        begin_s = max(begin_s, replica.out_link_s)
        took_s += transfer.blocks * state.settings[SETTING.store_block_s]
        replica.out_link_s = begin_s + took_s
        memory[REPLICA.stores] += 1
        memory[REPLICA.stored_blocks] += transfer.blocks
        memory[REPLICA.store_s] += took_s
    transfer.end_s = begin_s + took_s


@compiled()
def _begin_waiting(state: State, r: int, loads, launch_s):
    """Let all copies in a direction begin that have not."""
    label = int(state.replica_memory[r, REPLICA.first]) - 1
    while label != NONE:
        transfer = state.transfers[r, label]
        if transfer.end_s == math.inf and transfer.loads == loads:
            _begin_copying(state, r, label, launch_s)
        label = transfer.next


@compiled()
def _end_transfer(state: State, r: int, label):
    """Let the scheduler know that a copy has ended."""
    memory = state.replica_memory[r]
    transfer = state.transfers[r, label]
    slot = transfer.slot
    if slot == NONE:
        memory[REPLICA.fenced] -= 1.0
    else:
        state.request_memory[slot, REQUEST.transfers] -= 1.0
        if transfer.loads != 0:
            state.request_memory[slot, REQUEST.load] = ENDED
    before, last = int(memory[REPLICA.first]) - 1, int(memory[REPLICA.last]) - 1
    before, last = unlinked(state.transfers[r], before, last, label)
    memory[REPLICA.first], memory[REPLICA.last] = before + 1, last + 1
    while label != NONE:
        state.blocks[r, label].references = 0
        memory[REPLICA.idle] += 1
        label = state.blocks[r, label].count


@compiled()
def _tell(state: State, r: int, until_s):
    """Let the scheduler know of copies of which it is told, or that end by a moment."""
    memory = state.replica_memory[r]
    label = int(memory[REPLICA.first]) - 1
    while label != NONE:
        transfer = state.transfers[r, label]
        following = transfer.next
        told = 0 < transfer.known <= memory[REPLICA.calls]
        if told or transfer.end_s <= until_s:
            _end_transfer(state, r, label)
        label = following


@compiled()
def _flush(state: State, r: int, label):
    """Let the iteration wait for a copy."""
    memory = state.replica_memory[r]
    transfer = state.transfers[r, label]
    if transfer.end_s == math.inf:
        _begin_copying(state, r, label, state.replicas[r].now_s)
    until_s = transfer.end_s if transfer.known == 0 else 0.0
    memory[REPLICA.flush_s] = max(memory[REPLICA.flush_s], until_s)


@compiled()
def flush_preempted(state: State, r: int, slot: int):
    """Let the iteration wait for the copies of a request that was preempted."""
    label = int(state.replica_memory[r, REPLICA.first]) - 1
    while label != NONE:
        if state.transfers[r, label].slot == slot:
            _flush(state, r, label)
        label = state.transfers[r, label].next


# Blocks on the GPU that are copied though their request has ended.


@inlined()
def _owner(state: State, node, index):
    """Return whose own a block of a path is."""
    while index < state.lineage[node, Lineage.FIRST]:
        node = state.lineage[node, Lineage.PARENT]
    return node


@compiled()
def _flush_of(state: State, r: int, node, start, end):
    """Wait for copies of ended requests that have blocks of a path.

    From ``start`` to before ``end``: they are taken or found.
    """
    size = state.engine[0].blocks_per_chunk
    label = int(state.replica_memory[r, REPLICA.first]) - 1
    while label != NONE:
        if state.transfers[r, label].slot == NONE:
            part = label
            while part != NONE:
                block = state.blocks[r, part]
                first = max(start, block.index * size)
                if first < min(end, (block.index + 1) * size) and (
                    _owner(state, node, first) == _owner(state, block.owner, first)
                ):
                    _flush(state, r, label)
                    break
                part = block.count
        label = state.transfers[r, label].next
    _touch(state, r, node, start, end)


@inlined()
def _touch(state: State, r: int, node, start, end):
    """Note that blocks of requests are taken or found that have just ended."""
    slot = int(state.replica_memory[r, REPLICA.ended]) - 1
    while slot != NONE:
        memory = state.request_memory[slot]
        row = state.requests[slot].row
        own = state.requests[slot].prompt_tokens + state.requests[slot].output_tokens
        last = min(end, own // state.engine[0].block_size)
        size = state.engine[0].blocks_per_chunk
        first = max(start, int(memory[REQUEST.stored]) * size)
        while last > first and _owner(state, node, last - 1) != _owner(
            state, row, last - 1
        ):
            last -= 1
        if last > first:
            if memory[REQUEST.touched] == 0.0:
                memory[REQUEST.touched] = first + 1
            memory[REQUEST.touched] = min(memory[REQUEST.touched], first + 1)
            memory[REQUEST.touched_end] = max(memory[REQUEST.touched_end], last)
        slot = state.requests[slot].next_in_list


@inlined()
def _may_flush(state: State, r: int):
    """Return whether an iteration may wait for copies of requests that have ended."""
    memory = state.replica_memory[r]
    return memory[REPLICA.fenced] + memory[REPLICA.ended] > 0.0


@compiled()
def note_taken(state: State, r: int, n):
    """Wait for copies of the next n blocks that are taken."""
    if not _may_flush(state, r):
        return
    left = n - state.replicas[r].unhashed_blocks
    label = state.replicas[r].queue_head
    while left > 0 and label != NONE:
        segment = state.segments[r, label]
        count = min(left, segment.end - segment.start)
        row = segment.row
        if row == NONE:
            row = state.segments[r, segment.parent].row
        _flush_of(state, r, row, segment.end - count, segment.end)
        left -= count
        label = segment.next


@compiled()
def note_found(state: State, r: int, slot: int, blocks):
    """Wait for copies of the first blocks of a request, which it finds."""
    if _may_flush(state, r):
        _flush_of(state, r, state.requests[slot].row, 0, blocks)


# Stores.


@compiled()
def _store(state: State, r: int, slot: int, end):
    """Store a request's chunks before ``end``; return the copy.

    NONE where all are there, -2 where there is no room.
    """
    memory = state.replica_memory[r]
    row = state.requests[slot].row
    start = int(state.request_memory[slot, REQUEST.stored])
    _note_path(state, r, row, start, end)
    new = 0
    for k in range(start, end):
        label = state.spare[r, k]
        new += int(label < 0)
        if label < 0 or state.blocks[r, label].references >= 0:
            _use(state, r, slot, k, label)
    if new > 0 and not _evict(state, r, new - int(memory[REPLICA.free]), start, end):
        memory[REPLICA.refused] += 1
        return -2
    state.request_memory[slot, REQUEST.stored] = end
    first = last = NONE
    for k in range(start, end):
        owner = -2 - state.spare[r, k]
        if owner < 0:
            continue
        label = _new_chunk(state, r)
        add_hash(state, r, label, owner, k, False)
        _put_before(state, r, label, NONE)
        state.transfers[r, label].rank = 0
        if state.settings[SETTING.by_request] != 0.0:
            _move(state, r, slot, label)
        state.blocks[r, label].references = -1
        state.blocks[r, label].count = NONE
        if first == NONE:
            first = label
        else:
            state.blocks[r, last].count = label
        last = label
    if first != NONE:
        blocks = new * state.engine[0].blocks_per_chunk
        _begin_transfer(state, r, slot, first, blocks, 0)
    return first


@inlined()
def _full_chunks(state: State, slot: int, tokens):
    """Return how many chunks of so many tokens of a request are to be stored."""
    if state.settings[SETTING.answers] == 0.0:
        tokens = min(tokens, state.requests[slot].prompt_tokens)
    return tokens // (state.engine[0].block_size * state.engine[0].blocks_per_chunk)


@inlined()
def offers(state: State, r: int):
    """Return whether the requests of the iteration may have chunks to be stored."""
    replica = state.replicas[r]
    offered = state.replica_memory[r, REPLICA.offered] != 0.0
    if state.settings[SETTING.answers] != 0.0:
        return True
    state.replica_memory[r, REPLICA.offered] = 0.0
    return offered or replica.batch_tokens + replica.batch_extra_count > 0


@inlined()
def offer_later(state: State, r: int):
    """Note that a request may have chunks to be stored that sits the iteration out."""
    state.replica_memory[r, REPLICA.offered] = 1.0


@compiled()
def offer(state: State, r: int, slot: int):
    """Store the chunks that are full behind the iteration, in which a request is."""
    request = state.requests[slot]
    if request.phase == Phase.PREFILLING:
        tokens = request.computed_tokens
    elif state.settings[SETTING.answers] == 0.0:
        tokens = request.prompt_tokens
    else:
        tokens = computed_tokens(state, slot, state.replicas[r].step + 1) + 1
        tokens -= int(is_flying(state.replicas[r]))
    end = _full_chunks(state, slot, tokens)
    if end > state.request_memory[slot, REQUEST.stored] and (
        _store(state, r, slot, end) == -2
    ):
        offer_later(state, r)


@compiled()
def store_ended(state: State, r: int):
    """Store what is left of requests that have ended; their chunks are the newest."""
    memory = state.replica_memory[r]
    slot = int(memory[REPLICA.ended]) - 1
    while slot != NONE:
        request = state.requests[slot]
        own = state.request_memory[slot]
        tokens = max(
            request.prompt_tokens, request.prompt_tokens + request.output_tokens - 1
        )
        end = _full_chunks(state, slot, tokens)
        if end > own[REQUEST.stored]:
            label = _store(state, r, slot, end)
            if label >= 0:
                _fence(state, r, label, own[REQUEST.touched], own[REQUEST.touched_end])
        slot = request.next_in_list
    slot = int(memory[REPLICA.ended]) - 1
    while slot != NONE:
        following = state.requests[slot].next_in_list
        _make_newest(state, r, slot)
        give_slot(state, slot)
        slot = following
    memory[REPLICA.ended] = 0.0


@inlined()
def _fence(state: State, r: int, label, touched, touched_end):
    """Let a copy be one of a request that has ended; wait where blocks were taken."""
    state.transfers[r, label].slot = NONE
    state.replica_memory[r, REPLICA.fenced] += 1.0
    size = state.engine[0].blocks_per_chunk
    part = label
    while part != NONE and touched > 0.0:
        first = state.blocks[r, part].index * size
        if first < touched_end and first + size >= touched:
            _flush(state, r, label)
            break
        part = state.blocks[r, part].count


@compiled()
def _fence_ended(state: State, r: int):
    """Let the copies of requests that have ended be known by their chunks alone."""
    memory = state.replica_memory[r]
    slot = int(memory[REPLICA.ended]) - 1
    while slot != NONE:
        label = int(memory[REPLICA.first]) - 1
        while label != NONE:
            if state.transfers[r, label].slot == slot:
                state.transfers[r, label].slot = NONE
                memory[REPLICA.fenced] += 1.0
            label = state.transfers[r, label].next
        slot = state.requests[slot].next_in_list


# Loads.


@inlined()
def is_passed_over(state: State, r: int, slot: int):
    """Return whether a waiting request is not looked at: it loads.

    Where its load has ended, its blocks can be found from now on.
    """
    memory = state.request_memory[slot]
    if memory[REQUEST.load] == ENDED:
        memory[REQUEST.load] = FOUND
        share_full_blocks(state, r, slot, int(memory[REQUEST.here]))
    return memory[REQUEST.load] == LOADS


@inlined()
def has_loaded(state: State, slot: int):
    """Return whether a waiting request holds blocks whose KV is here."""
    return state.request_memory[slot, REQUEST.load] == FOUND


@inlined()
def loaded_tokens(state: State, slot: int):
    """Return for how many tokens it holds blocks."""
    return int(state.request_memory[slot, REQUEST.here])


@compiled()
def found_tokens(state: State, r: int, slot: int, hits):
    """Return how many tokens behind ``hits`` blocks the tier has; NONE: look later."""
    if state.settings[SETTING.by_request] != 0.0:
        state.request_memory[slot, REQUEST.stored] = 0.0
    if state.request_memory[slot, REQUEST.transfers] > 0.0:
        return NONE
    request = state.requests[slot]
    size = state.engine[0].block_size
    chunk = size * state.engine[0].blocks_per_chunk
    full = request.known_tokens // chunk
    start = hits * size // chunk
    if full * chunk - hits * size < chunk:
        return 0
    _note_path(state, r, request.row, start, full)
    end = start
    pends = loads = False
    while end < full and state.spare[r, end] >= 0:
        references = state.blocks[r, state.spare[r, end]].references
        pends = pends or references < 0
        loads = loads or references > 0
        end += 1
    if pends:
        return NONE
    if end == start or end * chunk - hits * size < chunk:
        return 0
    return NONE if loads else end * chunk - hits * size


@inlined()
def blocks_reserved(state: State, r: int):
    """Return the blocks that are to stay free where a load begins, without drafts."""
    reserved = state.replica_memory[r, PULLED.reserved]
    return copies.blocks_wanted(state, r) + int(reserved)


@inlined()
def _rest(state: State, slot: int, room_tokens):
    """Return the blocks that a request takes until it has its next token."""
    request = state.requests[slot]
    size = state.engine[0].block_size
    tokens = request.known_tokens
    if state.engine[0].verifies != 0:
        tokens += verified_tokens(state) + lookahead_tokens(state)
    return ceil_div(tokens, size) - ceil_div(room_tokens, size)


@compiled()
def begin_load(state: State, r: int, slot: int, hits, hits_free, tokens, reserved):
    """Load ``tokens`` behind ``hits`` blocks, if they fit; return whether they do.

    All that the request knows must fit, and so many ``reserved`` blocks stay free.
    """
    replica = state.replicas[r]
    size = state.engine[0].block_size
    known_tokens = state.requests[slot].known_tokens
    blocks = tokens // size
    whole = ceil_div(known_tokens, size) - hits + hits_free
    needed = max(whole, blocks + hits_free + reserved)
    if needed > replica.free_blocks:
        return False
    here = hits * size + tokens
    note_found(state, r, slot, hits)
    adopt_hits(state, r, slot, hits)
    note_taken(state, r, blocks)
    take_blocks(state, r, blocks)
    chunk = size * state.engine[0].blocks_per_chunk
    start, end = hits * size // chunk, here // chunk
    for k in range(start, end):
        label = state.spare[r, k]
        state.blocks[r, label].references = 1
        state.blocks[r, label].count = state.spare[r, k + 1] if k + 1 < end else NONE
        _use(state, r, slot, k, label)
    state.replica_memory[r, REPLICA.idle] -= end - start
    _begin_transfer(state, r, slot, state.spare[r, start], blocks, 1)
    memory = state.request_memory[slot]
    memory[REQUEST.stored] = end
    memory[REQUEST.load] = LOADS
    memory[REQUEST.here] = here
    memory[REQUEST.tier_tokens] += tokens
    memory[REQUEST.load_s] = replica.now_s
    state.replica_memory[r, PULLED.reserved] += _rest(state, slot, here)
    return True


@compiled()
def place_behind_loads(state: State, r: int, slot: int):
    """Let a waiting request stand behind those that hold blocks, before all others."""
    remove_waiting(state, r, slot)
    following = state.replicas[r].waiting_head
    while following != NONE and state.request_memory[following, REQUEST.load] > 0.0:
        following = state.requests[following].next
    insert_waiting_before(state, r, slot, following)


@inlined()
def run_loaded(state: State, r: int, slot: int, room_tokens):
    """Note that a request runs whose KV was loaded, with blocks of so many tokens."""
    memory = state.request_memory[slot]
    of_replica = state.replica_memory[r]
    of_replica[REPLICA.wait_s] += state.replicas[r].now_s - memory[REQUEST.load_s]
    of_replica[PULLED.reserved] -= _rest(state, slot, int(memory[REQUEST.here]))
    of_replica[PULLED.starting] += _rest(state, slot, room_tokens)
    memory[REQUEST.load] = 0.0
    note_found(state, r, slot, int(memory[REQUEST.here]) // state.engine[0].block_size)


# A call of the scheduler.


@compiled()
def begin_call(state: State, r: int):
    """Begin a call of the scheduler: copies have begun and ended since the last one.

    An engine without requests has looked in between.
    """
    memory = state.replica_memory[r]
    replica = state.replicas[r]
    if memory[REPLICA.calls] == 0.0:
        memory[REPLICA.free] = state.settings[SETTING.chunks]
    memory[REPLICA.calls] += 1.0
    memory[REPLICA.flush_s] = -1.0
    replica.idle_until_s = 0.0
    rested = replica.in_flight == 0 and replica.now_s > replica.gpu_s
    at_s = replica.gpu_s if rested else replica.now_s
    if memory[REPLICA.first] + memory[REPLICA.ended] == 0.0:
        return
    _tell(state, r, -math.inf)
    _begin_waiting(state, r, 1, memory[REPLICA.launch_s])
    _begin_waiting(state, r, 0, at_s)
    _fence_ended(state, r)
    if rested and memory[REPLICA.ended] > 0.0:
        store_ended(state, r)
        _begin_waiting(state, r, 0, at_s)
    if rested or (memory[REPLICA.rests] != 0.0 and replica.in_flight == 0):
        _tell(state, r, replica.now_s)


@compiled()
def end_call(state: State, r: int, horizon):
    """End a call; return for how many iterations the batch runs.

    Note until when the first waits, or when a replica that rests looks again.
    """
    memory = state.replica_memory[r]
    replica = state.replicas[r]
    if memory[REPLICA.ended] > 0.0:
        store_ended(state, r)
    launch_s = max(replica.now_s, memory[REPLICA.flush_s])
    memory[REPLICA.launch_s] = launch_s
    rests = horizon == 0 and replica.in_flight == 0
    memory[REPLICA.rests] = 1.0 if rests else 0.0
    if memory[REPLICA.first] == 0.0:
        return horizon if state.settings[SETTING.answers] == 0.0 else min(horizon, 1)
    if memory[REPLICA.flush_s] >= 0.0:
        memory[REPLICA.flushed] += 1.0
    if launch_s > replica.now_s:
        _launch_later(state, r, launch_s)
    if horizon == 0:
        _begin_waiting(state, r, 1, launch_s)
    next_s = math.inf
    found = False
    label = int(memory[REPLICA.first]) - 1
    while label != NONE:
        transfer = state.transfers[r, label]
        if transfer.known == 0 and transfer.end_s <= launch_s:
            transfer.known = int(memory[REPLICA.calls]) + state.engine[0].depth
        if transfer.known > 0 and rests:
            transfer.known = int(memory[REPLICA.calls])
            found = True
        label = transfer.next
    if rests:
        _begin_waiting(state, r, 0, replica.now_s)
        label = int(memory[REPLICA.first]) - 1
        while label != NONE:
            next_s = min(next_s, state.transfers[r, label].end_s)
            label = state.transfers[r, label].next
        _rest_until(state, r, found, next_s)
    return min(horizon, 1)


@compiled()
def _launch_later(state: State, r: int, launch_s):
    """Let the iteration, and the requests that are new in it, wait for a moment."""
    replica = state.replicas[r]
    starts_s = max(replica.now_s, replica.gpu_s)
    replica.wait_s += max(launch_s, starts_s) - starts_s
    slot = replica.running_head
    while slot != NONE:
        if state.requests[slot].scheduled_s == replica.now_s:
            state.requests[slot].scheduled_s = launch_s
        slot = state.requests[slot].next


@inlined()
def _rest_until(state: State, r: int, found, next_s):
    """Let a replica with nothing to run look again when a copy ends.

    At once where one has: it is told of that.
    """
    replica = state.replicas[r]
    if found:
        _tell(state, r, -math.inf)
        replica.preempted = max(replica.preempted, 1)
    elif replica.preempted == 0:
        replica.idle_until_s = next_s
