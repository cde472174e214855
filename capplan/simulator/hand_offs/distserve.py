"""DistServe: the decode replica is chosen when the prompt is done, and pulls its KV.

Zhong et al., "DistServe: Disaggregating Prefill and Decoding for Goodput-optimized
Large Language Model Serving", OSDI 2024; its repository, distserve/*_scheduler.py. The
first token is the prefill replica's. The decode replica pulls when the prompt fits its
free blocks, and the prefill replica keeps its blocks until then, so that a full decode
pool holds prompts back.

Differs: there the decode replica also stops pulling while what waits there is more than
a share of its blocks; here its free blocks alone say so.
"""

from capplan.deployment.policy import Rules
from capplan.simulator.hand_offs import BOTH, COPY
from capplan.simulator.jit import compiled
from capplan.simulator.state import WHERE

AT_ARRIVAL = False
RECOMPUTES = False
SPEED_UP = 1.0
RULES = Rules(COPY)


@compiled(WHERE)
def where(first, second, slot, d):
    """Compute every prompt on a prefill replica."""
    return BOTH
