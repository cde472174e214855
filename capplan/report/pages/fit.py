"""The page of a fit: the profile's errors, and how well what was measured tells it."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from capplan.calibration.fit_profile import Fitted, PointsFit
from capplan.latency.fit import Fit
from capplan.latency.profile_file import AnyProfile
from capplan.latency.rank_fit import RanksFit
from capplan.report.charts.profile import profile_figures
from capplan.report.columns import record
from capplan.report.fields import fields
from capplan.report.page import Page, Section, Table
from capplan.report.pages.backtest import window_sections, windows_table
from capplan.report.pages.profiles import decodes_table, errors_table, format_error

if TYPE_CHECKING:
    from capplan.calibration.load_test import SweepPoint
    from capplan.calibration.served_fit import ServedFit
    from capplan.calibration.sweep_profile import SweepProfile
    from capplan.planning.backtest.fitted import FleetFit
    from capplan.report.received.acceptance import Acceptance

SCHEMA = "capplan.fit/1"

MEANINGS = {
    "fixed_s": "each iteration",
    "prefill_s": "per prompt token",
    "attention_s": "per pair of prompt token and earlier token",
    "decode_s": "per decoding request",
    "context_s": "per token of their context",
}
"""Coefficients of an iteration in the order of a calibration."""

_TIMES = {
    "decode_factor": ("on the kernels of decoding", 1.0, ""),
    "prefill_factor": ("on the kernels of tokens beyond 64", 1.0, ""),
    "iteration_s": ("each iteration", 1e3, " ms"),
    "per_request_s": ("each running request in it", 1e6, " µs"),
    "prefill_iteration_s": ("each iteration with prefill, beside", 1e3, " ms"),
    "request_s": ("each request, before its first token", 1e3, " ms"),
    "prompt_token_s": ("each prompt token, likewise", 1e6, " µs"),
}


def fit_page(fitted: Fitted) -> Page:
    """Return the tables of a fit, and the curves of its profile."""
    points = None
    if isinstance(fitted, PointsFit):
        points, notes = fitted.points, list[str]()
        tables = [forms_table(fitted.fit), errors_table(fitted.profile, "errors")]
    elif fitted.profile.how == "calibrated":
        tables, notes = _of_sweep(cast("SweepProfile", fitted))
    else:
        tables, notes = _of_served(cast("ServedFit", fitted))
    page = _page(fitted.profile, "fitted latency profile", tables)
    figures = partial(profile_figures, fitted.profile, points)
    sections = Section("Fit", tables=tables, notes=notes)
    return replace(page, sections=[sections, Section("Curves", figures=figures)])


def acceptance_page(found: "Acceptance") -> Page:
    """Return what a plan's load test makes of it, and what each load showed."""
    results, rows = found.results, fields("fit_plan")
    tables = [Table(rows, found.rows, title="load test against the plan")]
    return replace(
        _page(results.profile, "", tables),
        headline=str(found),
        sections=[Section("Loads", tables=tables, notes=results.notes)],
        is_failure=not found.passed,
    )


def fleet_fit_page(found: "FleetFit") -> Page:
    """Return the windows of a fleet, and how well its times explain them."""
    about = "latency profile fitted to metrics of a fleet"
    page = _page(found.profile, about, [windows_table(found.backtest)])
    page = replace(page, sections=window_sections(found.backtest))
    return replace(page, lead=str(found), warnings=found.backtest.warnings)


def rank_fit_page(fitted: RanksFit) -> Page:
    """Return the forms tried for what a rank does alone, and all parts' errors."""
    profile = fitted.profile
    errors = errors_table(profile, "errors of each part")
    tables = [forms_table(fitted.fit), decodes_table(profile), errors]
    about = "fitted latency profile of ranks that step together"
    return replace(_page(profile, about, tables), lead=profile.note())


def _page(profile: AnyProfile, about: str, tables: list[Table]) -> Page:
    """Return the page of a profile: the first table is the fit, the last its errors."""
    errors = {"errors.csv": tables[-1]} if len(tables) > 1 else {}
    return Page(
        "fit",
        profile.name,
        about,
        [Section("Fit", tables=tables)],
        values=partial(_values, profile.document(), tables),
        csv={"fit.csv": tables[0], **errors},
    )


def _values(profile: dict[str, Any], tables: list[Table]) -> dict[str, Any]:
    named = {
        str(table.title): [record(table.columns, row) for row in table.rows]
        for table in tables
    }
    return {"schema": SCHEMA, **named, "profile": profile}


