"""KV blocks of conversations: one record for a segment of a path, none for a block.

Prompts that begin alike make a tree of blocks, and who holds a block holds all before
it on its path. They are freed the last first, so the free blocks of a path are taken
from its end, and those of each row or text that can be found are one interval. So
blocks [start, end) of a path are one record, a segment, as long as the same requests
hold them, or they are neighbours in the queue of free blocks; it loses blocks at its
end only. ``State.tips`` has of each row up to which block its own can be found, and in
which segment the last of them is. Whatever a turn does, it looks at segments of its
path and at rows on it that are not cached: it costs the same however long the prompt.

A block that is computed although it can be found, as the last one of a prompt that is
all cached, is a twin: a segment of its own behind the ``twin`` of the older block's,
which is no longer than it. Only its holder knows it, until the older one is taken.
Blocks that cannot be found stand before all others in the queue: they are a number.
"""

from capplan.simulator.engine.gaps import is_resuming
from capplan.simulator.engine.queues import is_flying
from capplan.simulator.jit import compiled, inlined
from capplan.simulator.kv.linked_list import linked, unlinked
from capplan.simulator.state import NONE, Lineage, Phase, State, Tip


@inlined()
def has_paths(state: State):
    """Return whether requests are of conversations, and segments stand for blocks."""
    return state.segments.shape[1] > 0


@compiled()
def fill_unhashed(state: State, r: int, kv_blocks):
    """Make all blocks of an idle replica free, without content."""
    replica = state.replicas[r]
    replica.queue_head = replica.queue_tail = NONE
    replica.free_blocks = kv_blocks
    replica.unhashed_blocks = kv_blocks


@inlined()
def give_unhashed(state: State, r: int, n):
    """Make n blocks free that cannot be found."""
    state.replicas[r].free_blocks += n
    state.replicas[r].unhashed_blocks += n


@inlined()
def _put_before(state: State, r: int, label, following):
    replica = state.replicas[r]
    replica.queue_head, replica.queue_tail = linked(
        state.segments[r], replica.queue_head, replica.queue_tail, label, following
    )


@inlined()
def _unlink(state: State, r: int, label):
    replica = state.replicas[r]
    replica.queue_head, replica.queue_tail = unlinked(
        state.segments[r], replica.queue_head, replica.queue_tail, label
    )


@compiled()
def _new_segment(state: State, r: int, start, end, parent):
    """Return a record for blocks of a path that begin where ``parent`` ends."""
    replica = state.replicas[r]
    label = replica.unused_segment
    if label == NONE:
        label = replica.segments
        replica.segments += 1
    else:
        replica.unused_segment = state.segments[r, label].next
    segment = state.segments[r, label]
    segment.start = start
    segment.end = end
    segment.row = NONE
    segment.parent = parent
    segment.children = 0
    segment.references = 0
    segment.twin = NONE
    segment.holder = NONE
    return label


@inlined()
def _leave_segment(state: State, r: int, label):
    state.segments[r, label].next = state.replicas[r].unused_segment
    state.replicas[r].unused_segment = label


@inlined()
def owner_of(state: State, node, index):
    """Return whose own a block of a path is, of that of a row or text."""
    while index < state.lineage[node, Lineage.FIRST]:
        node = state.lineage[node, Lineage.PARENT]
    return node


@inlined()
def _has_own(state: State, r: int, node, most):
    """Return whether one of its own blocks is among the first ``most`` and cached."""
    first = state.lineage[node, Lineage.FIRST]
    return first < most and first < state.tips[r, node, Tip.END]


@compiled()
def _find(state: State, r: int, node, most):
    """Return how many of a row's first ``most`` blocks can be found.

    And the segment that has the last of them.
    """
    while most > 0 and not _has_own(state, r, node, most):
        most = min(most, state.lineage[node, Lineage.FIRST])
        node = state.lineage[node, Lineage.PARENT]
    if most == 0:
        return 0, NONE
    most = min(most, state.tips[r, node, Tip.END])
    label = state.tips[r, node, Tip.SEGMENT]
    while state.segments[r, label].start >= most:
        label = state.segments[r, label].parent
    return most, label


@compiled()
def find_path(state: State, r: int, slot: int, most, begins=1):
    """Return how many of a request's first blocks can be found, and how many are free.

    As an iteration ``begins``, or, where that is 0, while one runs. Notes where for
    ``adopt_path``.
    """
    _hash_answers(state, r, slot, most, True, begins)
    request = state.requests[slot]
    hits, label = _find(state, r, request.row, most)
    request.leaf = label
    free = 0
    while label != NONE:
        segment = state.segments[r, label]
        if segment.references == 0:
            free += min(segment.end, hits) - segment.start
        label = segment.parent
    return hits, free


@inlined()
def is_leaf_free(state: State, r: int, slot: int):
    """Return whether nobody holds the last block that ``find_path`` has just found."""
    return state.segments[r, state.requests[slot].leaf].references == 0


