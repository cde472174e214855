"""How fast fleets in motion are simulated: ``pytest -m bench -s tests/bench``.

Beside the open loop of the same requests in the same run; asserts no time.
"""

from dataclasses import replace

import numpy as np
import pytest

from capplan.deployment.pools import Deployment
from capplan.simulator.simulate import simulate
from capplan.workload.users import Users
from tests.bench.test_simulator_speed import (
    LIMITS,
    TABLES,
    capacity_per_s,
    seconds,
    sharegpt,
)
from tests.deployments import fleet_of

pytestmark = pytest.mark.bench

REQUESTS = 200_000


def users(count: int, n: int):
    requests = replace(sharegpt(n, 1.0), arrival_s=None)
    return Users(count, 10.0, True).asking(requests, np.random.default_rng(0))


def test_speeds_of_fleets_in_motion():
    rate_per_s = 0.7 * capacity_per_s(LIMITS)
    cases = {}
    for replicas in (8, 16):
        fleet = fleet_of(TABLES, LIMITS, replicas)
        trace = sharegpt(REQUESTS, rate_per_s * replicas)
        cases[f"open loop, {replicas} replicas"] = (trace, fleet)
        if replicas == 8:
            asking = users(int(8 * rate_per_s * 14), REQUESTS)
            cases["users, 8 replicas"] = (asking, fleet)
        for theta in (3, 60):
            text = f"llumnix:theta={theta},block=1ms"
            moving = replace(fleet, rebalancer=text)
            cases[f"llumnix theta {theta}, {replicas} replicas"] = (trace, moving)
    for prefills, decodes in ((2, 6), (4, 12)):
        pools = (
            fleet_of(TABLES, LIMITS, prefills).pool,
            fleet_of(TABLES, LIMITS, decodes).pool,
        )
        apart = Deployment(pools, "jsq", hand_off="nixl:block=50us")
        trace = sharegpt(REQUESTS, rate_per_s * decodes)
        cases[f"{prefills} prefill and {decodes} decode replicas"] = (trace, apart)
    print("\n| case | requests/s | of the first |\n|---|---|---|")
    first = 0.0
    for name, (trace, fleet) in cases.items():
        took_s = seconds(lambda trace=trace, fleet=fleet: simulate(trace, fleet))
        speed = REQUESTS / took_s
        first = first or speed
        moved = simulate(trace, fleet).moved
        note = "" if moved is None else f" {len(moved):,} migrations"
        print(f"| {name}{note} | {speed:,.0f} | {speed / first:.2f} |")


def test_a_tick_of_the_rebalancer_on_64_replicas():
    rate_per_s = 0.5 * capacity_per_s(LIMITS)
    fleet = fleet_of(TABLES, LIMITS, 64)
    trace = sharegpt(100_000, rate_per_s * 64)
    took_s = {}
    for period in ("50ms", "25ms", "5ms"):
        text = f"llumnix:theta=-1000,block=1ms,period={period}"
        moving = replace(fleet, rebalancer=text)
        took_s[period] = seconds(lambda moving=moving: simulate(trace, moving))
    ticks = trace.duration_s / 0.005 - trace.duration_s / 0.025
    tick_us = (took_s["5ms"] - took_s["25ms"]) / ticks * 1e6
    print(f"\na tick on 64 replicas: {tick_us:.1f} us")
