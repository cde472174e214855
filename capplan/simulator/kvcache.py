"""KV blocks: how many are free, and with prefix caching which of them hold what.

A request whose KV holds c tokens has ceil(c / block_size) blocks. While it
decodes, c grows by one an iteration, so it needs a block in iteration k when
c = 0 modulo the block size; ``residues[r, x]`` counts the decoding requests with
(c - k) = x modulo the block size, and the blocks that n iterations take follow
without a look at each request.

Without prefix caching only their number matters. With it, blocks are in one
of three places, as in vLLM 0.32 (kv_cache_manager.py, block_pool.py):

- the queue of free blocks: not referenced, perhaps still with the hash of what
  they hold; taken from its head. Blocks without a hash return to the head,
  blocks with one to the tail, a request's last block first: least recently used;
- shared: full blocks of a prefix group, found by (group, index), counted
  references, listed per request in ``holdings``;
- the stash: all others, each held by exactly one request. Which request holds
  which of them changes nothing that can be seen, so they are only counted.

What a request generated or does not share gets its hash entered when it is
preempted, for that is the only time it can be found again: by itself.
"""

from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import NONE, Count


@inlined()
def ceil_div(numerator, denominator):
    """Return the quotient rounded up."""
    return -((-numerator) // denominator)


@inlined()
def blocks_in_iteration(state, r, step):
    """Return the blocks that decoding takes in iteration ``step``."""
    block_size = state.residues.shape[1]
    return state.residues[r, (-step) % block_size]


@inlined()
def blocks_in_iterations(state, r, first_step, n):
    """Return the blocks that decoding takes in n iterations from ``first_step``."""
    block_size = state.residues.shape[1]
    total = (n // block_size) * state.replicas[r].decode_count
    for k in range(first_step, first_step + n % block_size):
        total += state.residues[r, (-k) % block_size]
    return total


@inlined()
def iterations_that_fit(state, r, first_step, n):
    """Return how many of n iterations from ``first_step`` the free blocks allow."""
    block_size = state.residues.shape[1]
    replica = state.replicas[r]
    free = replica.free_blocks
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


# ---------------------------------------------------------------- hash table


@compiled()
def _hash(owner, index, mask):
    mixed = owner * 1_000_003 + index * 40_503
    return (mixed ^ (mixed >> 15)) & mask


@compiled()
def _place(state, r, owner, index):
    """Return where (owner, index) stands in the table, or would."""
    table = state.table[r]
    mask = table.shape[0] - 1
    place = _hash(owner, index, mask)
    while table[place] != NONE:
        block = state.blocks[r, table[place]]
        if block.owner == owner and block.index == index:
            break
        place = (place + 1) & mask
    return place


@compiled()
def _find(state, r, owner, index):
    """Return the oldest block with this hash, or NONE."""
    return state.table[r, _place(state, r, owner, index)]


@compiled()
def _enter(state, r, label, owner, index, first):
    """Give a block its hash; ``first`` puts it before those that have the same."""
    block = state.blocks[r, label]
    block.owner = owner
    block.index = index
    block.next_same = NONE
    place = _place(state, r, owner, index)
    oldest = state.table[r, place]
    if oldest == NONE:
        state.table[r, place] = label
    elif first:
        block.next_same = oldest
        state.table[r, place] = label
    else:
        while state.blocks[r, oldest].next_same != NONE:
            oldest = state.blocks[r, oldest].next_same
        state.blocks[r, oldest].next_same = label


@compiled()
def _forget(state, r, label):
    """Take a block's hash away."""
    block = state.blocks[r, label]
    place = _place(state, r, block.owner, block.index)
    other = state.table[r, place]
    if other == label:
        state.table[r, place] = block.next_same
        if block.next_same == NONE:
            _close_gap(state, r, place)
    elif other != NONE:
        while state.blocks[r, other].next_same != label:
            other = state.blocks[r, other].next_same
        state.blocks[r, other].next_same = block.next_same
    block.owner = NONE
    block.next_same = NONE


@compiled()
def _close_gap(state, r, hole):
    """Move later entries of the same run up, so that a search still finds them."""
    table = state.table[r]
    mask = table.shape[0] - 1
    place = (hole + 1) & mask
    while table[place] != NONE:
        block = state.blocks[r, table[place]]
        home = _hash(block.owner, block.index, mask)
        if ((place - home) & mask) >= ((place - hole) & mask):
            table[hole] = table[place]
            table[place] = NONE
            hole = place
        place = (place + 1) & mask


# -------------------------------------------------------------- free queue


@compiled()
def _unlink(state, r, label):
    replica = state.replicas[r]
    block = state.blocks[r, label]
    if block.previous == NONE:
        replica.queue_head = block.next
    else:
        state.blocks[r, block.previous].next = block.next
    if block.next == NONE:
        replica.queue_tail = block.previous
    else:
        state.blocks[r, block.next].previous = block.previous
    replica.free_blocks -= 1


@compiled()
def _append(state, r, label):
    replica = state.replicas[r]
    block = state.blocks[r, label]
    block.next = NONE
    block.previous = replica.queue_tail
    if replica.queue_tail == NONE:
        replica.queue_head = label
    else:
        state.blocks[r, replica.queue_tail].next = label
    replica.queue_tail = label
    replica.free_blocks += 1


@compiled()
def _prepend(state, r, label):
    replica = state.replicas[r]
    block = state.blocks[r, label]
    block.previous = NONE
    block.next = replica.queue_head
    if replica.queue_head == NONE:
        replica.queue_tail = label
    else:
        state.blocks[r, replica.queue_head].previous = label
    replica.queue_head = label
    replica.free_blocks += 1


@compiled()
def fill_queue(state, r, kv_blocks):
    """Put all blocks of an idle replica into its queue."""
    if state.engine[0].prefix_caching == 0:
        state.replicas[r].free_blocks = kv_blocks
        return
    for label in range(kv_blocks):
        state.blocks[r, label].owner = NONE
        _append(state, r, label)


@inlined()
def take_blocks(state, r, n):
    """Take n free blocks; what they held is forgotten."""
    replica = state.replicas[r]
    if state.engine[0].prefix_caching == 0:
        replica.free_blocks -= n
        return
    for _ in range(n):
        label = replica.queue_head
        _unlink(state, r, label)
        if state.blocks[r, label].owner != NONE:
            _forget(state, r, label)
        state.stash[r, replica.stash_count] = label
        replica.stash_count += 1


@compiled()
def _from_stash(state, r):
    replica = state.replicas[r]
    replica.stash_count -= 1
    return state.stash[r, replica.stash_count]


# ------------------------------------------------------------ prefix caching


@compiled()
def _sharable_blocks(state, request):
    """Return how many blocks at the start are those of the prefix group."""
    if request.prefix_group < 0:
        return 0
    return request.prefix_tokens // state.engine[0].block_size


@compiled()
def _owner(state, request, index):
    if index < _sharable_blocks(state, request):
        return request.prefix_group
    return -2 - request.row


@compiled()
def count_hits(state, r, slot):
    """Return how many blocks at the start are found, and how many of them are free.

    At least one token is left to compute.
    """
    request = state.requests[slot]
    most = (request.known_tokens - 1) // state.engine[0].block_size
    if request.preemptions == 0:
        most = min(most, _sharable_blocks(state, request))
    hits = 0
    free = 0
    while hits < most:
        label = _find(state, r, _owner(state, request, hits), hits)
        if label == NONE:
            break
        if state.blocks[r, label].references == 0:
            free += 1
        hits += 1
    return hits, free


@compiled()
def _hold(state, r, request, label):
    """List a shared block as the request's next."""
    state.counts[Count.FREE_HOLDINGS] -= 1
    place = state.free_holdings[state.counts[Count.FREE_HOLDINGS]]
    state.holdings[place].block = label
    state.holdings[place].below = request.shared_tail
    request.shared_tail = place
    request.shared_blocks += 1
    state.blocks[r, label].references += 1


@compiled()
def adopt_hits(state, r, slot, hits):
    """Reference the first ``hits`` blocks of a request, found in the cache."""
    replica = state.replicas[r]
    request = state.requests[slot]
    request.hit_blocks = hits
    sharable = _sharable_blocks(state, request)
    for index in range(hits):
        label = _find(state, r, _owner(state, request, index), index)
        if state.blocks[r, label].references == 0:
            _unlink(state, r, label)
        if index < sharable:
            _hold(state, r, request, label)
        else:
            _forget(state, r, label)
            state.stash[r, replica.stash_count] = label
            replica.stash_count += 1


@compiled()
def share_full_blocks(state, r, slot, tokens):
    """Enter the group's blocks that are full once ``tokens`` are computed."""
    request = state.requests[slot]
    full = min(tokens // state.engine[0].block_size, _sharable_blocks(state, request))
    while request.shared_blocks < full:
        label = _from_stash(state, r)
        _enter(state, r, label, request.prefix_group, request.shared_blocks, False)
        _hold(state, r, request, label)


@inlined()
def return_blocks(state, r, slot, held_tokens, hashed_tokens, keep):
    """Give back all blocks of a request, its last block first.

    Parameters
    ----------
    state, r, slot
        The request.
    held_tokens
        Tokens whose KV it holds or has room for.
    hashed_tokens
        Of these, the tokens known to the cache: full blocks of them have a hash.
    keep
        Whether what is its own can be found again (it was preempted).
    """
    replica = state.replicas[r]
    engine = state.engine[0]
    held = ceil_div(held_tokens, engine.block_size)
    if engine.prefix_caching == 0:
        replica.free_blocks += held
        return
    request = state.requests[slot]
    hashed = hashed_tokens // engine.block_size
    own = -2 - request.row
    unhashed = max(0, held - max(hashed, request.shared_blocks))
    for _ in range(unhashed):
        label = _from_stash(state, r)
        _prepend(state, r, label)  # without a hash all are alike: order is free
    for index in range(held - unhashed - 1, request.shared_blocks - 1, -1):
        label = _from_stash(state, r)
        state.blocks[r, label].owner = NONE
        if keep:
            _enter(state, r, label, own, index, index < request.hit_blocks)
        _append(state, r, label)
    while request.shared_tail != NONE:
        place = request.shared_tail
        label = state.holdings[place].block
        request.shared_tail = state.holdings[place].below
        state.free_holdings[state.counts[Count.FREE_HOLDINGS]] = place
        state.counts[Count.FREE_HOLDINGS] += 1
        block = state.blocks[r, label]
        block.references -= 1
        if block.references == 0:
            _append(state, r, label)
    request.shared_blocks = 0
    request.hit_blocks = 0
