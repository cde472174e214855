"""Replicas of one role, of which those that are open stand before a router."""

from judge import ROUTERS as ROUTERS_AT_REST
from judge_fleet_replica import FleetReplica, FleetRequest
from judge_llumnix import Seen, llumnix_router, seen_of
from judge_routers import REMEMBERING

from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import LatencyTables
from capplan.simulator.routers import parse_router
from capplan.workload.slo import RequestSlo

ROUTERS = ROUTERS_AT_REST | {"llumnix": llumnix_router}

PoolOf = tuple[LatencyTables, EngineSettings, str, int, str]
"""Tables, engine, scheduler, replicas, router (``llumnix:target=8,high=1`` too)."""


class FleetPool:
    """Replicas of one role and their router."""

    def __init__(self, given: PoolOf, seed: int, slo: RequestSlo, draws) -> None:
        self.tables, self.engine, self.scheduler, count, router = given
        self.seed, self.slo, self.draws = seed, slo, draws
        self.router, self.settings = _router(router)
        self.looks_every_s = self.settings.get("refresh", 0.0)
        self.replicas: list[FleetReplica] = []
        self.open: list[FleetReplica] = []
        self.routed = 0
        self.bring_up(count)

    def bring_up(self, count: int) -> None:
        for _ in range(count):
            index = len(self.replicas)
            own = index, self.seed, self.slo
            replica = FleetReplica(self.tables, self.engine, self.scheduler, *own)
            replica.seen_by_llumnix = Seen()
            self.replicas.append(replica)
            self.open.append(replica)

    def choose(self, request: FleetRequest, now_s: float) -> FleetReplica:
        if not self.looks_every_s:
            self.look(now_s)
        route, draw = ROUTERS[self.router], self.draws[request.row]
        place = route(
            self.open, self.routed, draw, request, now_s, self.slo, **self.settings
        )
        self.routed += 1
        return self.open[place]

    def look(self, now_s: float) -> None:
        for replica in self.open:
            replica.look(now_s)
            replica.seen_by_llumnix = seen_of(replica)


def _router(given: str) -> tuple[str, dict]:
    policy = parse_router(given)
    reads_settings = policy.name in (*REMEMBERING, "llumnix")
    return policy.name, policy.settings if reads_settings else {}
