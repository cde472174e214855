"""Find a cached KV block by its hash: an owner and which of its blocks it is.

Open addressing with linear probing, at most half full. Blocks with the same hash form
a list, oldest first, of which the table holds the head.
"""

from capplan.simulator.jit import compiled
from capplan.simulator.state import NONE, State


@compiled()
def _hash(owner, index, mask):
    """Return the home of a block; sixteen neighbours of an owner stand side by side."""
    mixed = owner * 1_000_003 + (index >> 4) * 40_503
    return (((mixed ^ (mixed >> 15)) << 4) + (index & 15)) & mask


@compiled()
def _table_row(state: State, r: int, owner, index):
    """Return the row of the table that has (owner, index), or the free one for it."""
    table = state.table[r]
    mask = table.shape[0] - 1
    row = _hash(owner, index, mask)
    while table[row] != NONE:
        block = state.blocks[r, table[row]]
        if block.owner == owner and block.index == index:
            break
        row = (row + 1) & mask
    return row


@compiled()
def find(state: State, r: int, owner, index):
    """Return the oldest block with this hash, or NONE."""
    return state.table[r, _table_row(state, r, owner, index)]


@compiled()
def add_hash(state: State, r: int, label, owner, index, first):
    """Give a block its hash; ``first`` puts it before those that have the same."""
    block = state.blocks[r, label]
    block.owner = owner
    block.index = index
    block.next_same = NONE
    row = _table_row(state, r, owner, index)
    oldest = state.table[r, row]
    if oldest == NONE:
        state.table[r, row] = label
    elif first:
        block.next_same = oldest
        state.table[r, row] = label
    else:
        while state.blocks[r, oldest].next_same != NONE:
            oldest = state.blocks[r, oldest].next_same
        state.blocks[r, oldest].next_same = label


@compiled()
def remove_hash(state: State, r: int, label):
    """Take a block's hash away."""
    block = state.blocks[r, label]
    row = _table_row(state, r, block.owner, block.index)
    other = state.table[r, row]
    if other == label:
        state.table[r, row] = block.next_same
        if block.next_same == NONE:
            _close_gap(state, r, row)
    elif other != NONE:
        while state.blocks[r, other].next_same != label:
            other = state.blocks[r, other].next_same
        state.blocks[r, other].next_same = block.next_same
    block.owner = NONE
    block.next_same = NONE


@compiled()
def _close_gap(state: State, r: int, hole):
    """Move later entries of the same run up, so that a search still finds them."""
    table = state.table[r]
    mask = table.shape[0] - 1
    row = (hole + 1) & mask
    while table[row] != NONE:
        block = state.blocks[r, table[row]]
        home = _hash(block.owner, block.index, mask)
        if ((row - home) & mask) >= ((row - hole) & mask):
            table[hole] = table[row]
            table[row] = NONE
            hole = row
        row = (row + 1) & mask
