"""Deployments as settings name them: pools, what moves between them, what changes."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from capplan.deployment.changes import (
    MONTH_S,
    Absence,
    Change,
    interruptions,
    outage,
    parse_absence,
    parse_loss_per_month,
    rolling_update,
)
from capplan.deployment.cold_start import ColdStart, parse_cold_start_s
from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import Counts, Deployment, Pool
from capplan.errors import InputError, placed, warn
from capplan.fleet.catalog import gpu, gpu_names
from capplan.planning.configure.configuration import only_configuration
from capplan.planning.money.cost import at_one_provider, nodes_of
from capplan.planning.settings.fleet import (
    DEFAULT_HAND_OFF,
    LossSettings,
    OrderSettings,
)
from capplan.planning.settings.plan import FleetSettings, PlanSettings, SimulateSettings
from capplan.simulator.autoscalers import parse_autoscaler
from capplan.units import format_duration
from capplan.workload.trace import Trace

DEFAULT_ROUTER = "jsq"
STICKY_ROUTER = "session"
"""That of conversations, whose replica has their KV."""

Apart = TypeVar("Apart", SimulateSettings, PlanSettings)
_MANY_LOSSES = 10
"""Interruptions from which a simulation shows what they do."""
_OUTAGE_S = 3600.0


def one_pool(
    settings: FleetSettings,
    configuration: Configuration,
    replica_count: int,
    router: str = "",
) -> Deployment:
    """Return a deployment of one pool."""
    return Deployment(
        (Pool(configuration, replica_count),),
        router or settings.router or DEFAULT_ROUTER,
        dispatcher=settings.dispatcher or "",
        rebalancer=settings.rebalancer or "",
        link_gb_per_s=link_gb_per_s(settings, [configuration]),
    )


def link_gb_per_s(
    settings: FleetSettings, configurations: Sequence[Configuration]
) -> float | None:
    """Return the bandwidth of a GPU to those of other replicas; None: not known.

    The user's, else that of the GPUs' network, of several the slowest. [GB/s]
    """
    if settings.link_gb_per_s is not None:
        return settings.link_gb_per_s
    listed = gpu_names()
    rates = [
        gpu(each.gpu).network_bytes_per_s_per_direction if each.gpu in listed else None
        for each in configurations
    ]
    known = [rate for rate in rates if rate is not None]
    return min(known) / 1e9 if len(known) == len(rates) else None


def of_pools(
    settings: SimulateSettings, configuration: Configuration
) -> list[Configuration]:
    """Return what the replicas of each pool are; one where they are alike."""
    tp = None if configuration.layout.dp > 1 else configuration.tp
    if len(settings.prefill_gpu) > 1:
        names = ",".join(settings.prefill_gpu)
        raise InputError(f"--prefill-gpu {names}: expected one GPU type to simulate")
    if settings.prefill_tp in (None, tp) and not settings.prefill_gpu:
        return [configuration]
    prompts = only_configuration(of_prompts(settings))
    if prompts.gpu == configuration.gpu:
        return [prompts, configuration]
    with placed(f"--prefill-gpu {prompts.gpu}"):
        return on_two_types(prompts, configuration)


def on_two_types(
    prompts: Configuration, decoding: Configuration
) -> list[Configuration]:
    """Return what computes prompts on one GPU type and decodes on another.

    Their nodes are bought of one provider. vLLM's NIXL connector refuses KV of another
    type or attention backend (``compute_nixl_compatibility_hash``), and of other
    blocks.

    Raises
    ------
    InputError
        No KV can be copied from one to the other.
    """
    pair = prompts, decoding
    makers = {row.replica.gpu.vendor for row in pair if row.replica is not None}
    if len(makers) > 1:
        raise InputError(
            f"no attention backend runs on both {prompts.gpu} and {decoding.gpu}"
        )
    told = [
        f"{row.kv_dtype or 'of unknown type'}, {row.engine.block_size} tokens a block"
        for row in pair
    ]
    if told[0] != told[1]:
        raise InputError(
            f"KV of {prompts.gpu} is {told[0]}, of {decoding.gpu} {told[1]}"
        )
    bought = at_one_provider(pair)
    if not bought:
        raise InputError(
            f"no provider sells {prompts.gpu} and {decoding.gpu}, and KV would leave "
            "its network; give --price of both"
        )
    return bought


def of_prompts(settings: Apart) -> Apart:
    """Return the settings of replicas for prompts whose GPU or TP degree is given.

    Ranks and their experts are those of decoding: prompts are on TP alone beside them.
    """
    update: dict[str, object] = {"gpu": settings.prefill_gpu or settings.gpu}
    if settings.prefill_tp is not None:
        update["tp"] = (settings.prefill_tp,)
        if settings.may_have_ranks:
            update |= {"data_parallel_size": (1,), "enable_expert_parallel": False}
    return settings.model_copy(update=update)


def two_pools(
    settings: SimulateSettings | PlanSettings,
    of: Sequence[Configuration],
    replica_counts: Counts,
    router: str = "",
) -> Deployment:
    """Return a deployment of replicas for prompts and for decoding.

    ``of`` is what they are, see :func:`of_pools`.
    """
    prompts, decoding = replica_counts
    return Deployment(
        (Pool(of[0], prompts), Pool(of[-1], decoding)),
        router or settings.router or DEFAULT_ROUTER,
        decode_router=settings.decode_router or "",
        hand_off=settings.hand_off or DEFAULT_HAND_OFF,
        link_gb_per_s=link_gb_per_s(settings, of),
    )


def of_counts(
    settings: SimulateSettings | PlanSettings,
    of: Sequence[Configuration],
    counts: Counts,
    router: str = "",
) -> Deployment:
    """Return a deployment of so many replicas: one pool, or those of two."""
    if len(counts) > 1:
        return two_pools(settings, of, counts, router)
    return one_pool(settings, of[0], counts[0], router)


def simulated(
    settings: SimulateSettings, of: Sequence[Configuration], trace: Trace | None
) -> Deployment:
    """Return the deployment to simulate; with what changes while a trace is served.

    ``of`` is what its replicas are, see :func:`of_pools`.
    """
    if settings.prefill_replicas is not None and settings.decode_replicas is not None:
        counts = settings.prefill_replicas, settings.decode_replicas
        return two_pools(settings, of, counts)
    deployment = one_pool(settings, of[0], settings.replicas)
    if trace is not None:
        autoscaler, seed = settings.autoscaler or "", settings.seed
        deployment = changing(settings, deployment, trace, autoscaler, seed)
    alone = deployment.replica_count == 1 and not deployment.is_changing
    if settings.rebalancer and alone:
        warn(f"rebalancer {settings.rebalancer} has nothing to do on one replica")
    return deployment


def cold_start_of(settings: OrderSettings, configuration: Configuration) -> float:
    """Return the time from a replica's order to its first request. [s]"""
    if settings.cold_start is not None:
        return parse_cold_start_s(settings.cold_start)
    return assumed_cold_start(configuration).cold_start_s


