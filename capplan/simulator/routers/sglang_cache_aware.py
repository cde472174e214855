"""SGLang's cache-aware policy: the replica that has most of the prompt, or least load.

SGLang's gateway (053b63ff), sgl-model-gateway/src/policies/cache_aware.rs and tree.rs
(03744dbe). Where the most loaded replica has over ``abs`` requests more than the least
loaded and over ``rel`` times as many, the least loaded gets the request. Else, the
replica that was sent most of its prompt, if that is over ``threshold`` of it, else the
least loaded. Every ``period`` each replica's tree is cut to ``size`` characters, least
recently used leaves first. The defaults are those of ``CacheAwareConfig``; a launched
router has (router_args.py, 05e589ad) ``threshold=0.3,abs=64,rel=1.5,period=60s,
size=67108864``, and had 120 s. Before 0.3 an unknown prompt went to the smallest tree.

Of several replicas with the longest match, the tree names the one that brought that
node; here it is the one that has had some of the group, or of the last row that they
match, for longest. A prompt's leaf, and then the rest that it was the last to use, of
conversations by rows, leave whole; there, node by node. A match
does not renew a leaf; there, one in eight does. A token has 4 characters.
"""

import math

from capplan.deployment.policy import Knob, Rules, indices
from capplan.simulator.jit import compiled
from capplan.simulator.memory.prefix_memory import (
    drop_above,
    known_blocks,
    owner_at,
    remember,
)
from capplan.simulator.memory.run_table import newest_run
from capplan.simulator.records import Request
from capplan.simulator.state import ROUTE, ROUTER_SETTINGS, Count, Needs, State

NEEDS = Needs.COUNTS
RULES = Rules(
    {
        "threshold": Knob(0.5, 0, 1),
        "abs": Knob(32, 0),
        "rel": Knob(1.1, 0, 1000),
        "period": Knob(30.0, 0.001, 86_400, is_duration=True),
        "size": Knob(10_000, 1, 2**62),
    },
    remembers=1,
)
SETTING = indices(RULES.settings, ROUTER_SETTINGS)

CHARACTERS_PER_TOKEN = 4


@compiled()
def _cut_trees(state: State, now_s):
    """Cut the trees if a multiple of the period has passed since the arrival before."""
    clock = state.runs[state.counts[Count.HOLDERS]]
    period_s = state.settings[SETTING.period]
    # A cut comes after the arrivals of its instant.
    passed = math.ceil(now_s / period_s) - math.ceil(clock.at_s / period_s)
    clock.at_s = now_s
    if passed > 0:
        most = state.settings[SETTING.size] / CHARACTERS_PER_TOKEN
        for r in range(state.replicas.shape[0]):
            drop_above(state, r, most)


@compiled()
def _holder_of(state: State, request: Request):
    """Return the most tokens of a prompt that a replica was sent, and which one."""
    most = 0
    holder = 0
    since = 0
    for r in range(state.counts[Count.OPEN]):
        known = known_blocks(state, r, request, 1, request.prompt_tokens)
        if known == 0:
            continue
        owner = owner_at(state, request, known)
        had_since = state.runs[newest_run(state, r, owner, 0)].since
        if known > most or (known == most and had_since < since):
            most, holder, since = known, r, had_since
    return most, holder


@compiled(ROUTE)
def route(state: State, slot: int, now_s):
    """Return the least loaded replica, or the one that was sent most of the prompt."""
    request = state.requests[slot]
    loads = state.replicas.outstanding
    least = most = 0
    for r in range(1, state.counts[Count.OPEN]):
        if loads[r] < loads[least]:
            least = r
        if loads[r] > loads[most]:
            most = r
    _cut_trees(state, now_s)
    above = loads[most] - loads[least] > state.settings[SETTING.abs]
    chosen = least
    if not (above and loads[most] > state.settings[SETTING.rel] * loads[least]):
        known, holder = _holder_of(state, request)
        if known / request.prompt_tokens > state.settings[SETTING.threshold]:
            chosen = holder
    remember(state, chosen, request, 1, request.prompt_tokens, now_s, False)
    return chosen
