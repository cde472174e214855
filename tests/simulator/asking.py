"""A router asked outright: replicas that stand as the test says, one arrival a time."""

from worked import TABLES, engine

from capplan.simulator.routers import parse_router
from capplan.simulator.routers import router as find_router
from capplan.simulator.state import ROUTER_SETTINGS, Count
from tests.deployments import fleet_of
from tests.simulator.drivers.doors import Pool


class Asked:
    """A router before replicas that serve nothing."""

    def __init__(self, router, replicas=2):
        self.policy = parse_router(router)
        self.pool = Pool(fleet_of(TABLES, engine(), replicas, router=router))
        self.state = self.pool.state
        self.route = find_router(self.policy.name).route

    def set(self, name, value):
        """Change a setting."""
        index = list(self.policy.rules.settings).index(name)
        self.state.settings[ROUTER_SETTINGS + index] = value

    def ask(self, prompt, shared=0, *, loads=None, at_s=0.0, draw=0.0, **columns):
        """Return the replica of a prompt; the first tokens shared are of group 0."""
        state = self.state
        request = {"prefix_group": 0 if shared else -1, "session": -1, **columns}
        request |= {"prompt_tokens": prompt, "prefix_tokens": shared}
        for name, value in request.items():
            state.requests[name][0] = value
        if loads is not None:
            state.replicas["outstanding"] = state.replicas["seen_waiting"] = loads
        state.draws[0] = draw
        r = self.route(state, 0, at_s)
        state.counts[Count.ROUTED] += 1
        return r
