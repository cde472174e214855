"""Short requests to one part of the replicas, long ones to the other.

The first ``share`` of the open replicas, at least one and not all, serve requests of up
to ``tokens``: prompt and predicted answer, or the prompt alone (``of=prompt``). Within
a part, join the shortest queue. A long prompt then delays no short request; a part may
be busy while the other idles.
"""

from capplan.deployment.policy import Knob, Rules, indices
from capplan.simulator.jit import compiled
from capplan.simulator.state import ROUTE, ROUTER_SETTINGS, Count, Needs, State

NEEDS = Needs.COUNTS
RULES = Rules(
    {
        "tokens": Knob(2048),
        "share": Knob(0.5, 0, 1),
        "of": Knob(0, choices=("total", "prompt")),
    }
)
SETTING = indices(RULES.settings, ROUTER_SETTINGS)


@compiled(ROUTE)
def route(state: State, slot: int, now_s):
    """Return the replica with the fewest requests of its part, the first of equals."""
    n = state.counts[Count.OPEN]
    request = state.requests[slot]
    tokens = request.prompt_tokens
    if state.settings[SETTING.of] == 0.0:
        tokens += request.predicted_tokens
    border = min(max(int(state.settings[SETTING.share] * n + 0.5), 1), n - 1)
    first, end = 0, border
    if tokens > state.settings[SETTING.tokens] or border == 0:
        first, end = border, n
    best = first
    for r in range(first + 1, end):
        if state.replicas[r].outstanding < state.replicas[best].outstanding:
            best = r
    return best
