"""Requests of a session to one replica, by a ring of hashes.

vLLM production-stack (a6c01db0), src/vllm_router/routers/routing_logic.py,
``SessionRouter``: the session goes to the next point of a hash ring; a request without
one goes to the engine with the fewest queries in the last 60 s, or to the first that
never had any. Here a request without a session is hashed by its prefix group, and the
points are those of ``replica-point``, since its engines have URLs.
"""

from capplan.deployment.policy import Knob, Rules, indices
from capplan.simulator.jit import compiled
from capplan.simulator.memory.hash_ring import place_of, replica_at
from capplan.simulator.memory.recent_queries import fewest_queries, note_query
from capplan.simulator.state import ROUTE, ROUTER_SETTINGS, Needs, State

NEEDS = Needs.NOTHING
RULES = Rules(
    {"window": Knob(60.0, 0, 86_400, is_duration=True)},
    remembers=1,
    rings=True,
    keyed=True,
)
WINDOW = ROUTER_SETTINGS + indices(RULES.settings).window
_SESSION, _GROUP = 1, 2  # salts


@compiled(ROUTE)
def route(state: State, slot: int, now_s):
    """Return the replica of the session; without one, that of the fewest queries."""
    request = state.requests[slot]
    if request.session >= 0:
        r = replica_at(state, place_of(request.session, _SESSION))
    elif request.prefix_group >= 0:
        r = replica_at(state, place_of(request.prefix_group, _GROUP))
    else:
        r = fewest_queries(state, 0, now_s, state.settings[WINDOW])
    note_query(state, r, now_s, state.settings[WINDOW])
    return r
