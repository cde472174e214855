"""vLLM with a NIXL connector behind llm-d: decode first, and the decode replica pulls.

llm-d inference scheduler (520af478), pkg/epp: the decode replica is chosen first, then
the prefill replica by the same scores; ``prefix-based-pd-decider`` computes a prompt
apart where at least ``threshold`` of its tokens are not cached on the decode replica (0
there: always; its sample says 16). The prefill replica's token is dropped: vLLM 0.32
loads the KV and computes the last prompt token again (simulator/v1/copies.py).

vLLM's workers look for copies that have ended when they start an iteration, and tell
with its result (``report=launch``: gpu/kv_connector.py), on both sides. With
``report=end`` both know at their next scheduling.
"""

from capplan.deployment.policy import Knob, Rules, indices
from capplan.simulator.hand_offs import BOTH, COPY, DECODE_ALONE
from capplan.simulator.jit import compiled
from capplan.simulator.kv.kvcache import count_hits
from capplan.simulator.state import HAND_OFF_SETTINGS, WHERE

AT_ARRIVAL = True
RECOMPUTES = True
SPEED_UP = 1.0
RULES = Rules(
    COPY | {"threshold": Knob(0, 0), "report": Knob(0, choices=("launch", "end"))}
)
THRESHOLD = HAND_OFF_SETTINGS + indices(RULES.settings).threshold


@compiled(WHERE)
def where(first, second, slot, d):
    """Serve a prompt of few uncached tokens by the decode replica alone."""
    threshold = second.settings[THRESHOLD]
    if threshold == 0:
        return BOTH
    request = second.requests[slot]
    uncached = request.prompt_tokens
    if second.engine[0].prefix_caching != 0:
        uncached -= count_hits(second, d, slot)[0] * second.engine[0].block_size
    return DECODE_ALONE if uncached < threshold else BOTH
