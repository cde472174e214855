"""Iteration-level scheduling: whole prompts join as soon as there is room.

Yu et al., "Orca: A Distributed Serving System for Transformer-Based Generative
Models", OSDI 2022, Algorithm 1; as in Sarathi-Serve, orca_scheduler.py and
orca_block_space_manager.py, with paged KV: a request takes the blocks of
``max_len`` tokens when it is admitted, so nothing is ever preempted.

Setting: ``max_len``, longest prompt plus output [tokens]. There is no token budget.
"""

from capplan.simulator.engine.batch import (
    admit_head_with_room,
    iterations_to_completion,
    log_decodes,
)
from capplan.simulator.jit import compiled
from capplan.simulator.schedulers import Knob, Rules, indices
from capplan.simulator.schedulers.refusals import beyond_room
from capplan.simulator.state import SCHEDULE, UNLIMITED, State

RULES = Rules({"max_len": Knob(2048)}, reserves=True, in_order=True)
SETTING = indices(RULES.settings)


def refused(trace, engine, settings):
    """Return the requests longer than ``max_len``, shape (n,), and the reason."""
    return beyond_room(trace, engine, settings["max_len"])


@compiled(SCHEDULE)
def schedule(state: State, r: int):
    """Let all running requests decode and the head of the queue join them."""
    room_tokens = int(state.settings[SETTING.max_len])
    log_decodes(state, r)
    while admit_head_with_room(state, r, UNLIMITED, room_tokens, 0) > 0:
        pass
    if state.replicas[r].batch_tokens > 0:
        return 1
    if state.replicas[r].decode_count == 0:
        return 0
    return iterations_to_completion(state, r)