@compiled()
def _split(state: State, r: int, label, at):
    """Let the blocks of a segment before ``at`` be another one, which is returned.

    Those from there on keep the number, by which children and holders know them.
    """
    lineage = state.lineage
    upper = state.segments[r, label]
    lower = _new_segment(state, r, upper.start, at, upper.parent)
    segment = state.segments[r, lower]
    node = owner_of(state, upper.row, at - 1)
    segment.row = node
    segment.references = upper.references
    segment.children = 1
    upper.start = at
    upper.parent = lower
    if upper.references == 0:
        _put_before(state, r, lower, upper.next)
    if state.tips[r, node, Tip.END] <= at:
        state.tips[r, node, Tip.SEGMENT] = lower
    while lineage[node, Lineage.FIRST] > segment.start:
        node = lineage[node, Lineage.PARENT]
        state.tips[r, node, Tip.SEGMENT] = lower
    return lower


@compiled()
def adopt_path(state: State, r: int, slot: int, hits):
    """Hold the first ``hits`` blocks of a request that ``find_path`` has just found."""
    request = state.requests[slot]
    request.shared_blocks = hits
    if hits == 0:
        return
    label = request.leaf
    while state.segments[r, label].start >= hits:
        label = state.segments[r, label].parent
    if state.segments[r, label].end > hits:
        label = _split(state, r, label, hits)
    request.leaf = label
    while label != NONE:
        segment = state.segments[r, label]
        if segment.references == 0:
            _unlink(state, r, label)
            state.replicas[r].free_blocks -= segment.end - segment.start
        segment.references += 1
        label = segment.parent


@compiled()
def _forget(state: State, r: int, label, end):
    """Let blocks of a segment from ``end`` on, which were free, not be found."""
    segment = state.segments[r, label]
    node = segment.row
    while state.lineage[node, Lineage.FIRST] > end:
        state.tips[r, node, Tip.END] = end
        node = state.lineage[node, Lineage.PARENT]
    state.tips[r, node, Tip.END] = end
    segment.end = end
    segment.row = node
    if end == segment.start:
        state.tips[r, node, Tip.SEGMENT] = segment.parent


@inlined()
def _drop_twin(state: State, r: int, label):
    """Let a twin that was free not be found any more."""
    other = state.segments[r, label].parent
    while state.segments[r, other].twin != label:
        other = state.segments[r, other].twin
    state.segments[r, other].twin = state.segments[r, label].twin
    _leave_segment(state, r, label)


@inlined()
def _find_twin(state: State, r: int, label):
    """Let the oldest twin of a block that was taken be found in its place."""
    segment = state.segments[r, label]
    oldest = segment.twin
    twin = state.segments[r, oldest]
    segment.twin = twin.twin
    segment.references = twin.references
    if twin.references == 0:
        _put_before(state, r, label, oldest)
        _unlink(state, r, oldest)
    _leave_segment(state, r, oldest)


@compiled()
def _take_last(state: State, r: int, label, count):
    """Take the last blocks of the segment at the head of the queue."""
    segment = state.segments[r, label]
    end = segment.end - count
    if end > segment.start:
        _forget(state, r, label, end)
        return
    _unlink(state, r, label)
    if segment.row < 0:
        _drop_twin(state, r, label)
    elif segment.twin != NONE:
        _find_twin(state, r, label)
    else:
        _forget(state, r, label, end)
        if segment.parent != NONE:
            state.segments[r, segment.parent].children -= 1
        _leave_segment(state, r, label)


@inlined()
def take_of_paths(state: State, r: int, n):
    """Take n free blocks; what they held cannot be found any more."""
    replica = state.replicas[r]
    replica.free_blocks -= n
    unhashed = min(n, replica.unhashed_blocks)
    replica.unhashed_blocks -= unhashed
    n -= unhashed
    while n > 0:
        segment = state.segments[r, replica.queue_head]
        count = min(n, segment.end - segment.start)
        n -= count
        _take_last(state, r, replica.queue_head, count)


@compiled()
def _hold_twin(state: State, r: int, slot: int, index):
    """Hash a block that can be found already: it is found when the older is taken."""
    request = state.requests[slot]
    _, label = _find(state, r, request.row, index + 1)
    if state.segments[r, label].end > index + 1:
        label = _split(state, r, label, index + 1)
    twin = _new_segment(state, r, index, index + 1, label)
    state.segments[r, twin].row = -2 - request.row
    state.segments[r, twin].references = 1
    state.segments[r, twin].holder = slot
    last = label
    while state.segments[r, last].twin != NONE:
        last = state.segments[r, last].twin
    state.segments[r, last].twin = twin
    request.leaf = label


@compiled()
def _note_tips(state: State, r: int, label, row, first):
    """Let the blocks of a segment from ``first`` on be found; they are a row's."""
    segment = state.segments[r, label]
    end = segment.end
    node = owner_of(state, row, end - 1)
    segment.row = node
    while True:
        state.tips[r, node, Tip.END] = end
        state.tips[r, node, Tip.SEGMENT] = label
        end = state.lineage[node, Lineage.FIRST]
        if end <= first:
            break
        node = state.lineage[node, Lineage.PARENT]


