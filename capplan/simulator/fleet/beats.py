"""What a dispatcher hears of finished requests, and what it knows of outputs."""

import numpy as np
from numba import types

from capplan.simulator.fleet.motion import MOTION, REBALANCE, Beat, Index, Motion
from capplan.simulator.jit import compiled
from capplan.simulator.records import Request
from capplan.simulator.state import STATE, Count, State
from capplan.workload.conditional_mean import ConditionalMean
from capplan.workload.trace import Trace

DISPATCH = REBALANCE  # of one type, so that what never happens serves for both
"""``dispatch(state, motion, now_s) -> placed``: see dispatchers/__init__.py."""


@compiled(types.void(STATE, MOTION))
def note_finished(state: State, motion):
    """Note the errors of predictions of what has finished and was not noted."""
    for k in range(motion.counts[Index.NOTED], state.counts[Count.RESULTS]):
        result = state.results[k]
        if result.output_tokens < result.predicted_tokens:
            unused = result.output_tokens - result.predicted_tokens
            motion.beats[Beat.TOKENS, result.replica] += unused
            motion.beats[Beat.REQUESTS, result.replica] -= 1.0
    motion.counts[Index.NOTED] = state.counts[Count.RESULTS]


@compiled()
def predicted_again(motion, request: Request):
    """Return the mean of past outputs above the prediction, of prompts as long."""
    ends = motion.past_ends
    low, high = 0, ends.shape[1] - 1
    while low < high:  # the first bin that is long enough, or the last
        middle = (low + high) // 2
        if ends[0, middle] < request.prompt_tokens:
            low = middle + 1
        else:
            high = middle
    end = ends[1, low]
    first = 0 if low == 0 else ends[1, low - 1]
    upto = end
    while first < upto:
        middle = (first + upto) // 2
        if motion.past[0, middle] > request.predicted_tokens:
            upto = middle
        else:
            first = middle + 1
    if first == end:  # none was longer
        return request.predicted_tokens + 1.0
    return motion.past[1, first]


def knowing(motion: Motion, trace: Trace) -> Motion:
    """Return the same that knows the outputs of a trace, by length of the prompt.

    The bins are those of the predictor ``aladdin``.
    """
    upper = ConditionalMean.fit(trace).upper_prompt_tokens
    bin_of = np.searchsorted(upper, trace.prompt_tokens)
    order = np.lexsort((trace.output_tokens, bin_of))
    outputs = trace.output_tokens[order].astype(np.float64)
    ends = np.cumsum(np.bincount(bin_of, minlength=len(upper) + 1))
    mean = np.empty_like(outputs)
    first = 0
    for end in ends.tolist():
        longer = outputs[first:end][::-1]
        mean[first:end] = (np.cumsum(longer) / np.arange(1, len(longer) + 1))[::-1]
        first = end
    uppers = np.append(upper, np.iinfo(np.int64).max)
    return motion._replace(
        past=np.array([outputs, mean]), past_ends=np.array([uppers, ends], np.int64)
    )