def forms_table(fitted: Fit) -> Table:
    """Return the forms that were tried, and why one was chosen."""
    return Table(
        fields("fit_form", error=format_error),
        fitted.scores,
        title="forms",
        style=lambda score: "best" if score.chosen else "",
        note="; ".join(
            f"{score.part}, {score.form}: {score.reason}"
            for score in fitted.scores
            if score.chosen and score.reason
        ),
    )


def _measured_text(point: "SweepPoint") -> str:
    if point.tpot_s is not None:
        return f"TPOT {point.tpot_s * 1e3:.4g} ms"
    if point.output_tokens_per_s is not None:
        return f"{point.output_tokens_per_s:,.0f} tokens/s"
    return f"TTFT {(point.ttft_s or 0.0) * 1e3:.4g} ms"


def _of_sweep(fitted: "SweepProfile") -> tuple[list[Table], list[str]]:
    tests = list(zip(fitted.points, fitted.fit.ratio, fitted.held_out, strict=True))
    of_tests = fields(
        "fit_test",
        measured=lambda row: _measured_text(row[0]),
        calibrated=lambda row: float(row[1] - 1),
        left_out=lambda row: float(row[2] - 1),
    )
    if all(point.rate_per_s is None for point in fitted.points):
        of_tests = tuple(each for each in of_tests if each.name != "rate_per_s")
    fit = fitted.fit
    values = [
        (name, of, float(getattr(fit.time, name)), float(error), bool(known))
        for (name, (of, *_)), error, known in zip(
            _TIMES.items(), fit.standard_errors, fit.determined, strict=True
        )
        if error  # else it was not fitted
    ]
    of_values = fields(
        "fit_value",
        fitted=lambda row: _in_unit(row[0], row[2], 3),
        standard_error=lambda row: _in_unit(row[0], row[3], 2),
        determined=lambda is_so: "yes" if is_so else "near the shipped value",
    )
    off = abs(fitted.held_out - 1)
    note = (
        f"Loads not fitted to are predicted within {100 * np.median(off):.1f} % in the "
        f"median and {100 * off.max():.1f} % at worst."
    )
    tables = [Table(of_tests, tests, title="load tests")]
    tables.append(Table(of_values, values, title="engine time"))
    tables.append(errors_table(fitted.profile, "errors"))
    return [table for table in tables if table.rows], [*fitted.notes, note]


def _in_unit(name: str, value: float, digits: int) -> str:
    _, scale, unit = _TIMES[name]
    return f"{value * scale:.{digits}g}{unit}"


def _of_served(fitted: "ServedFit") -> tuple[list[Table], list[str]]:
    calibration, engine, run = fitted.calibration, fitted.engine, fitted.run
    coefficients = [
        (name, of, float(value_s), float(error_s), bool(identified))
        for (name, of), value_s, error_s, identified in zip(
            MEANINGS.items(),
            calibration.coefficients_s,
            calibration.standard_errors_s,
            calibration.identified,
            strict=True,
        )
    ]
    columns = fields(
        "fit_coefficient",
        micro=_micro,
        identified=lambda is_so: "yes" if is_so else "not by this run",
    )
    failed = f", {run.failed} failed" if run.failed else ""
    notes = [
        f"{len(calibration.fitted_rows)} of {len(run.arrival_s)} served requests "
        f"fitted{failed}; simulated with {engine.max_num_batched_tokens:,} tokens and "
        f"{engine.max_num_seqs:,} requests an iteration, {engine.kv_blocks:,} KV "
        f"blocks of {engine.block_size} tokens ({fitted.kv_source}), "
        f"async scheduling {_on(engine.async_scheduling)}, "
        f"prefix caching {_on(engine.prefix_caching)}"
    ]
    if not calibration.identified.all():
        notes.append(
            "A coefficient that is not identified is in the profile as fitted, but "
            "other values explain this run as well: serve other lengths or rates to "
            "determine it."
        )
    of = {"prefill": "requests' TTFT", "decode": "requests' TPOT"}
    tables = [Table(columns, coefficients, title="coefficients")]
    return [*tables, errors_table(fitted.profile, "errors", of)], notes


def _micro(value_s: float) -> str:
    value_us = 1e6 * value_s
    return f"{value_us:,.0f}" if value_us >= 100 else f"{value_us:.3g}"


def _on(setting: bool) -> str:
    return "on" if setting else "off"
