"""What settings may name: LLMs, GPUs, workloads, policies; a list of each kind."""

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from capplan.engines.catalog import ENGINES
from capplan.errors import InputError, nearest
from capplan.fleet.catalog import gpu, gpu_names
from capplan.fleet.nodes import nodes
from capplan.fleet.offer import KINDS as WAYS
from capplan.fleet.prices import catalog_offers
from capplan.llm.catalog import listed_names, llm, published
from capplan.planning.compare.systems import SYSTEMS
from capplan.report import exports
from capplan.report.columns import Column, format_count
from capplan.report.fields import fields
from capplan.report.kind_rows import KIND_ROWS
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
from capplan.workload import arrivals, predictors, readers
from capplan.workload.catalog import read_provenance, shipped_workload_names


class Kind(NamedTuple):
    """What lists a kind of names."""

    names: Iterable[str] | Callable[[], Iterable[str]]
    rows: Callable[[], list[Any]]
    columns: tuple[Column, ...]


NAMED = fields("list_named")
"""Columns that most lists have."""


def named_rows(
    table: Mapping[str, Any], **values: Callable[[Any], Any]
) -> Callable[[], list[dict[str, Any]]]:
    """Return what lists the names of a table, each with values of its row."""
    return lambda: [
        {"name": name} | {key: of(row) for key, of in values.items()}
        for name, row in table.items()
    ]


def summary(text: str | None) -> str:
    """Return the first sentence of a docstring, without its verb and unit."""
    first = " ".join((text or "").partition("\n\n")[0].split())
    plain = re.sub(r"^Return | \[[^\]]*\]$|``", "", first)
    return plain[:1].upper() + plain[1:] if first.startswith("Return ") else plain


def _gpus() -> list[dict[str, Any]]:
    rows = (gpu(name) for name in gpu_names())
    return [{**vars(row), "vendor": row.vendor} for row in rows]


def _nodes() -> list[dict[str, Any]]:
    asked = {
        (each.provider, each.node): each.usd_per_node_h
        for each in catalog_offers()
        if each.kind == "on-demand"
    }
    return [
        {**vars(row), "usd_per_h": asked.get((row.provider, row.name))}
        for row in nodes()
    ]


def _providers() -> list[dict[str, Any]]:
    offers = catalog_offers()
    return [
        {
            "name": name,
            "offer_count": sum(each.provider == name for each in offers),
            "gpus": sorted({each.gpu for each in offers if each.provider == name}),
            "as_of": max(each.as_of for each in offers if each.provider == name),
        }
        for name in _provider_names()
    ]


def _provider_names() -> list[str]:
    return sorted({each.provider for each in catalog_offers()})


HARDWARE: Mapping[str, Kind] = {
    "gpus": Kind(
        gpu_names,
        _gpus,
        fields(
            "list_gpus",
            tera=lambda rate: f"{format_count(float(f'{rate / 1e12:.3g}'))} T",
        ),
    ),
    "nodes": Kind(
        lambda: dict.fromkeys(row.name for row in nodes()), _nodes, fields("list_nodes")
    ),
    "providers": Kind(
        _provider_names,
        _providers,
        fields("list_providers", gpus=lambda row: ", ".join(row["gpus"])),
    ),
    "ways-to-pay": Kind(WAYS, named_rows(WAYS, what=str), NAMED),
}


SCHEMA = "capplan.list/1"


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
        rows.append({"name": name, "what": summary(ast.get_docstring(tree))})
    return rows


def policy_kind(package: Any, table: Mapping[str, str]) -> Kind:
    """Return the kind of the policies in a table of a package."""
    return Kind(table, partial(_policies, package, table), NAMED)


POLICIES: Mapping[str, Kind] = {
    "schedulers": policy_kind(schedulers, schedulers.SCHEDULERS),
    "routers": policy_kind(routers, routers.ROUTERS),
    "dispatchers": policy_kind(dispatchers, dispatchers.DISPATCHERS),
    "rebalancers": policy_kind(rebalancers, rebalancers.REBALANCERS),
    "hand-offs": policy_kind(hand_offs, hand_offs.HAND_OFFS),
    "autoscalers": policy_kind(autoscalers, autoscalers.AUTOSCALERS),
}


