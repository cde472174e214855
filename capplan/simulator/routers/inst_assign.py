"""SA scheduling's assignment of requests to instances by the memory that is left.

Huang et al., "SLO-Aware Scheduling for Large Language Model Inferences", arXiv
2504.14966, Algorithm 2: the replica with most memory left, the first of equals, gets
the request and is charged for its prompt and predicted output. When even that one
cannot hold the request, all begin again with the memory that they start with. What
requests have given back since is not looked at.
"""

from capplan.simulator.jit import compiled
from capplan.simulator.state import ROUTE, Count, Needs, State

NEEDS = Needs.NOTHING

MEMORY_SHARE = 0.9
"""Peak over available memory (mu), as measured there (section 5.1)."""


@compiled(ROUTE)
def route(state: State, slot: int, now_s):
    """Return the replica with most memory left; charge it for the request."""
    request = state.requests[slot]
    charged = state.scratch[0]  # tokens, of each replica
    tokens = request.prompt_tokens + request.predicted_tokens
    capacity = state.engine[0].kv_blocks * state.engine[0].block_size
    best = 0
    for r in range(1, state.counts[Count.OPEN]):
        if charged[r] < charged[best]:
            best = r
    if (capacity - charged[best]) * MEMORY_SHARE < tokens:
        charged[:] = 0.0
        best = 0
    charged[best] += tokens / MEMORY_SHARE
    return best
