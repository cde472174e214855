"""The page of a what-if: plans that differ in a few settings, side by side."""

from functools import partial
from typing import Any

from capplan.planning.plan.result import NOT_IN_THE_RESULT
from capplan.planning.what_if.what_if import Cell, WhatIf
from capplan.report.charts.what_if import figures, finding
from capplan.report.columns import Column, record
from capplan.report.fields import fields
from capplan.report.first_screen import prices_told
from capplan.report.money import in_its_currency
from capplan.report.page import Fact, Page, Section, Table, next_section, why_section
from capplan.report.panels import what_if_panel
from capplan.report.what_if_answer import (
    what_if_answer,
    what_if_lead,
    what_if_subject,
    what_if_title,
)
from capplan.report.what_if_why import what_if_why

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

    def style(cell: Cell) -> str:
        return "fail" if cell.best is None else ""

    table = Table(_columns(result), result.cells, note=_NOTE, style=style)
    facts: list[Fact] = [(str(cell), cell.reason) for cell in result.cells]
    facts += [("requests", result.trace_source), ("seed", f"{result.seed}, of all")]
    if day := result.settings.get("price_date"):
        facts.append(("price date", f"{day}; newer offers are not used"))
    answer = what_if_answer(result)
    return Page(
        "whatif",
        what_if_title(result),
        what_if_subject(result),
        [
            why_section("bill", what_if_why(result)),
            Section("What each takes", tables=[table], topic="candidates"),
            Section("What was asked", facts, topic="assumptions"),
            Section("GPUs and cost", figures=partial(figures, result)),
            next_section([answer.next]),
        ],
        values=partial(what_if_values, result),
        csv={"whatif.csv": table},
        panel=what_if_panel(result, _HEADINGS),
        chart=finding(result),
        prices=prices_told(next((x.best.price for x in result.cells if x.best), None)),
        answer=answer,
        lead=what_if_lead(result),
        warnings=result.warnings,
        is_failure=not any(cell.best for cell in result.cells),
    )


_NOTE = (
    "Each row is what `capplan plan` finds with these settings. All rows use the "
    "same random seed."
)


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
