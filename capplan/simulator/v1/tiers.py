"""KV of prompts that host memory keeps: vLLM's ``--kv-offloading-size``.

vLLM 0.32, v1/core/sched/scheduler.py with ``OffloadingConnector`` (kv_connector/v1/
offloading/scheduler.py) and its CPU manager (v1/kv_offload/cpu): ``chunks.py``, and of
copies ``transfers.py``.

- Stored are the chunks of each request that an iteration has tokens of, once these are
  full, and those left when it ends. If the idle chunks are not enough to make room none
  is stored, and all are offered again.
- A request that has nothing on the GPU looks in the tier behind what the prefix cache
  has. While a chunk that it would use is being copied it is passed over. It takes its
  blocks at once, but no seat, and goes before all that hold none; it runs when the
  scheduler knows that its copy has ended.

What may be preempted with two iterations in flight, and which blocks stay free, is as
in ``copies.py``.
"""

import math

from capplan.deployment.engine import EngineSettings
from capplan.simulator.capable import Capability
from capplan.simulator.engine.decoding import computed_tokens
from capplan.simulator.engine.gaps import is_resuming
from capplan.simulator.engine.queues import (
    give_slot,
    insert_waiting_before,
    is_flying,
    remove_waiting,
)
from capplan.simulator.engine.speculation import verified_tokens
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.copies import REPLICA as PULLED
from capplan.simulator.kv.kvcache import (
    adopt_hits,
    ceil_div,
    share_full_blocks,
    take_blocks,
)
from capplan.simulator.state import NONE, Phase, State
from capplan.simulator.v1 import adapters, chunks, copies, transfers
from capplan.simulator.v1.chunks import REPLICA, REQUEST, SETTING, SETTINGS
from capplan.simulator.v1.drafts import lookahead_tokens
from capplan.simulator.v1.transfers import ENDED, FOUND, LOADS


def _values(engine: EngineSettings) -> dict[str, float]:
    names = list(SETTINGS)[len(adapters.SETTINGS) :]
    return {name: float(getattr(engine.tier, name)) for name in names}


CAPABILITY = Capability(
    lambda engine: engine.has_tier,
    settings=SETTINGS,
    values=_values,
    keeps_batch=True,
)


# Stores.


@compiled()
def _store(state: State, r: int, slot: int, end):
    """Store a request's chunks before ``end``; return the copy.

    NONE where all are there, -2 where there is no room.
    """
    memory = state.replica_memory[r]
    row = state.requests[slot].row
    start = int(state.request_memory[slot, REQUEST.stored])
    new, stored = chunks.note_path(state, r, row, start, end)
    at = start  # behind the last that is being stored: that is not used
    for k in range(start, end if stored > 0 else start):
        label = state.spare[r, k]
        if label >= 0 and state.blocks[r, label].references < 0:
            chunks.use(state, r, slot, at, k)
            at = k + 1
    chunks.use(state, r, slot, at, end)
    if new > 0 and not chunks.evict(
        state, r, new - int(memory[REPLICA.free]), start, end
    ):
        memory[REPLICA.refused] += 1
        return -2
    state.request_memory[slot, REQUEST.stored] = end
    first = last = NONE
    for k in range(start, end if new > 0 else start):
        owner = -2 - state.spare[r, k]
        if owner < 0:
            continue
        label = chunks.add_chunk(state, r, slot, owner, k)
        state.blocks[r, label].count = NONE
        if first == NONE:
            first = label
        else:
            state.blocks[r, last].count = label
        last = label
    if first != NONE:
        blocks = new * state.engine[0].blocks_per_chunk
        transfers.begin_transfer(state, r, slot, first, blocks, 0)
    return first


@inlined()
def _full_chunks(state: State, slot: int, tokens):
    """Return how many chunks of so many tokens of a request are to be stored."""
    if state.settings[SETTING.answers] == 0.0:
        tokens = min(tokens, state.requests[slot].prompt_tokens)
    return tokens // (state.engine[0].block_size * state.engine[0].blocks_per_chunk)


@inlined()
def _chunks_at_end(state: State, slot: int):
    """Return how many chunks of a request are to be stored when it has ended."""
    request = state.requests[slot]
    tokens = request.prompt_tokens + max(0, request.output_tokens - 1)
    return _full_chunks(state, slot, tokens)


