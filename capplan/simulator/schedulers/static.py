"""Request-level scheduling: a batch runs to its end before the next is admitted.

As FasterTransformer is modelled in Sarathi-Serve, faster_transformer_scheduler.py.
Requests that are done leave the batch at once. With ``padded=1`` they are computed
on until the longest is done, and all finish then, as Yu et al. describe it ("Orca",
OSDI 2022, section 3). The room of ``max_len`` tokens is rounded up to blocks.

Settings: ``max_len``, longest prompt plus output [tokens]; ``padded``, 0 or 1. There
is no token budget.
"""

from capplan.simulator.engine.batch import (
    admit_head_with_room,
    iterations_to_completion,
    log_decodes,
)
from capplan.simulator.jit import compiled
from capplan.simulator.schedulers import Knob, Rules, indices
from capplan.simulator.schedulers.refusals import beyond_room
from capplan.simulator.state import NONE, SCHEDULE, UNLIMITED, State

RULES = Rules(
    {"max_len": Knob(2048), "padded": Knob(0, 0, 1)}, reserves=True, in_order=True
)
SETTING = indices(RULES.settings)


def refused(trace, engine, settings):
    """Return the requests longer than ``max_len``, shape (n,), and the reason."""
    return beyond_room(trace, engine, settings["max_len"])


@compiled()
def _pad(state: State, r: int):
    """Let all requests of a new batch run for as long as the longest."""
    longest = 0
    slot = state.replicas[r].running_head
    while slot != NONE:
        longest = max(longest, state.requests[slot].output_tokens)
        slot = state.requests[slot].next
    slot = state.replicas[r].running_head
    while slot != NONE:
        state.requests[slot].run_tokens = longest
        slot = state.requests[slot].next


@compiled(SCHEDULE)
def schedule(state: State, r: int):
    """Let the running requests decode; where there are none, start a batch."""
    if state.replicas[r].decode_count > 0:
        log_decodes(state, r)
        return iterations_to_completion(state, r)
    room_tokens = int(state.settings[SETTING.max_len])
    while admit_head_with_room(state, r, UNLIMITED, room_tokens, 0) > 0:
        pass
    if state.settings[SETTING.padded] != 0:
        _pad(state, r)
    return int(state.replicas[r].batch_tokens > 0)