def assumed_cold_start(configuration: Configuration) -> ColdStart:
    """Return the cold start of a replica by its parts, as they are assumed."""
    assumed = configuration.cold_start
    if assumed is None:
        raise InputError(
            "the weights of a replica are not known, which its cold start depends on; "
            "give --cold-start TIME"
        )
    return assumed


def changing(
    settings: LossSettings,
    deployment: Deployment,
    trace: Trace,
    autoscaler: str,
    seed: int,
) -> Deployment:
    """Return a deployment of one pool with what it loses, and its autoscaler."""
    changes: list[Change] = []
    count, arrival_s = deployment.pool.replica_count, trace.arrival_s
    if autoscaler or settings.spot:
        cold_start_s = cold_start_of(settings, deployment.pool.configuration)
        deployment = replace(
            deployment, autoscaler=autoscaler, cold_start_s=cold_start_s
        )
    if not (settings.outage or settings.rolling_update or settings.spot or autoscaler):
        return deployment
    assert arrival_s is not None  # ``conflicts.csv``: users do not go with these
    _check_times(settings, deployment, arrival_s)
    for text in settings.outage:
        absence = absence_of(text, deployment)
        changes += outage(absence, arrival_s, comes_back=not autoscaler)
        if absence.count > count and not autoscaler:
            raise InputError(
                f"--outage {text}: {absence.count} replicas die of {count}; expected "
                "no more than there are"
            )
    if settings.rolling_update:
        absence = absence_of(settings.rolling_update, deployment)
        changes += rolling_update(absence, arrival_s, count)
    if settings.spot:
        most = parse_autoscaler(autoscaler).settings["max"] if autoscaler else count
        back_after_s = None if autoscaler else deployment.cold_start_s
        loss, rng = (
            parse_loss_per_month(settings.spot),
            np.random.default_rng((seed, 8)),
        )
        lost = interruptions(loss, arrival_s, int(most), back_after_s, rng)
        changes += lost
        if not autoscaler:
            _warn_of_few(settings.spot, loss, lost, arrival_s, count)
    return replace(deployment, changes=tuple(changes))


