"""What settings may name: LLMs, GPUs, workloads, policies; a list of each kind."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from capplan.engines.catalog import ENGINES
from capplan.errors import InputError, nearest
from capplan.llm.catalog import listed_names, llm, published
from capplan.planning.compare.systems import SYSTEMS
from capplan.report import exports
from capplan.report.fields import fields
from capplan.report.kind_rows import KIND_ROWS
from capplan.report.page import Page, Section, Table
from capplan.report.pages.kind import NAMED, Kind, named_rows, summary
from capplan.report.pages.kinds_of_hardware import HARDWARE
from capplan.report.pages.kinds_of_policies import POLICIES, policy_kind
from capplan.shipped import shipped
from capplan.workload import arrivals, predictors, readers
from capplan.workload.catalog import read_provenance, shipped_workload_names

SCHEMA = "capplan.list/1"


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
    "targets": policy_kind(exports, exports.TARGETS),
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
