"""Look at the iteration that a scheduler has put together, before it is run.

Only where ``engine.examined`` is set: by the laws, on small cases.
"""

from capplan.simulator.engine.batch import iterations_to_completion
from capplan.simulator.jit import compiled
from capplan.simulator.kv.kvcache import blocks_in_iterations
from capplan.simulator.state import Count, State

FAULTS = (
    "",
    "returned {found}; expected a horizon of 0 iterations or more",
    "returned 0 with {found} tokens of prompts in the iteration; expected 1",
    "returned {found} with nothing to run; expected 0",
    "runs {found} requests at once; max_num_seqs is {limit}",
    "has {found} free KV blocks; expected 0 to {limit}",
    "has {found} free blocks on the host; expected 0 to {limit}",
    "batches {found} tokens; expected at most {limit}",
    "returned {found} with a prompt in the iteration; expected 1",
    "returned {found}; the first request has its last token after {limit} iterations",
    "returned a horizon that takes {found} KV blocks more; {limit} are free",
)
"""What may be wrong after a call; the number is ``Count.FAULT``."""


@compiled()
def has_fault(state: State, r: int, horizon):
    """Return whether an iteration or a horizon is wrong; it is noted, and stuck."""
    fault, found, limit = _first_fault(state, r, horizon)
    if fault == 0:
        return False
    state.counts[Count.FAULT] = fault
    state.counts[Count.FOUND] = found
    state.counts[Count.LIMIT] = limit
    state.counts[Count.STUCK] = 1
    return True


@compiled()
def _first_fault(state: State, r: int, horizon):
    """Return the first fault (0: none) with the two numbers of its text."""
    replica = state.replicas[r]
    engine = state.engine[0]
    prompt_tokens = replica.batch_tokens + replica.batch_extra_count
    decodes = replica.decode_count if replica.prompts_only == 0 else 0
    if replica.running_count > engine.max_num_seqs:
        return 4, replica.running_count, engine.max_num_seqs
    if replica.free_blocks < 0 or replica.free_blocks > engine.kv_blocks:
        return 5, replica.free_blocks, engine.kv_blocks
    host_blocks = state.replicas[r].host_free_blocks
    if host_blocks < 0 or host_blocks > engine.host_blocks:
        return 6, host_blocks, engine.host_blocks
    counted = prompt_tokens + decodes
    most = state.fused_s.shape[0] - 1
    if engine.reserves == 0:
        most = engine.max_num_batched_tokens
        counted -= decodes * engine.prompt_budget
    if counted > most:
        return 7, counted, most
    if horizon < 0:
        return 1, horizon, 0
    if horizon == 0 and prompt_tokens > 0:
        return 2, prompt_tokens, 0
    if horizon > 0 and prompt_tokens + decodes == 0:
        return 3, horizon, 0
    if horizon <= 1 or replica.batch_tokens > 0:
        return 0, 0, 0  # prompts run once, whatever was returned
    if prompt_tokens > 0:
        return 8, horizon, 1
    if decodes > 0:
        until = iterations_to_completion(state, r)
        if horizon > until:
            return 9, horizon, until
        more = blocks_in_iterations(state, r, replica.step + 2, horizon - 1)
        if more > replica.free_blocks:
            return 10, more, replica.free_blocks
    return 0, 0, 0
