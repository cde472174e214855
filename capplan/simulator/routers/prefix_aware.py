"""Longest known prefix, one of equals by a draw; loads are not looked at.

vLLM production-stack (a6c01db0), src/vllm_router/routers/routing_logic.py,
``PrefixAwareRouter``, and prefix/hashtrie.py: a trie of chunks of 128 characters says
which engines were sent a prompt that begins so, and forgets nothing. A random one of
those with the longest match gets the request: of all where nothing is known. Below
``match`` characters (0 by default) it is the one with the fewest queries in 60 s. Here
a token has 4 characters, as llm-d estimates, and prompts match as far as their prefix
group or their conversation says; the last chunk of a prompt, which may be shorter,
counts as a whole one.
"""

from capplan.deployment.policy import Knob, Rules, indices
from capplan.simulator.jit import compiled
from capplan.simulator.memory.equals import one_of_equals
from capplan.simulator.memory.prefix_memory import (
    common_blocks,
    known_blocks,
    knows_part,
    part_owner,
    remember,
    remember_part,
)
from capplan.simulator.memory.recent_queries import fewest_queries, note_query
from capplan.simulator.records import Request
from capplan.simulator.state import NONE, ROUTE, ROUTER_SETTINGS, Count, Needs, State

NEEDS = Needs.NOTHING
RULES = Rules(
    {
        "match": Knob(0, 0),
        "chunk": Knob(128, 4),
        "window": Knob(60.0, 0, 86_400, is_duration=True),
    },
    remembers=2,  # its prompts, its queries
)
SETTING = indices(RULES.settings, ROUTER_SETTINGS)

CHARACTERS_PER_TOKEN = 4


@compiled()
def _longest(state: State, request: Request, tokens, full, owner):
    """Return the most chunks known anywhere; those of each replica in ``scratch``."""
    known = state.scratch[0]
    most = 0
    for r in range(state.counts[Count.OPEN]):
        known[r] = known_blocks(state, r, request, tokens, full)
        if owner != NONE and known[r] == full:
            known[r] += knows_part(state, r, owner, request.prompt_tokens)
        most = max(most, int(known[r]))
    return most


@compiled(ROUTE)
def route(state: State, slot: int, now_s):
    """Return a replica of the longest match, or that of the fewest queries."""
    request = state.requests[slot]
    chunk = int(state.settings[SETTING.chunk])
    tokens = chunk // CHARACTERS_PER_TOKEN
    full = common_blocks(state, request, tokens, request.prompt_tokens // tokens)
    owner = part_owner(state, request, tokens)
    queries = state.replicas.shape[0]
    most = _longest(state, request, tokens, full, owner)
    if most * chunk < state.settings[SETTING.match]:
        chosen = fewest_queries(state, queries, now_s, state.settings[SETTING.window])
    else:
        chosen = one_of_equals(state, state.counts[Count.OPEN], most)
    remember(state, chosen, request, tokens, full, now_s, True)
    if owner != NONE:
        remember_part(state, chosen, owner, request.prompt_tokens, now_s)
    if state.settings[SETTING.match] > 0:  # else nobody asks for them
        note_query(state, queries + chosen, now_s, state.settings[SETTING.window])
    return chosen
