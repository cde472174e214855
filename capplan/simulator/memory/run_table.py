"""Find the newest run that a holder has of a prefix group: a hash table of runs.

Open addressing with linear probing. The table is a column of the runs, of which at most
half are ever in use.
"""

from numba import types

from capplan.simulator.jit import compiled, inlined
from capplan.simulator.state import NONE, STATE, State


@inlined()
def _home(holder, group, part, mask):
    mixed = group * 1_000_003 + part * 7_919 + holder * 40_503
    return (mixed ^ (mixed >> 17)) & mask


@inlined()
def table_row(state: State, holder, group, part):
    """Return the row that has the newest run of a group, or a free one for it.

    ``part`` is that of RUN.
    """
    runs = state.runs
    mask = runs.shape[0] - 1
    row = _home(holder, group, part, mask)
    while runs[row].entry != NONE:
        run = runs[runs[row].entry]
        if run.group == group and run.holder == holder and run.part == part:
            break
        row = (row + 1) & mask
    return row


@inlined()
def newest_run(state: State, holder, group, part):
    """Return the newest run of a group, or NONE."""
    return state.runs[table_row(state, holder, group, part)].entry


@compiled()
def clear_row(state: State, hole):
    """Empty a row; move later entries up, so that a search still finds them."""
    runs = state.runs
    mask = runs.shape[0] - 1
    runs[hole].entry = NONE
    row = (hole + 1) & mask
    while runs[row].entry != NONE:
        run = runs[runs[row].entry]
        home = _home(run.holder, run.group, run.part, mask)
        if ((row - home) & mask) >= ((row - hole) & mask):
            runs[hole].entry = runs[row].entry
            runs[row].entry = NONE
            hole = row
        row = (row + 1) & mask


@compiled(types.void(STATE))
def fill_table(state: State):
    """Enter the newest run of each group into an empty table."""
    for index in range(state.runs.shape[0]):
        run = state.runs[index]
        if run.holder != NONE and run.group != NONE and run.above == NONE:
            row = table_row(state, run.holder, run.group, run.part)
            state.runs[row].entry = index
