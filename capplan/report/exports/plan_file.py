"""Read what a deployment takes from a plan.json, and check it there."""

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from capplan.bounds.certificate import CHANGED, is_as_sealed
from capplan.deployment.cold_start import ColdStart
from capplan.deployment.pools import DECODE, PREFILL
from capplan.engines.catalog import VLLM
from capplan.errors import InputError, placed
from capplan.input_file import read_text
from capplan.llm.catalog import published
from capplan.planning.autoscale.known_to_policies import ROOM, SHARE
from capplan.planning.configure.launch import YOURS, read_launch
from capplan.planning.evaluate.replica_load import ReplicaLoad
from capplan.planning.settings.groups import MOST_REPLICAS
from capplan.report import sentences
from capplan.report.columns import format_count, format_share
from capplan.report.exports.planned import (
    RANKS,
    REPOSITORY,
    STAGES,
    TP,
    Planned,
    PlannedPool,
)
from capplan.report.received.plan_document import plan_in, plan_path
from capplan.report.received.plan_record import Count, Record, checked
from capplan.units import format_duration

_EXPANDED = ("$", "{{")
"""What Kubernetes, Compose, a shell or Helm would expand in a word."""
_MOST_S = 30 * 86400.0
"""Time that a cold start, or a request, takes at most. [s]"""

Positive = Annotated[float, Field(ge=1e-9, le=1e18)]
Seconds = Annotated[float, Field(ge=0, le=_MOST_S)]


class _Price(Record):
    provider: str | None = None
    node: str | None = None
    gpus_per_node: Count | None = None


class _Engine(Record):
    max_num_seqs: Count


class _Parts(Record):
    node_s: Seconds
    image_s: Seconds
    weights_s: Seconds
    engine_s: Seconds
    assumed: list[str]


class _Pool(Record):
    role: Literal["", "prefill", "decode"] = ""
    gpu: str
    tp: Count
    gpus_per_replica: Count | None = None  # an earlier release has TP alone
    replica_count: Count
    price: _Price | None
    engine: _Engine
    launch_line: str | None
    launch_notes: list[str] | None
    weight_bytes: Positive | None
    cold_start: _Parts | None


class _Best(Record):
    pools: list[_Pool]
    replica_count: Count
    replica_count_range: Annotated[list[Count], Field(min_length=2)] | None = None
    cautious_replica_count: Count | None = None  # where latency is in doubt
    slo_attainment: Annotated[float, Field(ge=0, le=1)]
    e2e_p99_s: Seconds
    router: str


class _Carried(Record):
    rate_per_s: Positive
    in_flight: Positive
    replica_count: Count


class _Settings(Record):
    rebalancer: str | None = None


class _Plan(Record):
    llm: str
    settings: _Settings
    slo_text: str
    attainment_text: str
    trace_source: str
    rate_per_s: Positive
    mean_prompt_tokens: Positive
    mean_output_tokens: Positive
    replica_load: _Carried | None
    interrupted: bool


def infeasible_reason(document: Mapping[str, Any]) -> str | None:
    """Return why a plan has no deployment; None where it has one."""
    if document.get("best") is not None:
        return None
    status, reason = document.get("status"), document.get("infeasible_reason")
    return f"{status}: {reason or 'the plan has no deployment'}"


def read_planned(
    path: Path, checkpoint: str | None = None, cold_start_s: float | None = None
) -> Planned | str:
    """Return what a deployment takes from a plan; where it has none, why.

    ``checkpoint`` and ``cold_start_s`` are the user's, in place of the plan's. [s]
    """
    path = plan_path(path)
    text = read_text(path)
    document = plan_in(path, text)
    if (reason := infeasible_reason(document)) is not None:
        return reason
    _check_digest(path, document)
    plan = checked(path, "", _Plan, document)
    of = document["best"]
    best = checked(path, "best.", _Best, of)
    records = best.pools or [checked(path, "best.", _Pool, {**of, "role": ""})]
    roles = [each.role for each in records]
    if roles not in ([""], [PREFILL, DECODE]):
        raise InputError(
            f"{path}: best.pools are of {roles}; expected one for {PREFILL}, then one "
            f"for {DECODE}"
        )
    if checkpoint is not None and not REPOSITORY.fullmatch(checkpoint):
        raise InputError(f"--checkpoint {checkpoint}: expected ORGANISATION/NAME")
    pools = tuple(_pool(path, each, checkpoint, cold_start_s) for each in records)
    most = best.cautious_replica_count or best.replica_count
    known = best.replica_count_range or (best.replica_count, most)
    load = plan.replica_load
    return Planned(
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        path=str(path),
        is_fetched=checkpoint is not None or _is_named(plan.llm),
        pools=pools,
        router=best.router,
        rebalancer=plan.settings.rebalancer,
        rate_per_s=plan.rate_per_s,
        e2e_p99_s=best.e2e_p99_s,
        most_replicas=min(max(known[1], ROOM * best.replica_count), MOST_REPLICAS),
        sustained=None
        if load is None
        else ReplicaLoad(load.rate_per_s, load.in_flight, load.replica_count),
        assumed=_assumed(plan, best, pools),
    )