def absence_of(text: str, deployment: Deployment) -> Absence:
    """Return an absence of replicas; of nodes that of all replicas packed on them."""
    absence, count = parse_absence(text), deployment.pool.replica_count
    if not absence.is_of_nodes:
        return absence
    size = node_gpus(deployment)
    if size is None:
        raise InputError(f"{text!r}: the size of a node is not known; give --nodes")
    fit = max(1, size // deployment.pool.configuration.gpus)
    lost, nodes = absence.count * fit, math.ceil(count / fit)
    if deployment.autoscaler:  # of these die that are there
        return replace(absence, count=lost, is_of_nodes=False)
    if absence.count > nodes:
        raise InputError(
            f"{text!r}: the {count} replicas are on {nodes} nodes; expected no more"
        )
    return replace(absence, count=min(lost, count), is_of_nodes=False)


def node_gpus(deployment: Deployment) -> int | None:
    """Return the GPUs of the largest node that is paid for; None: not known."""
    sizes = [row.gpus_per_node for row in nodes_of(deployment.pools) or ()]
    return max(filter(None, sizes), default=None)


def _warn_of_few(
    spot: str,
    loss_per_month: float,
    lost: Sequence[Change],
    arrival_s: np.ndarray,
    replica_count: int,
) -> None:
    """Warn of a trace in which few interruptions come, or none."""
    lasts_s = float(arrival_s[-1] - arrival_s[0])
    expected = loss_per_month * replica_count * lasts_s / MONTH_S
    drawn = sum(change.kind == "fail" for change in lost)
    if expected >= _MANY_LOSSES:
        return
    warn(
        f"--spot {spot}: too few interruptions to judge by ({drawn} drawn, "
        f"{expected:.3g} expected in {format_duration(lasts_s)}); --outage 1@peak:"
        f"{format_duration(_OUTAGE_S).replace(' ', '')} simulates one at the worst time"
    )


def _check_times(
    settings: LossSettings, deployment: Deployment, arrival_s: np.ndarray
) -> None:
    """Refuse what would begin, or be ready, after the last arrival."""
    lasts_s = float(arrival_s[-1] - arrival_s[0])
    lasts = format_duration(lasts_s)
    if deployment.cold_start_s > lasts_s:
        raise InputError(
            f"a cold start takes {format_duration(deployment.cold_start_s)}, and the "
            f"requests arrive within {lasts}; expected a longer trace, or --cold-start"
        )
    absences = [("outage", text) for text in settings.outage]
    if settings.rolling_update:
        absences.append(("rolling-update", settings.rolling_update))
    for flag, text in absences:
        since_s = parse_absence(text).since_s
        if since_s is not None and since_s > lasts_s:
            raise InputError(
                f"--{flag} {text} begins after the requests, which arrive within "
                f"{lasts}"
            )
