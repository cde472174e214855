"""Recurrent states of running requests, where prefix caching keeps them.

vLLM 0.32 (``MambaManager`` with ``mamba_cache_mode`` align): a group of layers writes
its state into a block at the end of each chunk. Where the chunk ends with a block of
KV, the state can be found by a request that begins alike, which goes on from there. A
request holds the states of the chunks in flight and the one before them, of each
group; older ones are free, but may still be found, as blocks of KV are.

``request_memory`` has, at its end, of each state that a request holds, oldest
first, its block index and of each group the record + 1 where others can find it. A
state that only its request can find has no record until it is free.

A drafted token has a state of its own until it is accepted: ``state_blocks`` more of
each group, which a request holds as long as it runs.
"""

from itertools import chain

from capplan.deployment.engine import EngineSettings
from capplan.simulator.columns import (
    REQUEST_COLUMNS,
    end_of,
    places,
)
from capplan.simulator.engine.queues import is_flying
from capplan.simulator.engine.speculation import SETTING
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.block_table import add_hash, find, remove_hash
from capplan.simulator.kv.kvcache import (
    ceil_div,
    give_blocks,
    leave_record,
    owner_of,
    put_before,
    sharable_blocks,
    take_record,
    unlink,
)
from capplan.simulator.state import NONE, State

_REQUEST = places(REQUEST_COLUMNS, "states")
HELD, STEP, START, SHARED, DUE, KNOWN = _REQUEST
_PLACES = end_of(REQUEST_COLUMNS, "states")


def held_columns(engine: EngineSettings) -> tuple[str, ...]:
    """Return the columns of a request for the states that it may hold."""
    # Of those in flight, and the one before.
    states = 1 + engine.pipeline_parallel_size + int(engine.async_scheduling)
    if engine.speculation is not None:
        in_flight = 1 + int(engine.async_scheduling)
        verified = engine.verified_tokens * in_flight
        states = 3 + engine.pipeline_parallel_size + verified // engine.block_size
    held = (
        (f"index_{k}", *(f"record_{k}_{group}" for group in range(engine.state_groups)))
        for k in range(states)
    )
    return tuple(chain(*held))


@inlined()
def _key(state: State, index, group):
    """Return what stands for the index of a block in the table of hashes."""
    return -1 - (index * state.engine[0].state_groups + group)


@inlined()
def _record_at(state: State, place, group):
    """Return the column of a record."""
    return _index_at(state, place) + 1 + group


@inlined()
def _index_at(state: State, place):
    """Return the column of the block index of a state."""
    return _PLACES + place * (1 + state.engine[0].state_groups)


@compiled()
def count_state_hits(state: State, r: int, slot: int, most):
    """Return at which of ``most`` blocks the last state that is cached stands.

    That is how many blocks a request need not compute. Then how many blocks of the
    state are free.
    """
    request = state.requests[slot]
    groups = state.engine[0].state_groups
    for index in range(most - 1, -1, -1):
        owner = owner_of(state, request, index)
        free = 0
        found = True
        for group in range(groups):
            label = find(state, r, owner, _key(state, index, group))
            if label == NONE:
                found = False
                break
            free += int(state.blocks[r, label].references == 0)
        if found:
            return index + 1, free
    return 0, 0