@inlined()
def _leaves_chunks(state: State, r: int):
    """Return whether a request that has its last token in flight has more to store."""
    slot = state.replicas[r].oldest_finishing
    while slot != NONE:
        if _chunks_at_end(state, slot) > state.request_memory[slot, REQUEST.stored]:
            return True
        slot = state.requests[slot].next_in_list
    return False


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
        flying = is_flying(state.replicas[r]) and not is_resuming(state, r, slot)
        tokens -= int(flying)
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
        end = _chunks_at_end(state, slot)
        if end > state.request_memory[slot, REQUEST.stored]:
            label = _store(state, r, slot, end)
            if label >= 0:
                transfers.fence(state, r, label, slot)
        slot = state.requests[slot].next_in_list
    slot = int(memory[REPLICA.ended]) - 1
    while slot != NONE:
        following = state.requests[slot].next_in_list
        chunks.make_newest(state, r, slot)
        if state.request_memory[slot, REQUEST.holds] != 0.0:
            state.request_memory[slot, REQUEST.holds] = 2.0
        else:
            give_slot(state, slot)
        slot = following
    memory[REPLICA.ended] = 0.0


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
    chunks.note_path(state, r, request.row, start, full)
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
    transfers.note_found(state, r, slot, hits)
    adopt_hits(state, r, slot, hits)
    transfers.note_taken(state, r, blocks)
    take_blocks(state, r, blocks)
    chunk = size * state.engine[0].blocks_per_chunk
    start, end = hits * size // chunk, here // chunk
    for k in range(start, end):
        label = state.spare[r, k]
        state.blocks[r, label].references = 1
        state.blocks[r, label].count = state.spare[r, k + 1] if k + 1 < end else NONE
    chunks.use(state, r, slot, start, end)
    state.replica_memory[r, REPLICA.idle] -= end - start
    transfers.begin_transfer(state, r, slot, state.spare[r, start], blocks, 1)
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
    transfers.note_found(
        state, r, slot, int(memory[REQUEST.here]) // state.engine[0].block_size
    )


# A call of the scheduler.


@inlined()
def blocks_return(state: State, r: int):
    """Return whether requests give blocks back with the iteration in flight."""
    return state.replica_memory[r, REPLICA.holding] != 0.0


@compiled()
def begin_call(state: State, r: int):
    """Begin a call of the scheduler: copies have begun and ended since the last one.

    An engine without requests has looked in between, and one that jumped: those whose
    last token was in flight have ended before others come.
    """
    memory = state.replica_memory[r]
    replica = state.replicas[r]
    if memory[REPLICA.calls] == 0.0:
        memory[REPLICA.free] = state.settings[SETTING.chunks]
    memory[REPLICA.calls] += 1.0
    memory[REPLICA.admitted] = replica.admissions
    jumped = replica.step - memory[REPLICA.step] > 1.0 and state.engine[0].depth > 1
    memory[REPLICA.step] = replica.step
    memory[REPLICA.flush_s] = -1.0
    replica.idle_until_s = 0.0
    until_s = replica.now_s
    rested = replica.in_flight == 0 and replica.now_s > replica.gpu_s
    if not rested and memory[REPLICA.rested_s] > 0.0:
        rested = True
        until_s = memory[REPLICA.rested_s]
    memory[REPLICA.rested_s] = 0.0
    at_s = replica.gpu_s if rested else replica.now_s
    if memory[REPLICA.first] + memory[REPLICA.ended] == 0.0:
        return
    transfers.tell_ended(state, r, -math.inf)
    transfers.begin_waiting(state, r, 1, memory[REPLICA.launch_s])
    transfers.begin_waiting(state, r, 0, at_s)
    transfers.fence_ended(state, r)
    if (rested or jumped) and memory[REPLICA.ended] > 0.0:
        store_ended(state, r)
        transfers.begin_waiting(state, r, 0, at_s)
    if rested or (memory[REPLICA.rests] != 0.0 and replica.in_flight == 0):
        transfers.tell_ended(state, r, until_s)


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
        by_one = state.settings[SETTING.answers] != 0.0 or _leaves_chunks(state, r)
        return min(horizon, 1) if by_one else horizon
    if memory[REPLICA.flush_s] >= 0.0:
        memory[REPLICA.flushed] += 1.0
    if launch_s > replica.now_s:
        _launch_later(state, r, launch_s)
    if horizon == 0:
        transfers.begin_waiting(state, r, 1, launch_s)
    found = transfers.note_ended(state, r, launch_s, rests)
    if rests:
        transfers.begin_waiting(state, r, 0, replica.now_s)
        _rest_until_told(state, r, found)
    return min(horizon, 1)


@compiled()
def _launch_later(state: State, r: int, launch_s):
    """Let the iteration, and the requests that are new in it, wait for a moment."""
    replica = state.replicas[r]
    starts_s = max(replica.now_s, replica.gpu_s)
    replica.wait_s += max(launch_s, starts_s) - starts_s
    admitted = state.replica_memory[r, REPLICA.admitted]
    slot = replica.running_head
    while slot != NONE:
        request = state.requests[slot]
        if request.scheduled_s == replica.now_s and request.admission >= admitted:
            request.scheduled_s = launch_s
        slot = request.next


@inlined()
def _rest_until_told(state: State, r: int, found):
    """Let a replica with nothing to run look again when a copy ends.

    At once where one has: it is told of that.
    """
    replica = state.replicas[r]
    if found:
        transfers.tell_ended(state, r, -math.inf)
        replica.preempted = max(replica.preempted, 1)
    elif replica.preempted == 0:
        replica.idle_until_s = transfers.next_end_s(state, r)
