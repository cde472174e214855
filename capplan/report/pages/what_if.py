"""The page of a what-if: plans that differ in a few settings, side by side."""

from functools import partial
from typing import Any

from capplan.planning.plan.plan import NOT_IN_THE_RESULT
from capplan.planning.what_if.what_if import Cell, WhatIf
from capplan.report.charts.what_if import figures
from capplan.report.columns import (
    Column,
    at,
    column,
    ends,
    format_count,
    format_fine_usd,
    format_list,
    format_share,
)
from capplan.report.money import in_its_currency
from capplan.report.page import Fact, Page, Section, Table
from capplan.report.pages.candidates import PATHS as CANDIDATE
from capplan.report.sentences import plural
from capplan.units import format_usd

SCHEMA = "capplan.whatif/1"

_OF_BEST = (
    "gpu",
    "tp",
    "layout",
    "gpus_per_replica",
    "replica_count",
    "gpu_count",
    "lower_bound_gpu_count",
    "usd_per_h",
    "usd_per_month",
    "usd_per_month_range",
    "nodes",
    "usd_per_million_input_tokens",
    "usd_per_million_output_tokens",
    "usd_per_million_total_tokens",
    "slo_attainment",
    "slo_attainment_interval",
    "decided",
    "binding",
    "router",
)
PATHS = {
    "status": "status",
    "rate_per_s": "plan.rate_per_s",
    "slo_text": "plan.slo_text",
    "attainment_text": "plan.attainment_text",
    **{name: f"best.{CANDIDATE[name]}" for name in _OF_BEST},
    "usd_per_request": "usd_per_request",
    "api_usd_per_month": "api_usd_per_month",
    "reason": "reason",
}
"""Where the values of a cell lie, by the keys of the JSON, after what is varied."""

_HEADINGS = {
    "llm": "LLM",
    "gpu": "GPUs to choose",
    "tp": "TPs to choose",
    "slo-scale": "limits ×",
}
"""Of what is varied, where its name is none."""


@in_its_currency
def what_if_page(result: WhatIf) -> Page:
    """Return the page of a what-if."""
    feasible = [cell for cell in result.cells if cell.best is not None]
    one = len({str(cell.best) for cell in feasible}) == 1
    table = Table(
        _columns(result),
        result.cells,
        note=_NOTE,
        style=lambda cell: "fail" if cell.best is None else "",
    )
    over = format_list([_HEADINGS.get(name, name).rstrip(" ×") for name in result.vary])
    facts: list[Fact] = [
        (str(cell), cell.reason) for cell in result.cells if cell.reason
    ]
    facts += [("requests", result.trace_source), ("seed", f"{result.seed}, of all")]
    if day := result.settings.get("price_date"):
        facts.append(("price date", f"{day}; newer offers are not used"))
    return Page(
        "whatif",
        f"{plural(len(result.cells), 'plan')} over {over}",
        f"all on {feasible[0].best}" if one and len(feasible) > 1 else "",
        [
            Section("What each takes", facts, [table]),
            Section("GPUs and cost", figures=partial(figures, result)),
        ],
        values=partial(what_if_values, result),
        csv={"whatif.csv": table},
        lead=_lead(result, feasible),
        warnings=result.warnings,
        is_failure=not feasible,
    )


_NOTE = (
    "Each row is what `capplan plan` finds with these settings. All draw from the same "
    "seed, so that a difference is none of chance."
)


def _lead(result: WhatIf, feasible: list[Cell]) -> str:
    """Return the cells that cost least and most; without prices, in GPUs."""
    if not feasible:
        return f"None is feasible: {result.cells[0].reason}."
    priced = all(at(cell, PATHS["usd_per_month"]) is not None for cell in feasible)
    name = "usd_per_month" if priced else "gpu_count"
    ordered = sorted(feasible, key=lambda cell: at(cell, PATHS[name]))
    told = [f"{_figures(cell)} ({cell})" for cell in (ordered[0], ordered[-1])]
    left = len(result.cells) - len(feasible)
    rest = f"; {left} of {len(result.cells)} not feasible" if left else ""
    if _figures(ordered[0]) == _figures(ordered[-1]):
        return f"Each takes {_figures(ordered[0])}{rest}."
    return f"From {' to '.join(told)}{rest}."


