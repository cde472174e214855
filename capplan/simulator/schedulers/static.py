"""Request-level scheduling: a batch runs to its end before the next is admitted.

As FasterTransformer is modelled in Sarathi-Serve, faster_transformer_scheduler.py.
Requests that are done leave the batch at once; Yu et al. (OSDI 2022, section 3)
let them wait for the longest. The room of ``max_len`` tokens is rounded up to blocks.

Settings: ``max_len``, longest prompt plus output [tokens]; ``batch``, most requests
running, within the engine's ``max_num_seqs``. There is no token budget.
"""

from capplan.simulator.batch import (
    admit_with_room,
    iterations_to_completion,
    log_decodes,
)
from capplan.simulator.jit import compiled
from capplan.simulator.schedulers import Knob, Rules
from capplan.simulator.schedulers.refusals import beyond_room
from capplan.simulator.state import SCHEDULE, UNLIMITED, Setting

RULES = Rules({"max_len": Knob(2048), "batch": Knob(128)}, reserves=True)


def refused(trace, engine, settings):
    """Return the requests longer than ``max_len``, shape (n,), and the reason."""
    return beyond_room(trace, engine, settings["max_len"])


@compiled(SCHEDULE)
def schedule(state, r):
    """Let the running requests decode; where there are none, start a batch."""
    if state.replicas[r].decode_count > 0:
        log_decodes(state, r)
        return iterations_to_completion(state, r)
    room_tokens = int(state.settings[Setting.OWN])
    seats = int(state.settings[Setting.OWN + 1])
    while admit_with_room(state, r, seats, UNLIMITED, room_tokens, 0) > 0:
        pass
    return int(state.replicas[r].batch_tokens > 0)
