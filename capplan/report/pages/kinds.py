"""What settings may name: LLMs, GPUs, workloads, policies; a list of each kind."""

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from capplan.errors import InputError, nearest
from capplan.fleet.catalog import gpu, gpu_names
from capplan.latency.engine_time import ENGINES
from capplan.llm.architecture import Architecture
from capplan.llm.catalog import llm, llm_names, published
from capplan.planning.systems import SYSTEMS
from capplan.report.columns import Column, column, format_count
from capplan.report.page import Page, Section, Table
from capplan.shipped import shipped
from capplan.simulator import (
    autoscalers,
    dispatchers,
    hand_offs,
    rebalancers,
    routers,
    schedulers,
)
from capplan.units import format_bytes
from capplan.workload import arrivals, predictors, readers
from capplan.workload.catalog import (
    read_provenance,
    read_yaml,
    shipped_workload_names,
)

SCHEMA = "capplan.list/1"


@dataclass(frozen=True)
class Kind:
    """A kind of names that settings take."""

    flag: str  # that takes such a name
    meaning: str
    names: Callable[[], Iterable[str]]
    rows: Callable[[], list[Any]]
    columns: tuple[Column, ...]


_NAME = column("name", "name", justify="left")
_WHAT = column("what", "what", justify="left", is_wide=True)


def _policies(package: Any, table: Mapping[str, str]) -> list[dict[str, str]]:
    """Return each policy with the first sentence of its file, which is not imported.

    To import one compiles it.
    """
    rows = []
    for name, module in table.items():
        spec = find_spec(f"{package.__name__}.{module}")
        assert spec is not None
        assert spec.origin is not None
        tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
        rows.append({"name": name, "what": _summary(ast.get_docstring(tree))})
    return rows


def _summary(text: str | None) -> str:
    """Return the first sentence of a docstring, without its verb and unit."""
    first = " ".join((text or "").partition("\n\n")[0].split())
    plain = re.sub(r"^Return | \[[^\]]*\]$|``", "", first)
    return plain[:1].upper() + plain[1:]


def _policy_kind(
    flag: str, meaning: str, package: Any, table: Mapping[str, str]
) -> Kind:
    return Kind(
        flag, meaning, lambda: table, partial(_policies, package, table), (_NAME, _WHAT)
    )


def _llms() -> list[dict[str, Any]]:
    return [_llm_row(llm(name)) for name in llm_names()]


def _llm_row(entry: Architecture) -> dict[str, Any]:
    found = published(entry.name)
    checkpoints = {} if found is None else dict(found.checkpoints)
    return {
        "name": entry.name,
        "parameter_count": entry.parameter_count,
        "active_parameter_count": entry.active_parameter_count,
        "weight_dtype": entry.weight_dtype,
        "weight_bytes": entry.weight_bytes(),
        "max_positions": entry.max_positions,
        "checkpoints": checkpoints,
        "checkpoint": checkpoints.get(entry.weight_dtype, ""),
    }


def _billions(count: float) -> str:
    return f"{count / 1e9:.3g} B"


_LLM_COLUMNS = (
    _NAME,
    column("parameter_count", "parameters", _billions),
    column("active_parameter_count", "active", _billions),
    column("weight_dtype", "weights", justify="left"),
    column("weight_bytes", "take", format_bytes),
    column("max_positions", "longest context", format_count),
    column("checkpoint", "on Hugging Face", justify="left", leaves=1),
)


def _tera(rate: float) -> str:
    return f"{format_count(float(f'{rate / 1e12:.3g}'))} T"


def _gpus() -> list[dict[str, Any]]:
    rows = (gpu(name) for name in gpu_names())
    return [{**vars(row), "vendor": row.vendor} for row in rows]


_GPU_COLUMNS = (
    _NAME,
    column("vendor", leaves=1),
    column("architecture", "architecture", justify="left"),
    column("memory_bytes", "memory", format_bytes),
    column("bandwidth_bytes_per_s", "bytes/s", _tera),
    column("bf16_flops", "BF16 FLOP/s", _tera),
    column("fp8_flops", "FP8", _tera),
    column("fp4_flops", "FP4", _tera),
    column("nvlink_bytes_per_s_per_direction"),
    column("max_gpus_per_node", "in a node"),
    column("tdp_w", "W", "{:g}".format),
    column("source"),
    column("confidence"),
)


def _workloads() -> list[dict[str, Any]]:
    rows = []
    for name in shipped_workload_names():
        path = shipped("workloads") / f"{name}.yaml"
        found = read_provenance(path)
        rows.append(
            {
                "name": name,
                "request_count": read_yaml(path).get("request_count"),
                "columns": ", ".join(found.columns),
                "what": found.source,
                "licence": found.licence,
            }
        )
    return rows