@inlined()
def last_state_tokens(state: State, tokens):
    """Return after how many of ``tokens`` the last state is kept.

    It ends a block and leaves a token to compute. A draft with KV drops the last block
    that is found.
    """
    size = state.engine[0].block_size
    if state.settings[SETTING.drops_block] != 0.0:
        return max(0, tokens // size * size - size)
    return (tokens - 1) // size * size


@inlined()
def hashes_again(state: State, slot: int, hashed, tokens):
    """Return whether an iteration that hashes ``hashed`` tokens does that state anew.

    That at ``tokens``: the last that the prompt leaves, if no block was filled since.
    """
    request = state.requests[slot]
    size = state.engine[0].block_size
    last = last_state_tokens(state, request.prompt_tokens)
    if tokens != last or hashed // size * size != tokens:
        return False
    for place in range(int(state.request_memory[slot, HELD])):
        index = int(state.request_memory[slot, _index_at(state, place)])
        if (index + 1) * size == tokens:
            return True
    return False


@inlined()
def shares_tokens(state: State, slot: int, other, tokens):
    """Return whether two requests begin with the same ``tokens``."""
    request, one = state.requests[slot], state.requests[other]
    is_same = one.prefix_group == request.prefix_group
    return is_same and min(one.prefix_tokens, request.prefix_tokens) >= tokens


@compiled()
def adopt_state(state: State, r: int, slot: int, blocks):
    """Hold the state behind so many blocks, which ``count_state_hits`` has found."""
    request = state.requests[slot]
    memory = state.request_memory[slot]
    index = blocks - 1
    owner = owner_of(state, request, index)
    memory[HELD] = 1
    memory[_index_at(state, 0)] = index
    for group in range(state.engine[0].state_groups):
        label = find(state, r, owner, _key(state, index, group))
        if state.blocks[r, label].references == 0:
            unlink(state, r, label)
        column = _record_at(state, 0, group)
        if index < sharable_blocks(state, request):
            state.blocks[r, label].references += 1
            memory[column] = label + 1
        else:
            remove_hash(state, r, label)
            leave_record(state, r, label)
            memory[column] = 0


@inlined()
def hold_state(state: State, slot: int, after):
    """Note the blocks taken for the state behind ``after`` tokens."""
    engine = state.engine[0]
    memory = state.request_memory[slot]
    place = int(memory[HELD])
    index = ceil_div(after, engine.block_size) - 1
    memory[_index_at(state, place)] = index
    for group in range(engine.state_groups):
        memory[_record_at(state, place, group)] = 0
    memory[HELD] = place + 1


@compiled()
def share_state(state: State, r: int, slot: int, after):
    """Let others find the newest state, where it ends a block that they share."""
    engine = state.engine[0]
    request = state.requests[slot]
    index = after // engine.block_size - 1
    if after % engine.block_size != 0 or index >= sharable_blocks(state, request):
        return
    memory = state.request_memory[slot]
    for group in range(engine.state_groups):
        label = take_record(state, r, request.prefix_group, 1)
        key = _key(state, index, group)
        add_hash(state, r, label, request.prefix_group, key, False)
        state.blocks[r, label].references += 1
        memory[_record_at(state, int(memory[HELD]) - 1, group)] = label + 1


@compiled()
def _free_state(state: State, r: int, slot: int, place, group, hashed_tokens):
    """Free one block; the request itself can find it again where its KV is hashed."""
    request = state.requests[slot]
    memory = state.request_memory[slot]
    label = int(memory[_record_at(state, place, group)]) - 1
    if label >= 0:
        state.blocks[r, label].references -= 1
        if state.blocks[r, label].references == 0:
            put_before(state, r, label, NONE)
        return
    index = int(memory[_index_at(state, place)])
    if (index + 1) * state.engine[0].block_size > hashed_tokens:
        give_blocks(state, r, 1)
        return
    label = take_record(state, r, -2 - request.row, 1)
    first = index == request.hit_blocks - 1
    add_hash(state, r, label, -2 - request.row, _key(state, index, group), first)
    put_before(state, r, label, NONE)


@compiled()
def return_states(state: State, r: int, slot: int, hashed_tokens):
    """Free all states of a request that leaves, of each group the last first."""
    memory = state.request_memory[slot]
    groups = state.engine[0].state_groups
    give_blocks(state, r, groups * state.engine[0].state_blocks)
    for group in range(groups):
        for place in range(int(memory[HELD]) - 1, -1, -1):
            _free_state(state, r, slot, place, group, hashed_tokens)
    memory[HELD] = 0


@inlined()
def collected_tokens(state: State, r: int, slot: int, computed, before):
    """Return how many of the tokens scheduled so far, ``computed``, are not in flight.

    Those ``before`` were there when the last iteration was put together.
    """
    replica = state.replicas[r]
    if not is_flying(replica):
        return computed
    if int(state.request_memory[slot, STEP]) == replica.step:
        return int(state.request_memory[slot, START])
    return before


@compiled()
def free_old_states(state: State, r: int, slot: int, collected, hashed_tokens):
    """Free the states before the one that was ``collected`` last."""
    memory = state.request_memory[slot]
    oldest = (collected - 1) // state.engine[0].block_size
    held = int(memory[HELD])
    old = 0
    while old < held and int(memory[_index_at(state, old)]) < oldest:
        old += 1
    if old == 0:
        return
    groups = state.engine[0].state_groups
    for group in range(groups):
        for place in range(old - 1, -1, -1):
            _free_state(state, r, slot, place, group, hashed_tokens)
    width = 1 + groups
    first, end = _index_at(state, old), _index_at(state, held)
    for column in range(first, end):
        memory[column - old * width] = memory[column]
    memory[HELD] = held - old


@inlined()
def oldest_state_tokens(state: State, slot: int):
    """Return the tokens behind which the oldest of several states is free, or NONE."""
    memory = state.request_memory[slot]
    if memory[HELD] < 2.0:
        return NONE
    index = int(memory[_index_at(state, 0)])
    return (index + 1) * state.engine[0].block_size + 1


@inlined()
def chunk_to_boundary(state: State, slot: int, start, tokens):
    """Return how many of ``tokens`` after ``start`` the next chunk of a prompt has.

    It ends with a block, so that its state can be found; the last block that the prompt
    fills always ends one, and what it shares with others without their state.
    """
    request = state.requests[slot]
    size = state.engine[0].block_size
    known = request.known_tokens
    prompt_end = max(request.prompt_tokens, known - 1)
    if start >= prompt_end:
        return tokens
    end = start + tokens
    if end < prompt_end:
        aligned = end // size * size
        if aligned > start or size <= state.engine[0].max_num_batched_tokens:
            end = aligned
    if start % size != 0:
        boundary = (start // size + 1) * size
        if boundary < end:
            end = boundary
    last = last_state_tokens(state, known)
    if start < last < end:
        end = last
    shared = int(state.request_memory[slot, SHARED])
    if start < shared < end:
        end = shared
    return max(end - start, 0)
