"""Policies between replicas, as a deployment names them: checked, and set."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from capplan.deployment.policy import Policy
from capplan.deployment.pools import Deployment
from capplan.simulator.dispatchers import dispatcher, parse_dispatcher
from capplan.simulator.fleet.motion import (
    APART,
    DISPATCHER_SETTINGS,
    Motion,
    Setting,
    never,
)
from capplan.simulator.fleet.serving_pool import ServingPool
from capplan.simulator.hand_offs import hand_off, parse_hand_off
from capplan.simulator.rebalancers import parse_rebalancer, rebalancer
from capplan.simulator.schedulers.v1_policy import v1_policy
from capplan.simulator.state import HAND_OFF_SETTINGS, Needs


class Between(NamedTuple):
    """Compiled policies between replicas."""

    rebalance: Callable[..., int]
    where: Callable[..., int]
    dispatch: Callable[..., int]


def between(
    deployment: Deployment, pools: Sequence[ServingPool], motion: Motion
) -> Between:
    """Return the policies of a deployment; set what the core reads of them."""
    rebalance = where = dispatch = never  # one pool asks no ``where``
    if len(deployment.pools) > 1:
        where = _set_hand_off(deployment, pools[0], pools[1], motion)
    if deployment.rebalancer:
        rebalance = _set_rebalancer(deployment, motion)
    if deployment.dispatcher:
        dispatch = _set_dispatcher(deployment, pools[0], motion)
    return Between(rebalance, where, dispatch)


def pulling_policy(deployment: Deployment) -> Policy:
    """Return the scheduler of the decode pool."""
    policy = parse_hand_off(deployment.hand_off)
    file = hand_off(policy.name)
    block_s = policy.settings["block"] or deployment.block_copy_s
    values = {
        "block_s": block_s / file.SPEED_UP,
        "handshake_s": policy.settings["handshake"],
        "recomputes": float(file.RECOMPUTES),
        "launches": _launches(policy),
    }
    engine = deployment.pools[1].configuration.engine
    return v1_policy(engine, values, pulls=True)


def _launches(hand_off: Policy) -> float:
    """Return 1 where copies are looked for when an iteration starts, else 0."""
    return float(hand_off.settings.get("report", 1.0) == 0.0)


def _set_hand_off(
    deployment: Deployment, first: ServingPool, second: ServingPool, motion: Motion
) -> Callable[..., int]:
    policy = parse_hand_off(deployment.hand_off)
    file = hand_off(policy.name)
    values = policy.values
    second.state.settings[HAND_OFF_SETTINGS : HAND_OFF_SETTINGS + len(values)] = values
    own = motion.settings
    own[Setting.COUPLES] = APART
    own[Setting.HOP_S] = policy.settings["hop"] + second.tables.request_s
    own[Setting.HOP_TOKEN_S] = first.tables.prompt_token_s
    own[Setting.AT_ARRIVAL] = int(file.AT_ARRIVAL)
    own[Setting.RECOMPUTES] = int(file.RECOMPUTES)
    own[Setting.LAUNCHES] = _launches(policy)
    where: Callable[..., int] = file.where
    return where


def _set_rebalancer(deployment: Deployment, motion: Motion) -> Callable[..., int]:
    policy = parse_rebalancer(deployment.rebalancer)
    settings = policy.settings
    if not settings["block"]:
        settings["block"] = deployment.block_copy_s
    motion.settings[: len(settings)] = list(settings.values())
    motion.settings[Setting.PERIOD_S] = settings["period"]
    rebalance: Callable[..., int] = rebalancer(policy.name).rebalance
    return rebalance


def _set_dispatcher(
    deployment: Deployment, pool: ServingPool, motion: Motion
) -> Callable[..., int]:
    from capplan.simulator.routers import aladdin_best_fit as best_fit

    policy = parse_dispatcher(deployment.dispatcher)
    settings = policy.settings
    last = DISPATCHER_SETTINGS + len(settings)
    motion.settings[DISPATCHER_SETTINGS:last] = policy.values
    motion.settings[Setting.BEAT_S] = settings["beat"]
    pool.needs = int(Needs.NOTHING)  # its router is never asked
    for name, place in best_fit.SETTING._asdict().items():
        pool.state.settings[place] = settings[name]
    dispatch: Callable[..., int] = dispatcher(policy.name).dispatch
    return dispatch
