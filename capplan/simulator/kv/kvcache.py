"""KV blocks: how many are free and, with prefix caching, what each of them holds.

A request whose KV holds c tokens has ceil(c / block_size) blocks. While it
decodes, c grows by one an iteration, so it needs a block in iteration k when
c = 0 modulo the block size. ``residues[r, x]`` counts the decoding requests with
(c - k) = x modulo the block size, which gives the blocks that n iterations take
without a look at each request.

Without prefix caching only the number of free blocks matters. With it, blocks
stand in the queue of free blocks or are held by requests, as in vLLM 0.32
(kv_cache_manager.py, block_pool.py):

- free: no request holds it, but its content may still be found. Blocks are taken
  from the head. Blocks without a hash return to the head, blocks with one to the
  tail, a request's last block first (LRU);
- shared: full blocks of a prefix group, found by (group, index), with a
  reference count; ``holdings`` lists those of each request;
- all others are held by exactly one request each.

A window or a state bounds the KV of some layers. They hold blocks of the same pool,
which a request takes when it is admitted, as many as it will need: ``bounded_blocks``.
With prefix caching those of states come and go: ``states.py``.

Blocks that a request generated or does not share are hashed only when it is
preempted: only the request itself can find them again, when it is readmitted.

Only a block that can be found has a record of its own. Which one another block is
has no effect, so that those held are only counted by their requests, and neighbours
in the queue are one record with their ``count``: a run. There are never more records
than blocks, since each run has one at least.

Of conversations ``paths.py`` has the blocks, in far fewer records. Schedulers do not
see it: they call ``count_hits``, ``adopt_hits``, ``take_blocks``, ``share_full_blocks``
and ``return_blocks`` for both.
"""

from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv import paths
from capplan.simulator.kv.block_table import add_hash, find, remove_hash
from capplan.simulator.kv.linked_list import linked, unlinked
from capplan.simulator.kv.paths import has_paths
from capplan.simulator.records import Request
from capplan.simulator.state import NONE, State


