"""Prompts that begin alike to one replica, by a ring of hashes and a bound on its load.

SGLang's gateway (065f331f), sgl-model-gateway/src/policies/prefix_hash.rs: the hash of
a prompt's first 256 tokens has its place on a ring. Where that replica has more than
``load`` (1.25) of the mean of requests outstanding with this one, the request goes to
the one with the fewest, if one is within that, else there all the same: consistent
hashing with bounded loads (Mirrokni et al., SODA 2018), but to the least loaded instead
of the next. Here prompts begin alike as far as their prefix group or their conversation
says: one that shares less than its first ``tokens`` with its group has a place of its
own, by the first draw; of conversations, the place of the row that had them first.
"""

from capplan.deployment.policy import Knob, Rules, indices
from capplan.simulator.jit import compiled
from capplan.simulator.memory.hash_ring import PLACES, place_of, replica_at
from capplan.simulator.memory.prefix_memory import owner_at
from capplan.simulator.state import NONE, ROUTE, ROUTER_SETTINGS, Count, Needs, State

NEEDS = Needs.COUNTS
RULES = Rules({"tokens": Knob(256), "load": Knob(1.25, 1, 1000)}, rings=True)
SETTING = indices(RULES.settings, ROUTER_SETTINGS)


@compiled(ROUTE)
def route(state: State, slot: int, now_s):
    """Return the replica of the prompt's first tokens; the least loaded beyond it."""
    n = state.counts[Count.OPEN]
    request = state.requests[slot]
    tokens = min(int(state.settings[SETTING.tokens]), request.prompt_tokens)
    owner = owner_at(state, request, tokens)
    if owner != NONE:
        place = place_of(owner, tokens)
    else:
        place = int(state.draws[state.counts[Count.DRAW], 0] * PLACES)
    total = 0
    least = 0
    for r in range(n):
        total += state.replicas[r].outstanding
        if state.replicas[r].outstanding < state.replicas[least].outstanding:
            least = r
    most = (total + 1) / n * state.settings[SETTING.load]
    r = replica_at(state, place)
    if total > 0 and state.replicas[r].outstanding > most:
        # The least loaded is within it, if any one is.
        return least if state.replicas[least].outstanding <= most else r
    return r
