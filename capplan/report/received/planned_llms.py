"""LLMs from their plan.json: replicas, prices, and the hours of their traces."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from capplan.errors import InputError, placed
from capplan.fleet.price import Price
from capplan.input_file import named_sha256
from capplan.planning.load.demand_curve import DemandCurve, curve_of_trace, shows_a_day
from capplan.planning.load.traffic import read_traffic
from capplan.planning.settings.plan import PlanSettings
from capplan.planning.settings.traffic import TrafficSettings
from capplan.planning.shared_fleet.planned_llm import PlannedLlm, PlannedPool
from capplan.planning.shared_fleet.replicas_by_hour import WINDOW_S
from capplan.planning.shared_fleet.result import SharedFleet
from capplan.planning.shared_fleet.settings import SharedFleetSettings
from capplan.planning.shared_fleet.share_nodes import share_nodes
from capplan.report.received.allowed import NotThereError, received
from capplan.report.received.plan_document import plan_path, read_plan, refuse_changed
from capplan.report.received.plan_record import Count, Record, checked
from capplan.units import format_duration

_MOST_GPUS = 1024
"""GPUs of a replica or a node; none has more."""

Gpus = Annotated[int, Field(ge=1, le=_MOST_GPUS)]


class _Price(Record):
    asked: Annotated[list["_Price"], Field(default_factory=list)]
    nvlink_domain_gpus: Gpus | None = None
    usd_per_gpu_h: Annotated[float, Field(gt=0, le=1e6)]
    source: str = ""
    as_of: str = ""
    note: str = ""
    kind: str = "on-demand"
    provider: str = ""
    node: str = ""
    gpus_per_node: Gpus | None = None
    is_guess: bool = False
    is_stale: bool = False


class _Pool(Record):
    role: str = ""
    gpu: Annotated[str, Field(min_length=1)]
    tp: Gpus
    gpus_per_replica: Gpus | None = None  # an earlier release has TP alone
    replica_count: Count
    price: _Price | None = None


class _Best(Record):
    pools: list[_Pool] | None = None


def share_planned(settings: SharedFleetSettings) -> SharedFleet:
    """Return the LLMs of the plans that settings name, on shared nodes."""
    paths = [Path(plan) for plan in settings.plans]
    return share_nodes(planned_llms(paths, settings.trace), settings)


def planned_llms(paths: Sequence[Path], traces: Sequence[str] = ()) -> list[PlannedLlm]:
    """Return the LLMs of plans, each with a name of its own.

    ``traces`` are files that plans may be of, in place of those beside them.
    """
    if not paths:
        raise InputError("no plan is given; expected plan.json of each LLM")
    files = [plan_path(path) for path in paths]
    documents: list[dict[str, Any]] = []
    seen: dict[str, Path] = {}
    for path in files:
        document = _read(path)
        digest = str(document["certificate"]["document_digest"])
        if digest in seen:
            is_same = seen[digest] == path
            twice = "given twice" if is_same else f"the same plan as {seen[digest]}"
            raise InputError(f"{path}: is {twice}; give each LLM's plan once")
        seen[digest] = path
        documents.append(document)
    known = {str(named_sha256(trace)): trace for trace in traces}
    stated = {document.get("trace_sha256") for document in documents}
    for sha256, trace in known.items():
        if sha256 not in stated:
            raise InputError(f"{trace}: no plan states its SHA-256; leave it out")
    names = _names(documents, files)
    return [
        _planned(name, document, path, known)
        for name, document, path in zip(names, documents, files, strict=True)
    ]


def _read(path: Path) -> dict[str, Any]:
    """Return the document of a plan that has an answer, as it was sealed."""
    document = read_plan(path)
    if document.get("best") is None:
        reason = document.get("infeasible_reason") or document.get("status")
        raise InputError(
            f"{path}: the plan has no feasible candidate ({reason}); leave it out"
        )
    if document.get("interrupted"):
        raise InputError(f"{path}: the plan was interrupted; plan again")
    refuse_changed(path, document)
    return document


def _names(documents: Sequence[Mapping[str, Any]], paths: Sequence[Path]) -> list[str]:
    """Return a name of each LLM: its own, or with its folder where that is not one."""
    names = [str(document.get("llm") or "").strip() for document in documents]
    counts = Counter(names)
    found: list[str] = []
    for name, path in zip(names, paths, strict=True):
        folder = path.resolve().parent.name or path.stem
        own = name if name and counts[name] == 1 else f"{name} {folder}".strip()
        number, unique = 2, own
        while unique in found:
            unique, number = f"{own} {number}", number + 1
        found.append(unique)
    return found


def _planned(
    name: str, document: Mapping[str, Any], path: Path, traces: Mapping[str, str]
) -> PlannedLlm:
    of = document["best"]
    best = checked(path, "best.", _Best, of)
    records = best.pools or [checked(path, "best.", _Pool, {**of, "role": ""})]
    pools = tuple(
        PlannedPool(
            each.role,
            each.gpu,
            each.tp,
            each.replica_count,
            None if each.price is None else Price.read(each.price.model_dump()),
            each.gpus_per_replica or each.tp,
        )
        for each in records
    )
    curve, why = _curve(document, path, traces)
    return PlannedLlm(name, str(path), pools, curve, why)


def _curve(
    document: Mapping[str, Any], path: Path, traces: Mapping[str, str]
) -> tuple[DemandCurve | None, str]:
    """Return the rates of the hours of a plan's trace, or why it has none."""
    settings = document["settings"]
    if document.get("asked_by"):
        return None, "its users ask when they are answered"
    if settings.get("arrivals") is not None:
        return None, f"its arrivals are drawn at one rate ({settings['arrivals']})"
    if settings.get("rate") is not None:
        return None, "its plan has one --rate"
    trace = traces.get(str(document.get("trace_sha256")))
    given = {} if trace is None else {"trace": trace}
    others = frozenset(settings.keys() - TrafficSettings.model_fields.keys())
    try:
        asked, _ = received(document, path, PlanSettings, given, without=others)
    except NotThereError as why:
        return None, str(why)
    with placed(f"{path}: its requests"):
        traffic = TrafficSettings(**asked)
        load = read_traffic(traffic, np.random.default_rng(traffic.seed))
    read, arrival_s = load.base, load.base.arrival_s
    if load.process is not None or arrival_s is None:
        return None, "its requests have no times"
    if not shows_a_day(arrival_s, WINDOW_S):
        lasts = format_duration(float(np.ptp(arrival_s)))
        return None, f"its requests arrive within {lasts}, less than a day"
    return curve_of_trace(read, WINDOW_S), ""
