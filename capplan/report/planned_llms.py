"""LLMs from their plan.json: replicas, prices, and the hours of their traces."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from capplan.errors import InputError
from capplan.fleet.price import Price
from capplan.planning.demand_curve import DemandCurve, curve_of_trace, shows_a_day
from capplan.planning.planned_llm import PlannedLlm, PlannedPool
from capplan.planning.replicas_by_hour import WINDOW_S
from capplan.planning.setting_groups import MOST_REPLICAS
from capplan.planning.traffic import read_traffic
from capplan.planning.traffic_settings import TrafficSettings
from capplan.report.plan_document import (
    plan_path,
    read_plan,
    refuse_changed,
    settings_now,
)
from capplan.units import format_duration

_MOST_GPUS = 1024
"""GPUs of a replica or a node; none has more."""
_OF_A_PRICE = ("source", "as_of", "note", "kind", "provider", "node")


def planned_llms(paths: Sequence[Path]) -> list[PlannedLlm]:
    """Return the LLMs of plans, each with a name of its own.

    Raises
    ------
    InputError
        When a plan is infeasible, was changed after it was made, or is given twice.
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
            twice = (
                "is given twice"
                if seen[digest] == path
                else (f"is the same plan as {seen[digest]}")
            )
            raise InputError(f"{path}: {twice}; give each LLM's plan once")
        seen[digest] = path
        documents.append(document)
    names = _names(documents, files)
    return [
        _planned(name, document, path)
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


def _planned(name: str, document: Mapping[str, Any], path: Path) -> PlannedLlm:
    best = document["best"]
    try:
        pools = tuple(_pool(block) for block in best.get("pools") or [best])
    except (LookupError, TypeError, AttributeError, ValueError) as problem:
        raise InputError(
            f"{path}: its best is malformed: {problem}; plan again"
        ) from None
    curve, why = _curve(document, path)
    return PlannedLlm(name, str(path), pools, curve, why)


def _pool(block: Mapping[str, Any]) -> PlannedPool:
    gpu = block["gpu"]
    if not isinstance(gpu, str):
        raise ValueError(f"gpu is {gpu!r}; expected a name")
    if not gpu:
        raise ValueError("it names no GPU type")
    return PlannedPool(
        str(block.get("role") or ""),
        gpu,
        _whole(block, "tp", _MOST_GPUS),
        _whole(block, "replica_count", MOST_REPLICAS),
        _price(block.get("price")),
    )


def _price(block: Any) -> Price | None:
    if block is None:
        return None
    usd = _number(block, "usd_per_gpu_h", 0.0, 1e6)
    if not usd:
        raise ValueError(f"usd_per_gpu_h is {usd!r}; expected more than 0")
    texts = {name: block.get(name, "") for name in _OF_A_PRICE if name in block}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise ValueError(f"{name} is {text!r}; expected a text")
    size = block.get("gpus_per_node")
    return Price(
        usd_per_gpu_h=usd,
        gpus_per_node=None
        if size is None
        else _whole(block, "gpus_per_node", _MOST_GPUS),
        is_guess=block.get("is_guess") is True,
        is_stale=block.get("is_stale") is True,
        **{"source": "", **texts},
    )


def _whole(block: Mapping[str, Any], name: str, most: int) -> int:
    value = block[name]
    if type(value) is not int or not 1 <= value <= most:
        raise ValueError(f"{name} is {value!r}; expected 1 to {most}")
    return value


def _number(
    block: Mapping[str, Any], name: str, least: float, most: float
) -> float | None:
    value = block.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is {value!r}; expected a number")
    if not (math.isfinite(value) and least <= value <= most):
        raise ValueError(f"{name} is {value}; expected {least:g} to {most:g}")
    return float(value)


def _curve(document: Mapping[str, Any], path: Path) -> tuple[DemandCurve | None, str]:
    """Return the rates of the hours of a plan's trace, or why it has none."""
    settings, _ = settings_now(document, path, None)
    if document.get("asked_by"):
        return None, "its users ask when they are answered"
    if settings.get("arrivals") is not None:
        return None, f"its arrivals are drawn at one rate ({settings['arrivals']})"
    if settings.get("rate") is not None:
        return None, "its plan has one --rate"
    trace = settings.get("trace")
    if trace is not None and not Path(str(trace)).exists():
        return None, f"its trace {trace} is not there"
    fields = TrafficSettings.model_fields
    asked = {name: value for name, value in settings.items() if name in fields}
    try:
        traffic = TrafficSettings(**asked)
        load = read_traffic(traffic, np.random.default_rng(traffic.seed))
    except InputError as problem:
        raise InputError(f"{path}: its requests: {problem}") from None
    read, arrival_s = load.base, load.base.arrival_s
    if load.process is not None or arrival_s is None:
        return None, "its requests have no times"
    planned_s = document.get("duration_s")
    lasts_s = float(np.ptp(arrival_s))
    as_read = not (settings.get("extend") or settings.get("drop_oversized"))
    if as_read and (document.get("request_count"), planned_s) != (
        len(read),
        lasts_s,
    ):
        raise InputError(
            f"{path}: its trace has {len(read):,} requests over "
            f"{format_duration(lasts_s)}, not those of the plan; plan again"
        )
    if not shows_a_day(arrival_s, WINDOW_S):
        lasts = format_duration(lasts_s)
        return None, f"its requests arrive within {lasts}, less than a day"
    return curve_of_trace(read, WINDOW_S), ""