def _check_digest(path: Path, document: Mapping[str, Any]) -> None:
    """Refuse a plan that is not as it was sealed."""
    block = document.get("certificate")
    if not isinstance(block, Mapping):
        raise InputError(f"{path}: has no certificate; expected a plan of capplan plan")
    if not is_as_sealed(document):
        raise InputError(f"{path}: {CHANGED}; plan again")


def _pool(
    path: Path, record: _Pool, checkpoint: str | None, cold_start_s: float | None
) -> PlannedPool:
    if not record.launch_line:
        why = "; ".join(record.launch_notes or ()) or "no LLM is named; plan with --llm"
        raise InputError(f"{path}: no command starts its replicas: {why}")
    with placed(path):
        launch = read_launch(record.launch_line, tuple(record.launch_notes or ()))
    if launch.engine is not None and launch.engine is not VLLM:
        raise InputError(
            f"{path}: its replicas are of {launch.engine.title}; expected vLLM, of "
            "which capplan export writes deployments: plan without --engine"
        )
    if any(mark in word for word in launch.words for mark in _EXPANDED):
        raise InputError(f"{path}: its launch line holds {' or '.join(_EXPANDED)}")
    if launch.flags.get(TP) != str(record.tp):
        raise InputError(f"{path}: its launch line is not of its TP {record.tp}")
    gpus = record.gpus_per_replica or record.tp
    degrees = [launch.flags.get(flag, "1") or "" for flag in (TP, RANKS, STAGES)]
    if not all(map(str.isdecimal, degrees)) or math.prod(map(int, degrees)) != gpus:
        raise InputError(f"{path}: its launch line is not of its {gpus} GPUs")
    if checkpoint is not None:
        launch = launch.serving(checkpoint)
    elif launch.checkpoint == YOURS:
        why = "; ".join(launch.notes)
        raise InputError(f"{path}: {why}: give --checkpoint ORGANISATION/NAME")
    parts, price = record.cold_start, record.price or _Price()
    assumed: tuple[str, ...] = ()
    if cold_start_s is None:
        if parts is None:
            raise InputError(
                f"{path}: the cold start of its replicas is not known; give "
                "--cold-start TIME"
            )
        fields = parts.model_dump()
        assumed = tuple(fields.pop("assumed"))
        cold_start_s = ColdStart(**fields).cold_start_s
    return PlannedPool(
        role=record.role,
        gpu=record.gpu,
        gpus=gpus,
        replica_count=record.replica_count,
        node=" ".join(filter(None, (price.provider, price.node))),
        gpus_per_node=price.gpus_per_node,
        max_num_seqs=record.engine.max_num_seqs,
        launch=launch,
        weight_bytes=record.weight_bytes,
        cold_start_s=cold_start_s,
        assumed=assumed,
    )


def _is_named(llm: str) -> bool:
    """Return whether a plan's LLM is named, not a folder."""
    try:
        return published(llm) is not None
    except (InputError, OSError):  # a folder that is no longer there
        return False


def _assumed(
    plan: _Plan, best: _Best, pools: tuple[PlannedPool, ...]
) -> tuple[str, ...]:
    """Return what the plan rests on, a line each."""
    traffic = sentences.traffic(
        plan.rate_per_s, plan.mean_prompt_tokens, plan.mean_output_tokens
    )
    lines = [
        f"{traffic}, of {plan.trace_source}",
        f"SLO: {plan.slo_text}; {format_share(best.slo_attainment)} of requests in "
        f"time (simulated), asked {plan.attainment_text}",
    ]
    if plan.interrupted:
        lines.append("the plan was interrupted: a smaller one may do")
    for pool in pools:
        role = f" for {pool.role}" if pool.role else ""
        how = f", assumed: {', '.join(pool.assumed)}" if pool.assumed else ", given"
        lines.append(
            f"{sentences.plural(pool.replica_count, 'replica')}{role} of {pool.gpus} "
            f"{pool.gpu}, router {best.router}; cold start "
            f"{format_duration(pool.cold_start_s)}{how}"
        )
    if plan.replica_load is not None:
        load = plan.replica_load
        lines.append(
            "a replica at the edge of the SLO: "
            f"{format_count(load.rate_per_s)} requests/s, "
            f"{format_count(load.in_flight)} in flight (simulated, in a fleet of "
            f"{load.replica_count}); targets are {SHARE:g} of that"
        )
    lines += sorted({note for pool in pools for note in pool.launch.notes})
    return tuple(lines)
