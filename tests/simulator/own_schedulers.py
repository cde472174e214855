"""A user's scheduler file for the tests: vLLM V1's rules, one horizon at a time."""

from pathlib import Path

FAIR = '''"""A scheduler of a user."""

from capplan.simulator.engine.batch import (
    admit,
    continue_prefill,
    log_decodes,
    take_decode_blocks,
)
from capplan.simulator.jit import compiled
from capplan.simulator.schedulers import Knob, Rules
from capplan.simulator.state import NONE, SCHEDULE

RULES = Rules({"weight": Knob(2)})


@compiled(SCHEDULE)
def schedule(state, r):
    replica = state.replicas[r]
    take_decode_blocks(state, r, 0)
    log_decodes(state, r)
    budget = state.engine[0].max_num_batched_tokens - replica.decode_count
    if replica.prefilling != NONE:
        budget -= continue_prefill(state, r, budget)
    while replica.preempted == 0 and budget > 0:
        chunk = admit(state, r, budget)
        if chunk == 0:
            break
        budget -= chunk
    tokens = replica.batch_tokens + replica.batch_extra_count
    return 1 if tokens + replica.decode_count > 0 else 0
'''


def written(folder: Path, text: str = FAIR) -> Path:
    """Write a scheduler's file and return where."""
    path = folder / "mine.py"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    return path
