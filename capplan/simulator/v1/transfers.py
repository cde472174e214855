"""Copies between GPUs and a tier, from when they are asked for until that is told.

``State.transfers`` has those that are not known to have ended, in the order they were
asked for, each where the first of its chunks is.

- Copies run one at a time in each direction. Stores begin before the next iteration,
  loads behind their own. The workers look for ended copies when they start an iteration
  and tell with its result, or at once where nothing runs.
- An iteration waits for the stores of requests that it preempts, and for those of ended
  requests whose blocks it takes or finds.
"""

import math

from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.linked_list import linked, unlinked
from capplan.simulator.kv.paths import held_of, is_of, owner_of, path_of
from capplan.simulator.state import NONE, State
from capplan.simulator.v1.chunks import REPLICA, REQUEST, SETTING

LOADS, ENDED, FOUND = 1.0, 2.0, 3.0
"""Of ``REQUEST.load``."""


@compiled()
def begin_transfer(state: State, r: int, slot: int, first, blocks, loads):
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
def begin_waiting(state: State, r: int, loads, launch_s):
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
    if slot < 0:
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
def tell_ended(state: State, r: int, until_s):
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
def note_ended(state: State, r: int, launch_s, rests):
    """Note of which copies the workers tell: those ended when an iteration starts.

    They tell at once where the replica ``rests``; return whether they then do.
    """
    calls = int(state.replica_memory[r, REPLICA.calls])
    found = False
    label = int(state.replica_memory[r, REPLICA.first]) - 1
    while label != NONE:
        transfer = state.transfers[r, label]
        if transfer.known == 0 and transfer.end_s <= launch_s:
            transfer.known = calls + state.engine[0].depth
        if transfer.known > 0 and rests:
            transfer.known = calls
            found = True
        label = transfer.next
    return found


@compiled()
def next_end_s(state: State, r: int):
    """Return when the next copy ends that has begun. [s]"""
    end_s = math.inf
    label = int(state.replica_memory[r, REPLICA.first]) - 1
    while label != NONE:
        end_s = min(end_s, state.transfers[r, label].end_s)
        label = state.transfers[r, label].next
    return end_s


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


@compiled()
def _flush_of(state: State, r: int, label, start, end):
    """Wait for copies of ended requests that have blocks of a path.

    From ``start`` to before ``end``, of a segment or before it; they are taken or
    found.
    """
    node = path_of(state, r, label)
    size = state.engine[0].blocks_per_chunk
    copy = int(state.replica_memory[r, REPLICA.first]) - 1
    while copy != NONE:
        row = -2 - state.transfers[r, copy].slot
        part = copy if row >= 0 and is_of(state, r, label, row) else NONE
        while part != NONE:
            block = state.blocks[r, part]
            first = max(start, block.index * size)
            if first < min(end, (block.index + 1) * size) and (
                owner_of(state, node, first) == owner_of(state, block.owner, first)
            ):
                _flush(state, r, copy)
                break
            part = block.count
        copy = state.transfers[r, copy].next


@compiled()
def _note_of_ended(state: State, r: int, label, start, end, found):
    """Note which blocks are ``found``, or else taken, of requests that just ended.

    Those of a path are found up to some block, and taken from one on.
    """
    node = path_of(state, r, label)
    engine = state.engine[0]
    slot = int(state.replica_memory[r, REPLICA.ended]) - 1
    while slot != NONE:
        request, memory = state.requests[slot], state.request_memory[slot]
        tokens = request.prompt_tokens + request.output_tokens
        first = max(start, int(memory[REQUEST.stored]) * engine.blocks_per_chunk)
        last = min(end, tokens // engine.block_size)
        while last > first and owner_of(state, node, last - 1) != owner_of(
            state, request.row, last - 1
        ):
            last -= 1
        if last > first and is_of(state, r, label, request.row):
            if found:
                memory[REQUEST.found] = max(memory[REQUEST.found], last)
            elif memory[REQUEST.taken] == 0.0 or memory[REQUEST.taken] > first:
                memory[REQUEST.taken] = first + 1
        slot = request.next_in_list


@inlined()
def may_flush(state: State, r: int):
    """Return whether an iteration may wait for copies of requests that have ended."""
    memory = state.replica_memory[r]
    return memory[REPLICA.fenced] + memory[REPLICA.ended] > 0.0


@compiled()
def note_taken(state: State, r: int, n):
    """Wait for copies of the next n blocks that are taken."""
    if not may_flush(state, r):
        return
    left = n - state.replicas[r].unhashed_blocks
    label = state.replicas[r].queue_head
    while left > 0 and label != NONE:
        segment = state.segments[r, label]
        count = min(left, segment.end - segment.start)
        _flush_of(state, r, label, segment.end - count, segment.end)
        _note_of_ended(state, r, label, segment.end - count, segment.end, False)
        left -= count
        label = segment.next


@compiled()
def note_found(state: State, r: int, slot: int, blocks):
    """Wait for copies of the first blocks of a request, which it finds or holds.

    Neighbours of which no twin is known are looked at together.
    """
    if not may_flush(state, r):
        return
    label = state.requests[slot].leaf if blocks > 0 else NONE
    last = NONE
    while label != NONE:
        segment = state.segments[r, label]
        if segment.start < blocks:
            last = label if last == NONE else last
            end = min(blocks, state.segments[r, last].end)
            before = segment.parent
            if before == NONE or segment.twin != state.segments[r, before].twin:
                held = held_of(state, r, slot, last)
                _flush_of(state, r, held, segment.start, end)
                _note_of_ended(state, r, held, segment.start, end, True)
                last = NONE
        label = segment.parent


@inlined()
def fence(state: State, r: int, label, slot: int):
    """Let a copy be one of a request that has ended; wait where blocks were taken."""
    state.transfers[r, label].slot = -2 - state.requests[slot].row
    state.replica_memory[r, REPLICA.fenced] += 1.0
    memory = state.request_memory[slot]
    size = state.engine[0].blocks_per_chunk
    part = label
    while part != NONE:
        first = state.blocks[r, part].index * size
        taken = first + size >= memory[REQUEST.taken] > 0.0
        if taken or first < memory[REQUEST.found]:
            _flush(state, r, label)
            break
        part = state.blocks[r, part].count


@compiled()
def fence_ended(state: State, r: int):
    """Let the copies of requests that have ended be known by their rows."""
    memory = state.replica_memory[r]
    slot = int(memory[REPLICA.ended]) - 1
    while slot != NONE:
        label = int(memory[REPLICA.first]) - 1
        while label != NONE:
            if state.transfers[r, label].slot == slot:
                state.transfers[r, label].slot = -2 - state.requests[slot].row
                memory[REPLICA.fenced] += 1.0
            label = state.transfers[r, label].next
        slot = state.requests[slot].next_in_list
