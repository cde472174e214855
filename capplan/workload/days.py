"""Blocks of a trace's time, such as its days, laid in another order."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from capplan.errors import InputError
from capplan.workload.synthesis import renumbered
from capplan.workload.trace import Trace

DAY_S = 86_400.0
"""A day. [s]"""

_MISSING = 0.05
"""Share of the last block that may be missing."""


def whole_blocks(trace: Trace, block_s: float) -> int:
    """Return how many blocks a trace fills; the last may lack 5 %."""
    return int(trace.duration_s / block_s + _MISSING)


def empty_blocks(trace: Trace, block_s: float, count: int) -> frozenset[int]:
    """Return which of so many blocks have no requests. [s]

    Examples
    --------
    >>> sorted(empty_blocks(Trace([1, 1], [1, 1], [0.0, 25.0]), 10.0, 3))
    [1]
    """
    if not count or trace.arrival_s is None:
        return frozenset()
    ends = np.searchsorted(
        trace.arrival_s - trace.arrival_s[0], block_s * np.arange(count + 1)
    )
    return frozenset(np.flatnonzero(np.diff(ends) == 0).tolist())


def laid(trace: Trace, block_s: float, chosen: Sequence[int]) -> Trace:
    """Return the requests of chosen blocks, one block after another. [s]

    A block that is chosen again gets prefix groups and sessions of its own: otherwise
    its requests would find their first time in the prefix cache.

    Examples
    --------
    >>> trace = Trace([1, 2, 3], [1, 1, 1], [0.0, 4.0, 15.0])
    >>> again = laid(trace, 10.0, [1, 1, 0])
    >>> again.arrival_s.tolist(), again.prompt_tokens.tolist()
    ([5.0, 15.0, 20.0, 24.0], [3, 3, 1, 2])
    """
    if trace.arrival_s is None:
        raise InputError(f"{trace.source}: no arrival times, and so no blocks of time")
    since_s = trace.arrival_s - trace.arrival_s[0]
    edges_s = block_s * np.arange(max(chosen) + 2)
    ends = np.searchsorted(since_s, edges_s)
    rows, arrival_s, repetition = [], [], []
    times = dict.fromkeys(chosen, 0)
    for position, block in enumerate(chosen):
        of = np.arange(ends[block], ends[block + 1])
        rows.append(of)
        arrival_s.append(since_s[of] - edges_s[block] + position * block_s)
        repetition.append(np.full(len(of), times[block]))
        times[block] += 1
    index = np.concatenate(rows)
    if not len(index):
        raise InputError(f"{trace.source}: no requests in the blocks {list(chosen)}")
    drawn = replace(trace, arrival_s=None).select(index)
    drawn = renumbered(drawn, trace, np.concatenate(repetition))
    # Blocks meet within rounding: sums of floats may fall by the last digit.
    at_s = np.maximum.accumulate(np.concatenate(arrival_s))
    return replace(drawn, arrival_s=trace.arrival_s[0] + at_s)