@inlined()
def ceil_div(numerator, denominator):
    """Return the quotient rounded up."""
    return -((-numerator) // denominator)


@inlined()
def bounded_blocks(state: State, request: Request):
    """Return the blocks that a request holds beside those of its tokens."""
    engine = state.engine[0]
    if engine.bounded_groups == 0:
        return 0
    tokens = request.prompt_tokens + request.output_tokens - 1
    blocks = ceil_div(tokens, engine.block_size)
    return engine.bounded_groups * min(blocks, engine.bounded_blocks)


@inlined()
def blocks_in_iteration(state: State, r: int, step):
    """Return the blocks that decoding takes in iteration ``step``."""
    block_size = state.residues.shape[1]
    return state.residues[r, (-step) % block_size]


@inlined()
def blocks_in_iterations(state: State, r: int, first_step, n):
    """Return the blocks that decoding takes in n iterations from ``first_step``."""
    if state.engine[0].reserves != 0:
        return 0
    block_size = state.residues.shape[1]
    # In block_size iterations, each request takes exactly one block.
    total = (n // block_size) * state.replicas[r].decode_count
    for k in range(first_step, first_step + n % block_size):
        total += state.residues[r, (-k) % block_size]
    return total


@inlined()
def iterations_that_fit(state: State, r: int, first_step, n, free):
    """Return how many of n iterations from ``first_step`` so many free blocks allow."""
    if free < 0:
        return 0
    block_size = state.residues.shape[1]
    replica = state.replicas[r]
    if (n // block_size + 1) * replica.decode_count <= free:
        return n
    fit = 0
    if replica.decode_count > 0:
        cycles = min(free // replica.decode_count, n // block_size)
        fit = cycles * block_size
        free -= cycles * replica.decode_count
    while fit < n:
        free -= state.residues[r, (-(first_step + fit)) % block_size]
        if free < 0:
            break
        fit += 1
    return fit


@compiled()
def unlink(state: State, r: int, label):
    """Take free blocks out of the queue."""
    replica, blocks = state.replicas[r], state.blocks[r]
    replica.queue_head, replica.queue_tail = unlinked(
        blocks, replica.queue_head, replica.queue_tail, label
    )
    replica.free_blocks -= blocks[label].count


@compiled()
def put_before(state: State, r: int, label, following):
    """Put free blocks before others of the queue, or last where these are NONE."""
    replica, blocks = state.replicas[r], state.blocks[r]
    replica.queue_head, replica.queue_tail = linked(
        blocks, replica.queue_head, replica.queue_tail, label, following
    )
    replica.free_blocks += blocks[label].count


@compiled()
def take_record(state: State, r: int, owner, count):
    """Return an unused record for a block that can be found, or for a run."""
    replica = state.replicas[r]
    replica.spare_count -= 1
    label = state.spare[r, replica.spare_count]
    block = state.blocks[r, label]
    block.owner = owner
    block.count = count
    block.references = 0
    return label


@compiled()
def leave_record(state: State, r: int, label):
    """Let a record be used for other blocks."""
    replica = state.replicas[r]
    state.spare[r, replica.spare_count] = label
    replica.spare_count += 1


@compiled()
def fill_free_blocks(state: State, r: int, kv_blocks):
    """Make all blocks of an idle replica free."""
    replica = state.replicas[r]
    if state.engine[0].prefix_caching == 0:
        replica.free_blocks = kv_blocks
        return
    if has_paths(state):
        paths.fill_unhashed(state, r, kv_blocks)
        return
    for label in range(kv_blocks):
        state.spare[r, label] = label
    replica.spare_count = kv_blocks
    put_before(state, r, take_record(state, r, NONE, kv_blocks), NONE)


@compiled()
def _extends_run(state: State, r: int, label, count):
    """Add blocks that cannot be found to a run; return False if the record is none."""
    if label == NONE or state.blocks[r, label].owner != NONE:
        return False
    state.blocks[r, label].count += count
    state.replicas[r].free_blocks += count
    return True


@inlined()
def take_blocks(state: State, r: int, n):
    """Take n free blocks; what they held cannot be found any more."""
    replica = state.replicas[r]
    if state.engine[0].prefix_caching == 0:
        replica.free_blocks -= n
        return
    if has_paths(state):
        paths.take_of_paths(state, r, n)
        return
    while n > 0:
        label = replica.queue_head
        block = state.blocks[r, label]
        taken = min(n, block.count)
        n -= taken
        if taken < block.count:
            block.count -= taken
            replica.free_blocks -= taken
            break
        unlink(state, r, label)
        if block.owner != NONE:
            remove_hash(state, r, label)
        leave_record(state, r, label)


@inlined()
def give_blocks(state: State, r: int, n):
    """Make n blocks free that cannot be found: they are the next to be taken."""
    replica = state.replicas[r]
    if state.engine[0].prefix_caching == 0:
        replica.free_blocks += n
    elif has_paths(state):
        paths.give_unhashed(state, r, n)
    elif n > 0 and not _extends_run(state, r, replica.queue_head, n):
        label = take_record(state, r, NONE, n)
        put_before(state, r, label, replica.queue_head)


# Prefix caching: hits, shared blocks and their return.


@compiled()
def sharable_blocks(state: State, request: Request):
    """Return how many blocks of its group others may find while a request runs."""
    if request.prefix_group < 0:
        return 0
    return request.prefix_tokens // state.engine[0].block_size


@compiled()
def owner_of(state: State, request: Request, index):
    """Return whose a block of a request is: its prefix group's, or its own."""
    if index < sharable_blocks(state, request):
        return request.prefix_group
    return -2 - request.row


@compiled()
def count_hits(state: State, r: int, slot: int, left=1):
    """Return how many blocks at the start are cached, and how many of them are free.

    At least ``left`` tokens are left to compute. Notes the blocks for ``adopt_hits``
    above the unused records, where there is room for as many as are in use.
    """
    request = state.requests[slot]
    most = (request.known_tokens - left) // state.engine[0].block_size
    if has_paths(state):
        return paths.find_path(state, r, slot, most)
    if request.preemptions == 0:
        most = min(most, sharable_blocks(state, request))
    spare_count = state.replicas[r].spare_count
    hits = 0
    free = 0
    while hits < most:
        label = find(state, r, owner_of(state, request, hits), hits)
        if label == NONE:
            break
        if state.blocks[r, label].references == 0:
            free += 1
        state.spare[r, spare_count + hits] = label
        hits += 1
    return hits, free


@compiled()
def cached_blocks(state: State, r: int, slot: int):
    """Return how many blocks of a prompt a replica has as it arrives."""
    if has_paths(state):
        most = (state.requests[slot].known_tokens - 1) // state.engine[0].block_size
        return paths.find_path(state, r, slot, most, 0)[0]
    return count_hits(state, r, slot)[0]


@inlined()
def may_find_more(state: State, r: int):
    """Return whether one that waits goes on with an answer that is being given."""
    replica = state.replicas[r]
    return replica.waiting_count > 0 and replica.grown_step == replica.step


@inlined()
def is_last_hit_free(state: State, r: int, slot: int, hits):
    """Return whether nobody holds the last of ``count_hits``."""
    if has_paths(state):
        return paths.is_leaf_free(state, r, slot)
    label = state.spare[r, state.replicas[r].spare_count + hits - 1]
    return state.blocks[r, label].references == 0


@compiled()
def blocks_held_too(state: State, r: int, slot: int):
    """Return how many blocks of a request others hold too."""
    if has_paths(state):
        return paths.blocks_held_too(state, r, slot)
    count = 0
    for index in range(state.requests[slot].shared_blocks):
        label = state.holdings[slot, index]
        count += int(state.blocks[r, label].references > 1)
    return count


@inlined()
def _hold(state: State, r: int, slot: int, label):
    """Add a shared block to those that the request holds."""
    request = state.requests[slot]
    state.holdings[slot, request.shared_blocks] = label
    request.shared_blocks += 1
    state.blocks[r, label].references += 1


@compiled()
def adopt_hits(state: State, r: int, slot: int, hits):
    """Reference the ``hits`` blocks of a request that ``count_hits`` has just found."""
    noted = state.replicas[r].spare_count
    request = state.requests[slot]
    request.hit_blocks = hits
    if has_paths(state):
        paths.adopt_path(state, r, slot, hits)
        return
    sharable = sharable_blocks(state, request)
    for index in range(hits):
        # A record that is left goes where a block before this one was noted.
        label = state.spare[r, noted + index]
        if state.blocks[r, label].references == 0:
            unlink(state, r, label)
        if index < sharable:
            _hold(state, r, slot, label)
        else:
            remove_hash(state, r, label)
            leave_record(state, r, label)


@compiled()
def share_full_blocks(state: State, r: int, slot: int, tokens):
    """Hash the full blocks that others may find once ``tokens`` are computed."""
    request = state.requests[slot]
    if has_paths(state):
        paths.share_path(state, r, slot, tokens)
        return
    full = min(tokens // state.engine[0].block_size, sharable_blocks(state, request))
    while request.shared_blocks < full:
        owner = owner_of(state, request, request.shared_blocks)
        label = take_record(state, r, owner, 1)
        add_hash(state, r, label, owner, request.shared_blocks, False)
        _hold(state, r, slot, label)


@compiled()
def merge_full_blocks(state: State, r: int, slot: int, tokens):
    """Do the same where others may have computed them since: their copies are kept."""
    request = state.requests[slot]
    full = min(tokens // state.engine[0].block_size, sharable_blocks(state, request))
    while request.shared_blocks < full:
        owner = owner_of(state, request, request.shared_blocks)
        label = find(state, r, owner, request.shared_blocks)
        if label == NONE:
            share_full_blocks(
                state, r, slot, (request.shared_blocks + 1) * state.engine[0].block_size
            )
            continue
        if state.blocks[r, label].references == 0:
            unlink(state, r, label)
        _hold(state, r, slot, label)
        give_blocks(state, r, 1)


@inlined()
def return_blocks(state: State, r: int, slot: int, held_tokens, hashed_tokens, keep):
    """Return all blocks of a request that holds KV of tokens, its last block first.

    It has blocks of its room at least. Those full of ``hashed_tokens``, which the
    engine has collected, have a hash. ``keep``: it was preempted, and may find them,
    as may those who go on with its conversation.
    """
    replica = state.replicas[r]
    engine = state.engine[0]
    request = state.requests[slot]
    held = ceil_div(max(held_tokens, request.room_tokens), engine.block_size)
    if engine.prefix_caching == 0:
        replica.free_blocks += held + request.bounded_blocks
        return
    blocks = state.blocks[r]
    hashed = hashed_tokens // engine.block_size
    own = -2 - request.row
    held += request.bounded_blocks
    unhashed = max(0, held - max(hashed, request.shared_blocks))
    give_blocks(state, r, unhashed)
    if has_paths(state):
        paths.release_path(state, r, slot, held - unhashed)
        return
    own_hashed = held - unhashed - request.shared_blocks
    if keep:
        for index in range(held - unhashed - 1, request.shared_blocks - 1, -1):
            label = take_record(state, r, own, 1)
            add_hash(state, r, label, own, index, index < request.hit_blocks)
            put_before(state, r, label, NONE)
    elif own_hashed > 0 and not _extends_run(state, r, replica.queue_tail, own_hashed):
        put_before(state, r, take_record(state, r, NONE, own_hashed), NONE)
    for index in range(request.shared_blocks - 1, -1, -1):
        label = state.holdings[slot, index]
        blocks[label].references -= 1
        if blocks[label].references == 0:
            put_before(state, r, label, NONE)
    request.shared_blocks = 0
    request.hit_blocks = 0
