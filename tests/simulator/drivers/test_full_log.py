"""An arrival waits while the log is emptied, and keeps the replica that was chosen."""

import pytest

from capplan.deployment.pools import Deployment
from capplan.simulator.fleet import pool_state
from capplan.simulator.laws.cases import draw
from capplan.simulator.routers import ROUTERS
from capplan.simulator.schedulers import parse_scheduler
from capplan.simulator.simulate import simulate


def replicas_of(case, router, **settings):
    fleet = Deployment.of(case.configuration, 3, router)
    return simulate(case.trace, fleet, slo=case.slo, **settings).times.replica.tolist()


@pytest.mark.parametrize("router", sorted(ROUTERS))
def test_an_arrival_that_waits_for_the_log_is_routed_once(router, monkeypatch):
    cases = [draw(parse_scheduler("vllm-v1"), seed) for seed in range(20)]
    silent = [replicas_of(case, router) for case in cases]
    monkeypatch.setattr(pool_state, "_LOG_ITERATIONS", 2)

    recorded = [replicas_of(case, router, record_iterations=True) for case in cases]

    assert recorded == silent
