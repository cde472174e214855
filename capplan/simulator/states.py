"""Recurrent states of running requests, where prefix caching keeps them.

vLLM 0.32 (``MambaManager`` with ``mamba_cache_mode`` align): a group of layers writes
its state into a block at the end of each chunk. Where the chunk ends with a block of
KV, the state can be found by a request that begins alike, which goes on from there. A
request holds the states of the chunks in flight and the one before them, of each
group; older ones are free, but may still be found, as blocks of KV are.

``request_memory`` has, after ``FIELDS``, the block index of each state that a request
holds, oldest first, then the record + 1 of each where others can find it, group by
group. A state that only its request can find has no record until it is free.
"""

from capplan.deployment.engine import EngineSettings
from capplan.deployment.policy import Policy, Rules
from capplan.simulator.block_table import add_hash, find, remove_hash
from capplan.simulator.decoding import computed_tokens
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kvcache import (
    ceil_div,
    give_blocks,
    leave_record,
    owner_of,
    put_before,
    sharable_blocks,
    take_record,
    unlink,
)
from capplan.simulator.state import NONE, Phase
from capplan.simulator.visits import (
    REPLICA_FIELDS,
    REQUEST_FIELDS,
    enter_no_more,
    first_visited,
    next_visited,
    replica_columns,
    visit_no_more,
)

FIELDS = (
    *REQUEST_FIELDS,
    "held",  # states of each group
    "step",  # the last iteration with a chunk of it, or that it sat out
    "start_tokens",  # what it had computed before
    "shared_tokens",  # where others have KV in common with it, but no state
    "chunk",  # of its prompt that is planned
)
HELD, STEP, START, SHARED, CHUNK = range(len(REQUEST_FIELDS), len(FIELDS))
_INDEX = len(FIELDS)


RULES = Rules(
    async_scheduling=True,
    prefix_caching=True,
    in_order=True,
    request_columns=FIELDS,
    replica_columns=REPLICA_FIELDS,
)


def states_policy(engine: EngineSettings) -> Policy:
    """Return vLLM V1's scheduler as it keeps states, which no user names."""
    states = 3 if engine.async_scheduling else 2
    indices = tuple(f"index_{k}" for k in range(states))
    records = tuple(f"record_{k}" for k in range(states * engine.state_groups))
    rules = RULES._replace(
        request_columns=(*FIELDS, *indices, *records),
        replica_columns=replica_columns(engine.block_size),
    )
    return Policy("vllm-v1-states", rules)


@inlined()
def _key(state, index, group):
    """Return what stands for the index of a block in the table of hashes."""
    return -1 - (index * state.engine[0].state_groups + group)


@inlined()
def _record_at(state, place, group):
    """Return the column of a record."""
    engine = state.engine[0]
    return _INDEX + engine.depth + 1 + place * engine.state_groups + group


@compiled()
def count_state_hits(state, r, slot, most):
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


@compiled()
def _hashes_now(state, r, slot, tokens):
    """Return whether the next iteration hashes the state of a request at ``tokens``.

    It does where a chunk ends there. vLLM also hashes that of the last block that the
    prompt fills anew, as long as it is held and no block was filled since.
    """
    request = state.requests[slot]
    memory = state.request_memory[slot]
    size = state.engine[0].block_size
    step = state.replicas[r].step + 1
    if request.phase == Phase.PREFILLING:
        hashed = request.computed_tokens
        if int(memory[STEP]) != step:
            return False
        if hashed == tokens:
            return True
    elif request.phase == Phase.DECODING:
        # The newest token is not known yet where it is in flight.
        hashed = computed_tokens(state, slot, step) + 1
        hashed -= int(state.replicas[r].in_flight > 0)
    else:
        return False
    is_last = tokens == (request.prompt_tokens - 1) // size * size
    if not is_last or hashed // size * size != tokens:
        return False
    for place in range(int(memory[HELD])):
        if (int(memory[_INDEX + place]) + 1) * size == tokens:
            return True
    return False


