"""Splitwise: both replicas are chosen at the arrival; KV is sent while it is computed.

Patel et al., "Splitwise: Efficient Generative LLM Inference Using Phase Splitting",
ISCA 2024; Mutinifni/splitwise-sim, scheduler.py. Layers are sent as they are done, so
that a tenth of the copy is left when the prompt is done (``SPEED_UP``). The pools mix:
where every prefill replica has more than ``queue`` prompt tokens to do, a request is
served by its decode replica alone; where that has no KV free for the prompt, by a
prefill replica alone.

Differs: there a machine changes its pool until it is drained, here single requests do.
"""

from capplan.deployment.policy import Knob, Rules, indices
from capplan.simulator.hand_offs import BOTH, COPY, DECODE_ALONE, PREFILL_ALONE
from capplan.simulator.jit import compiled
from capplan.simulator.kv.kvcache import ceil_div
from capplan.simulator.state import HAND_OFF_SETTINGS, WHERE, Count

AT_ARRIVAL = True
RECOMPUTES = False
SPEED_UP = 10.0
RULES = Rules(COPY | {"queue": Knob(8192, 1)})
QUEUE = HAND_OFF_SETTINGS + indices(RULES.settings).queue


@compiled(WHERE)
def where(first, second, slot, d):
    """Serve both phases by a replica of the other pool where one pool is full."""
    fewest = first.replicas[0].prefill_tokens
    for r in range(1, first.counts[Count.OPEN]):
        fewest = min(fewest, first.replicas[r].prefill_tokens)
    if fewest > second.settings[QUEUE]:
        return DECODE_ALONE
    request = second.requests[slot]
    blocks = ceil_div(request.prompt_tokens + 1, second.engine[0].block_size)
    if blocks > second.replicas[d].free_blocks:
        return PREFILL_ALONE
    return BOTH
