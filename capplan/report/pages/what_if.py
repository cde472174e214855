"""The page of a what-if: plans that differ in a few settings, side by side."""

from functools import partial
from typing import Any

from capplan.planning.plan.plan import NOT_IN_THE_RESULT
from capplan.planning.what_if.what_if import Cell, WhatIf
from capplan.report.charts.what_if import figures, finding
from capplan.report.columns import Column, at, format_list, record
from capplan.report.fields import fields
from capplan.report.money import in_its_currency
from capplan.report.page import Fact, Page, Section, Table
from capplan.report.panels import what_if_panel
from capplan.report.sentences import plural
from capplan.units import format_usd

SCHEMA = "capplan.whatif/1"
_API = "API $ per month"

_FIELDS = fields("what_if")

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
        panel=what_if_panel(result, _HEADINGS),
        chart=finding(result),
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
    priced = all(at(cell, "best.cost") is not None for cell in feasible)
    path = "best.cost.usd_per_month" if priced else "best.gpu_count"
    ordered = sorted(feasible, key=lambda cell: at(cell, path))
    told = [f"{_figures(cell)} ({cell})" for cell in (ordered[0], ordered[-1])]
    left = len(result.cells) - len(feasible)
    rest = f"; {left} of {len(result.cells)} not feasible" if left else ""
    if _figures(ordered[0]) == _figures(ordered[-1]):
        return f"Each takes {_figures(ordered[0])}{rest}."
    return f"From {' to '.join(told)}{rest}."


def _figures(cell: Cell) -> str:
    gpus = plural(at(cell, "best.gpu_count"), "GPU")
    usd = at(cell, "best.cost.usd_per_month")
    return gpus if usd is None else f"{gpus}, {format_usd(usd)} a month"


def _columns(result: WhatIf) -> list[Column]:
    """Return the columns: what is varied, then what it takes."""
    varied = [
        Column(
            key_of(name),
            partial(_value, name=name),
            _HEADINGS.get(name, name),
            justify="left",
            told=partial(_text, name=name),
        )
        for name in result.vary
    ]
    names = {each.name for each in varied}
    without = "" if result.settings.get("api_price") else _API
    return varied + [
        each._replace(
            name="" if each.name in names else each.name,
            heading="" if each.heading == without else each.heading,
        )
        for each in _FIELDS
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
    values = record(_FIELDS, cell)
    values["settings"] = cell.settings.document(NOT_IN_THE_RESULT)
    return {**varied, **{k: v for k, v in values.items() if k not in varied}}