@compiled()
def extend_path(state: State, r: int, slot: int, full):
    """Hash the blocks that a request holds up to ``full``: they can be found."""
    request = state.requests[slot]
    first = request.shared_blocks
    if full <= first:
        return
    cached, _ = _find(state, r, request.row, full)
    while first < cached:
        _hold_twin(state, r, slot, first)
        first += 1
    request.shared_blocks = full
    if first == full:
        return
    label = request.leaf if first > 0 else NONE
    alone = label != NONE and state.segments[r, label].references == 1
    last = alone and state.segments[r, label].children == 0
    if not last or state.segments[r, label].twin != NONE:
        if label != NONE:
            state.segments[r, label].children += 1
        label = _new_segment(state, r, first, full, label)
        state.segments[r, label].references = 1
        request.leaf = label
    state.segments[r, label].end = full
    _note_tips(state, r, label, request.row, first)


@compiled()
def _hash_answer(state: State, r: int, node, begins):
    """Hash what the request of a row has answered, if it decodes on this replica.

    vLLM does it with each token that it knows; here, where nobody asks, at its end.
    """
    slot = state.lineage[node, Lineage.SLOT]
    request = state.requests[slot]
    if request.row != node or request.replica != r:
        return
    if request.phase == Phase.DECODING:
        state.replicas[r].grown_step = state.replicas[r].step
        last = request.prompt_tokens + request.run_tokens - 1
        tokens = last - (request.end_step - state.replicas[r].step - begins)
    elif request.phase == Phase.DRAINING:
        tokens = request.prompt_tokens + request.output_tokens - 1
    else:
        return
    if begins == 0:
        tokens -= state.engine[0].depth - 1
    elif is_flying(state.replicas[r]) and not is_resuming(state, r, slot):
        tokens -= 1
    extend_path(state, r, slot, tokens // state.engine[0].block_size)


@inlined()
def _hash_answers(state: State, r: int, slot: int, most, looks, begins):
    """Hash answers to rows that may have one of the first ``most`` blocks of a request.

    But to none before the blocks that it holds; where it ``looks`` for blocks, to none
    before one that is cached. Drafts and deep pipelines decode otherwise: theirs are
    hashed at their end.
    """
    engine = state.engine[0]
    if engine.verifies == 0 and engine.depth <= 2:
        node, held = state.requests[slot].row, state.requests[slot].shared_blocks
        while most > held:
            _hash_answer(state, r, node, begins)
            if looks and _has_own(state, r, node, most):
                break
            most = min(most, state.lineage[node, Lineage.FIRST])
            node = state.lineage[node, Lineage.PARENT]


@compiled()
def share_path(state: State, r: int, slot: int, tokens):
    """Hash the full blocks of a request once ``tokens`` are computed."""
    request = state.requests[slot]
    full = min(tokens, request.known_tokens) // state.engine[0].block_size
    state.lineage[request.row, Lineage.SLOT] = slot
    _hash_answers(state, r, slot, full, False, 1)
    extend_path(state, r, slot, full)


@inlined()
def held_of(state: State, r: int, slot: int, label):
    """Return what a request holds of a segment on its path: its own twin, or itself."""
    twin = state.segments[r, label].twin
    while twin != NONE and state.segments[r, twin].holder != slot:
        twin = state.segments[r, twin].twin
    return label if twin == NONE else twin


@compiled()
def is_of(state: State, r: int, label, row):
    """Return whether a request that has the path of a segment computed no twin of it.

    Of a twin, whether it is the request's.
    """
    if state.segments[r, label].row < 0:
        return state.segments[r, label].row == -2 - row
    twin = state.segments[r, label].twin
    while twin != NONE and state.segments[r, twin].row != -2 - row:
        twin = state.segments[r, twin].twin
    return twin == NONE


@inlined()
def path_of(state: State, r: int, label):
    """Return a row or text whose path has the blocks of a segment."""
    if state.segments[r, label].row < 0:
        label = state.segments[r, label].parent
    return state.segments[r, label].row


@compiled()
def blocks_held_too(state: State, r: int, slot: int):
    """Return how many blocks of a request others hold too."""
    count = 0
    request = state.requests[slot]
    label = request.leaf if request.shared_blocks > 0 else NONE
    while label != NONE:
        segment = state.segments[r, held_of(state, r, slot, label)]
        if segment.references > 1:
            count += segment.end - segment.start
        label = state.segments[r, label].parent
    return count


@compiled()
def release_path(state: State, r: int, slot: int, full):
    """Hash blocks up to ``full``, and let go of all that are hashed, the last first."""
    extend_path(state, r, slot, full)
    request = state.requests[slot]
    label = request.leaf if request.shared_blocks > 0 else NONE
    while label != NONE:
        held = held_of(state, r, slot, label)
        segment = state.segments[r, held]
        segment.holder = NONE
        segment.references -= 1
        if segment.references == 0:
            _put_before(state, r, held, NONE)
            state.replicas[r].free_blocks += segment.end - segment.start
        label = state.segments[r, label].parent
    request.shared_blocks = 0
    request.hit_blocks = 0