_WORKLOAD_COLUMNS = (
    _NAME,
    column("request_count", "requests", format_count),
    column("columns"),
    _WHAT,
    column("licence"),
)


def _predictors() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "what": _summary(row.predict.__doc__),
            "settings": f"{row.parameter}={row.default:g}" if row.parameter else "",
        }
        for name, row in predictors.PREDICTORS.items()
    ]


def _arrivals() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "what": _summary(row.arrive.__doc__),
            "settings": ", ".join(row.needs),
        }
        for name, row in arrivals.ARRIVALS.items()
    ]


def _systems() -> list[dict[str, Any]]:
    return [
        {"name": name, "scheduler": row.scheduler, "what": row.source}
        for name, row in SYSTEMS.items()
    ]


def _engines() -> list[dict[str, Any]]:
    return [{"name": name, "what": text} for name, text in ENGINES.items()]


_SETTINGS = column("settings", "settings", justify="left")

KINDS: Mapping[str, Kind] = {
    "llms": Kind("--llm", "LLMs of the catalog", llm_names, _llms, _LLM_COLUMNS),
    "gpus": Kind("--gpu", "GPU types", gpu_names, _gpus, _GPU_COLUMNS),
    "workloads": Kind(
        "--workload",
        "shipped workloads",
        shipped_workload_names,
        _workloads,
        _WORKLOAD_COLUMNS,
    ),
    "formats": _policy_kind("--reader", "formats of traces", readers, readers.READERS),
    "arrivals": Kind(
        "--arrivals",
        "arrival processes",
        lambda: arrivals.ARRIVALS,
        _arrivals,
        (_NAME, _WHAT, _SETTINGS),
    ),
    "predictors": Kind(
        "--predictor",
        "predictors of output lengths",
        lambda: predictors.PREDICTORS,
        _predictors,
        (_NAME, _WHAT, _SETTINGS),
    ),
    "engines": Kind(
        "--engine",
        "engines whose times were measured",
        lambda: ENGINES,
        _engines,
        (_NAME, _WHAT),
    ),
    "schedulers": _policy_kind(
        "--scheduler",
        "schedulers of a replica",
        schedulers,
        schedulers.SCHEDULERS,
    ),
    "routers": _policy_kind(
        "--router", "routers of arrivals", routers, routers.ROUTERS
    ),
    "dispatchers": _policy_kind(
        "--dispatcher",
        "dispatchers, in place of a router",
        dispatchers,
        dispatchers.DISPATCHERS,
    ),
    "rebalancers": _policy_kind(
        "--rebalancer",
        "rebalancers between replicas",
        rebalancers,
        rebalancers.REBALANCERS,
    ),
    "hand-offs": _policy_kind(
        "--hand-off",
        "hand-offs between pools for prompts and for decoding",
        hand_offs,
        hand_offs.HAND_OFFS,
    ),
    "autoscalers": _policy_kind(
        "--policies", "autoscalers", autoscalers, autoscalers.AUTOSCALERS
    ),
    "systems": Kind(
        "--systems",
        "published serving systems",
        lambda: SYSTEMS,
        _systems,
        (_NAME, column("scheduler", "scheduler", justify="left"), _WHAT),
    ),
}
"""Kinds of names, in the order in which a user meets their flags."""


@cache
def names_of(kind: str) -> tuple[str, ...]:
    """Return the names of a kind."""
    return tuple(KINDS[kind].names())


def kind_page(kind: str) -> Page:
    """Return all names of a kind with what they stand for."""
    if kind not in KINDS:
        raise InputError(
            f"{kind!r} is no kind of names{nearest(kind, KINDS)}; "
            f"expected one of {', '.join(KINDS)}"
        )
    found = KINDS[kind]
    rows = found.rows()
    table = Table(found.columns, rows, is_whole=True)
    return Page(
        kind,
        f"{len(rows)} {found.meaning}",
        f"for {found.flag}",
        [Section(tables=[table])],
        values=lambda: {"schema": SCHEMA, "kind": kind, "items": rows},
        csv={f"{kind}.csv": table},
    )


def kinds_page() -> Page:
    """Return the kinds, with the flag that takes a name of each and how many it has."""
    rows = [
        {
            "kind": kind,
            "flag": found.flag,
            "count": len(names_of(kind)),
            "what": found.meaning,
        }
        for kind, found in KINDS.items()
    ]
    columns = (
        column("kind", "kind", justify="left"),
        column("flag", "for", justify="left"),
        column("count", "names"),
        _WHAT,
    )
    table = Table(columns, rows, is_whole=True)
    return Page(
        "kinds",
        f"{len(rows)} kinds of names",
        "capplan list KIND shows those of one",
        [Section(tables=[table])],
        values=lambda: {"schema": SCHEMA, "kinds": rows},
        csv={"kinds.csv": table},
    )