def _llms() -> list[dict[str, Any]]:
    rows = []
    for name in listed_names():
        entry, found = llm(name), published(name)
        checkpoints = {} if found is None else dict(found.checkpoints)
        rows.append(
            {
                "name": name,
                "parameter_count": entry.parameter_count,
                "active_parameter_count": entry.active_parameter_count,
                "weight_dtype": entry.weight_dtype,
                "weight_bytes": entry.weight_bytes(),
                "max_positions": entry.max_positions,
                "checkpoints": checkpoints,
                "checkpoint": checkpoints.get(entry.weight_dtype, ""),
            }
        )
    return rows


def _workloads() -> list[dict[str, Any]]:
    rows = []
    for name in shipped_workload_names():
        found = read_provenance(shipped("workloads") / f"{name}.yaml")
        rows.append(
            {
                "name": name,
                "request_count": found.get("request_count"),
                "columns": ", ".join(found["columns"]),
                "what": found["source"],
                "licence": found["licence"],
            }
        )
    return rows


_predictors = named_rows(
    predictors.PREDICTORS,
    what=lambda row: summary(row.predict.__doc__),
    settings=lambda row: f"{row.parameter}={row.default:g}" if row.parameter else "",
)
_arrivals = named_rows(
    arrivals.ARRIVALS,
    what=lambda row: summary(row.arrive.__doc__),
    settings=lambda row: ", ".join(row.needs),
)
_systems = named_rows(
    SYSTEMS, scheduler=lambda row: row.scheduler, what=lambda row: row.source
)
_engines = named_rows(ENGINES, what=lambda row: row.title)


def _formats() -> list[dict[str, Any]]:
    read = {name: readers.reader(name) for name in readers.READERS}
    return [
        {"name": name, "what": summary(getattr(how, "what", how.__doc__))}
        for name, how in read.items()
    ]


_LLMS = fields("list_llms", billions=lambda count: f"{count / 1e9:.3g} B")
_WITH_SETTINGS = fields("list_settings")

KINDS: Mapping[str, Kind] = {
    "llms": Kind(listed_names, _llms, _LLMS),
    **HARDWARE,
    "workloads": Kind(shipped_workload_names, _workloads, fields("list_workloads")),
    "formats": Kind(readers.READERS, _formats, NAMED),
    "arrivals": Kind(arrivals.ARRIVALS, _arrivals, _WITH_SETTINGS),
    "predictors": Kind(predictors.PREDICTORS, _predictors, _WITH_SETTINGS),
    "engines": Kind(ENGINES, _engines, NAMED),
    **POLICIES,
    "systems": Kind(SYSTEMS, _systems, fields("list_systems")),
    "targets": policy_kind(exports, exports.MODULES),
}
"""Kinds of names, in the order of ``KIND_ROWS``."""


@cache
def names_of(kind: str) -> tuple[str, ...]:
    """Return the names of a kind."""
    names = KINDS[kind].names
    return tuple(names() if callable(names) else names)


def kind_page(kind: str) -> Page:
    """Return all names of a kind with what they stand for."""
    if kind not in KINDS:
        raise InputError(
            f"{kind!r} is no kind of names{nearest(kind, KINDS)}; "
            f"expected one of {', '.join(KINDS)}"
        )
    found, told = KINDS[kind], KIND_ROWS[kind]
    table = Table(found.columns, found.rows(), is_whole=True)
    about = f"{len(table.rows)} {told.meaning}", f"for {told.flag}"
    return _page(kind, *about, table, {"kind": kind, "items": table.rows})


def kinds_page() -> Page:
    """Return the kinds, with the flag that takes a name of each and how many it has."""
    rows = [
        {"kind": row.kind, "flag": row.flag, "count": len(names_of(row.kind))}
        | {"what": row.meaning}
        for row in KIND_ROWS.values()
    ]
    table = Table(fields("list_kinds"), rows, is_whole=True)
    about = f"{len(rows)} kinds of names", "capplan list KIND shows those of one"
    return _page("kinds", *about, table, {"kinds": rows})


def _page(
    name: str, headline: str, about: str, table: Table, values: Mapping[str, Any]
) -> Page:
    sections = [Section(tables=[table])]
    document = {"schema": SCHEMA, **values}
    csv = {f"{name}.csv": table}
    return Page(name, headline, about, sections, values=lambda: document, csv=csv)