def _figures(cell: Cell) -> str:
    gpus = plural(at(cell, PATHS["gpu_count"]), "GPU")
    usd = at(cell, PATHS["usd_per_month"])
    return gpus if usd is None else f"{gpus}, {format_usd(usd)} a month"


def _columns(result: WhatIf) -> list[Column]:
    """Return the columns: what is varied, then what it takes."""

    def shown(name: str, heading: str, show: Any = str, leaves: int = 0) -> Column:
        return column(name, heading, show, path=PATHS[name], leaves=leaves)

    with_api = "API $ per month" if result.settings.get("api_price") else ""
    columns = [
        Column(
            key_of(name),
            partial(_value, name=name),
            _HEADINGS.get(name, name),
            justify="left",
            told=partial(_text, name=name),
        )
        for name in result.vary
    ]
    columns += [
        shown("status", ""),
        shown("rate_per_s", "requests/s", format_count, leaves=1),
        Column("", lambda cell: cell.best, "configuration", justify="left"),
        shown("gpu", ""),
        shown("tp", ""),
        shown("layout", ""),
        shown("gpus_per_replica", ""),
        shown("replica_count", "replicas", format_count),
        shown("gpu_count", "GPUs", format_count),
        shown("lower_bound_gpu_count", "at least", format_count, leaves=2),
        shown("slo_attainment", "attainment", format_share, leaves=5),
        *ends("slo_attainment", PATHS["slo_attainment_interval"]),
        shown("decided", ""),
        shown("usd_per_h", ""),
        shown("usd_per_month", "$ per month", format_usd),
        shown("api_usd_per_month", with_api, format_usd),
        shown("usd_per_request", "$ per request", format_fine_usd, leaves=3),
        *(
            shown(f"usd_per_million_{kind}_tokens", heading, format_fine_usd, leaves=4)
            for kind, heading in (("input", "$/Mtok in"), ("output", "$/Mtok out"))
        ),
        shown("usd_per_million_total_tokens", ""),
        shown("binding", ""),
        shown("slo_text", ""),
        shown("attainment_text", ""),
        shown("reason", ""),
    ]
    varied = {key_of(name) for name in result.vary}
    return [
        each._replace(name="")
        if index >= len(result.vary) and each.name in varied
        else each
        for index, each in enumerate(columns)
    ]


def key_of(name: str) -> str:
    """Return the key of what is varied, in the JSON and the CSV."""
    return name.replace("-", "_")


def _text(cell: Cell, name: str) -> str:
    return cell.values[name]


def _value(cell: Cell, name: str) -> float | str:
    """Return a value as a number, where it is one."""
    text = cell.values[name]
    try:
        return float(text)
    except ValueError:
        return text


def what_if_values(result: WhatIf) -> dict[str, Any]:
    """Return the cells by the keys of ``whatif.json``."""
    return {
        "schema": SCHEMA,
        "vary": {key_of(name): values for name, values in result.vary.items()},
        "cells": [_cell_values(cell) for cell in result.cells],
        "trace_source": result.trace_source,
        "seed": result.seed,
        "interrupted": result.interrupted,
        "settings": result.settings,
        "warnings": result.warnings,
    }


def _cell_values(cell: Cell) -> dict[str, Any]:
    """Return a cell: what is varied comes first, and wins over the best's."""
    varied = {key_of(name): _value(cell, name) for name in cell.values}
    values = {name: at(cell, path) for name, path in PATHS.items()}
    values["settings"] = cell.settings.document(NOT_IN_THE_RESULT)
    return {**varied, **{k: v for k, v in values.items() if k not in varied}}
