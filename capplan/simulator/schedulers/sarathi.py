"""Sarathi-Serve: decoding requests first, the rest of a chunk filled with prompts.

Agrawal et al., "Taming Throughput-Latency Tradeoff in LLM Inference with
Sarathi-Serve", OSDI 2024, Algorithm 3; as in its sarathi_scheduler.py and
base_block_space_manager.py. A prompt takes all its blocks when it is admitted.
Every decoding request wants a free block at its turn even if it needs none, else
the newest request is preempted, and nobody is admitted in that iteration. There a
preempted unfinished prompt may go on with a wrong chunk; here it starts again.
The engine's ``max_num_batched_tokens`` is the chunk.
"""

from capplan.simulator.engine.batch import (
    admit_head_with_room,
    continue_running,
    same_batch,
    watermark_blocks,
)
from capplan.simulator.jit import compiled
from capplan.simulator.schedulers import Rules
from capplan.simulator.schedulers.refusals import above_watermark
from capplan.simulator.state import NONE, SCHEDULE, State

RULES = Rules(in_order=True)


def refused(trace, engine, settings):
    """Return the requests above the watermark, shape (n,), and the reason."""
    return above_watermark(trace, engine)


@compiled(SCHEDULE)
def schedule(state: State, r: int):
    """Let all decode, continue the unfinished prompt, then admit."""
    replica = state.replicas[r]
    budget = continue_running(state, r, 1)
    while replica.preempted == 0 and replica.waiting_head != NONE:
        known_tokens = state.requests[replica.waiting_head].known_tokens
        spare_blocks = watermark_blocks(state)
        chunk = admit_head_with_room(state, r, budget, known_tokens, spare_blocks)
        if chunk == 0:
            break
        budget -= chunk
    changes = replica.preempted > 0 or replica.prefilling != NONE
    return same_batch(state, r, 1, changes)
