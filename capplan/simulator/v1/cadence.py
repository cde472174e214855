"""Ranks of vLLM that take prompts in the same steps.

vLLM 0.32, ``--prefill-schedule-interval N``, v1/core/sched/scheduler.py: in steps that
are no multiple of N a rank with a request whose prompt is done defers its prompts,
unless some were left waiting when it last did not. Then neither the unfinished prompt
goes on nor is one admitted but a last token behind what the prefix cache has.
"""

from capplan.simulator.capable import Capability
from capplan.simulator.columns import REPLICA_COLUMNS, places
from capplan.simulator.jit import inlined
from capplan.simulator.kv.kvcache import count_hits
from capplan.simulator.state import NONE, State

MEMORY = places(REPLICA_COLUMNS, "cadence")
CAPABILITY = Capability(
    lambda engine: engine.prefill_schedule_interval > 1, in_order=True, keeps_batch=True
)


@inlined()
def defers_prompts(state: State, r: int):
    """Return whether the iteration is to have no prompts."""
    replica = state.replicas[r]
    done = replica.running_count - int(replica.prefilling != NONE)
    bound = state.replica_memory[r, MEMORY.capacity_bound] != 0.0
    return replica.throttled != 0 and not bound and done > 0


@inlined()
def last_token_is_left(state: State, r: int, slot: int):
    """Return whether the prefix cache has all of a waiting request but a token."""
    known = state.requests[slot].known_tokens
    if known == 1 or state.engine[0].prefix_caching == 0:
        return known == 1
    hits, _ = count_hits(state, r, slot)
    return hits * state.engine[0].block_size == known - 1


@inlined()
def note_waiting(state: State, r: int):
    """Note whether an iteration with prompts left some waiting."""
    bound = 1.0 if state.replicas[r].waiting_count > 0 else 0.0
    state.replica_memory[r, MEMORY.capacity_bound] = bound