@compiled()
def is_hashed_now(state, r, slot, tokens):
    """Return whether the next iteration hashes the state that a request would use.

    vLLM then admits it later: the state may not be written yet.
    """
    request = state.requests[slot]
    other = first_visited(state, r)
    while other != NONE:
        one = state.requests[other]
        is_same = one.prefix_group == request.prefix_group
        shares = is_same and min(one.prefix_tokens, request.prefix_tokens) >= tokens
        if shares and _hashes_now(state, r, other, tokens):
            return True
        other = next_visited(state, other)
    return False


@compiled()
def adopt_state(state, r, slot, blocks):
    """Hold the state behind so many blocks, which ``count_state_hits`` has found."""
    request = state.requests[slot]
    memory = state.request_memory[slot]
    index = blocks - 1
    owner = owner_of(state, request, index)
    memory[HELD] = 1
    memory[_INDEX] = index
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
def hold_state(state, slot, after):
    """Note the blocks taken for the state behind ``after`` tokens."""
    engine = state.engine[0]
    memory = state.request_memory[slot]
    place = int(memory[HELD])
    memory[_INDEX + place] = ceil_div(after, engine.block_size) - 1
    for group in range(engine.state_groups):
        memory[_record_at(state, place, group)] = 0
    memory[HELD] = place + 1


@compiled()
def share_state(state, r, slot, after):
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
def _free_state(state, r, slot, place, group, hashed_tokens):
    """Free one block; the request itself can find it again where its KV is hashed."""
    request = state.requests[slot]
    memory = state.request_memory[slot]
    label = int(memory[_record_at(state, place, group)]) - 1
    if label >= 0:
        state.blocks[r, label].references -= 1
        if state.blocks[r, label].references == 0:
            put_before(state, r, label, NONE)
        return
    index = int(memory[_INDEX + place])
    if (index + 1) * state.engine[0].block_size > hashed_tokens:
        give_blocks(state, r, 1)
        return
    label = take_record(state, r, -2 - request.row, 1)
    first = index == request.hit_blocks - 1
    add_hash(state, r, label, -2 - request.row, _key(state, index, group), first)
    put_before(state, r, label, NONE)


@compiled()
def return_states(state, r, slot, hashed_tokens):
    """Free all states of a request that leaves, of each group the last first."""
    visit_no_more(state, r, slot)
    enter_no_more(state, r, slot)
    memory = state.request_memory[slot]
    for group in range(state.engine[0].state_groups):
        for place in range(int(memory[HELD]) - 1, -1, -1):
            _free_state(state, r, slot, place, group, hashed_tokens)
    memory[HELD] = 0


@compiled()
def free_old_states(state, r, slot, computed):
    """Free the states before the one that was collected last.

    ``computed`` are the tokens scheduled so far, those in flight among them.
    """
    replica = state.replicas[r]
    memory = state.request_memory[slot]
    collected = computed
    if replica.in_flight > 0:
        if int(memory[STEP]) == replica.step:
            collected = int(memory[START])
        elif state.requests[slot].phase == Phase.DECODING:
            collected = computed - 1
    oldest = (collected - 1) // state.engine[0].block_size
    held = int(memory[HELD])
    old = 0
    while old < held and int(memory[_INDEX + old]) < oldest:
        old += 1
    if old == 0:
        return
    groups = state.engine[0].state_groups
    for group in range(groups):
        for place in range(old - 1, -1, -1):
            _free_state(state, r, slot, place, group, computed)
    for place in range(old, held):
        memory[_INDEX + place - old] = memory[_INDEX + place]
        for group in range(groups):
            kept = memory[_record_at(state, place, group)]
            memory[_record_at(state, place - old, group)] = kept
    memory[HELD] = held - old


@inlined()
def chunk_to_boundary(state, slot, start, tokens):
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
    last = (known - 1) // size * size
    if start < last < end:
        end = last
    shared = int(state.request_memory[slot, SHARED])
    if start < shared < end:
        end = shared
    return max(end - start, 0)
