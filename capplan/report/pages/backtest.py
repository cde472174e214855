"""The page of a backtest: how a fleet differs from what is assumed, and its load."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from capplan.latency.measured_factor import SCHEMA
from capplan.planning.backtest.compared import Figures
from capplan.planning.backtest.result import Backtest, ComparedWindow
from capplan.report.columns import DASH, column, format_share, plural
from capplan.report.fields import fields
from capplan.report.page import Fact, Page, Section, Table
from capplan.units import format_duration
from capplan.workload.metrics.laws import TOLD
from capplan.workload.readers.columns import EPOCH_S

_NOTE = (
    "Simulated with the times that are assumed, of the same load. φ is the factor on "
    "the time of every iteration at which the time between tokens is the measured one; "
    "windows in which requests wait are judged by throughput."
)
_MOST_WINDOWS = 12
"""Windows that stand on the terminal one by one."""


def _moment(time_s: float) -> str:
    if time_s < EPOCH_S:
        return f"{time_s:,.0f} s"
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M")


_COLUMNS = fields(
    "backtest_window",
    factor=lambda phi: DASH if phi is None else f"{phi:.3f}",
    moment=_moment,
)


def windows_table(result: Backtest) -> Table:
    """Return the windows as measured and as simulated, with their factors."""
    return Table(_COLUMNS, result.windows, title="windows", note=_NOTE, style=_style)


def window_sections(result: Backtest) -> list[Section]:
    """Return the windows; of many on the terminal a row for each replica."""
    table = windows_table(result)
    if len(result.windows) <= _MOST_WINDOWS:
        return [Section("Windows", tables=[table])]
    replicas = replace(table, rows=[*_by_replica(result.windows)], title="replicas")
    return [
        Section("Replicas", tables=[replicas]),
        Section("Windows", tables=[table], only="files"),
    ]


def _mean(figures: Sequence[tuple[Figures, float]]) -> Figures:
    """Return the mean time between tokens of windows, by their requests."""
    known = [(row["itl_s_mean"], n) for row, n in figures if "itl_s_mean" in row]
    total = sum(count for _, count in known)
    return {"itl_s_mean": sum(x * n for x, n in known) / total} if total else {}


def _by_replica(windows: Sequence[ComparedWindow]) -> Iterator[ComparedWindow]:
    """Yield all windows of each replica as one: means by requests, φ in the middle."""
    for name in dict.fromkeys(window.replica for window in windows):
        of = [window for window in windows if window.replica == name]
        phis = [window.phi for window in of if window.phi is not None]
        yield of[0]._replace(
            first_s=min(window.first_s for window in of),
            last_s=max(window.last_s for window in of),
            requests=sum(window.requests for window in of),
            measured=_mean([(window.measured, window.requests) for window in of]),
            simulated=_mean([(window.simulated, window.requests) for window in of]),
            phi=median(phis) if phis else None,
            saturated=any(window.saturated for window in of),
        )


def backtest_page(result: Backtest) -> Page:
    """Return the line to act on, what it does not explain, and the windows."""
    table = windows_table(result)
    rows = [row for window in result.windows for row in _compared(window)]
    names = ("replica", "first_s", "figure", "measured", "simulated", "ratio")
    shown = [
        column(name, name, _number if at > 2 else str, path=f"{at}")
        for at, name in enumerate(names)
    ]
    compared = Table(shown, rows)
    return Page(
        "backtest",
        headline(result),
        f"{result.llm or 'the fleet'} on {result.configuration}",
        [
            Section("What it means", _facts(result)),
            *window_sections(result),
            Section("Laws of the metrics, by their median", [*_laws(result)]),
            Section("Measured and simulated", tables=[compared], only="files"),
        ],
        values=partial(backtest_values, result),
        csv={"backtest.csv": table, "compared.csv": compared},
        lead=_unexplained(result),
        warnings=result.warnings,
        is_failure=result.is_outside,
    )


def headline(result: Backtest) -> str:
    """Return the line to act on."""
    phi, factor, fleet = result.phi, result.capacity_factor, result.fleet
    if phi is None:
        ratio = result.throughput_ratio
        text = "every window is saturated: no factor on iteration times is told"
        if ratio is not None:
            text = f"saturated replicas give {ratio:.2f} × the throughput assumed"
        return f"{text[0].upper()}{text[1:]}."
    within = "" if math.isnan(phi.low) else f" [{phi.low:.2f}, {phi.high:.2f}]"
    windows = "one window" if phi.windows == 1 else plural(phi.windows, "window")
    parts = [
        f"This fleet's iterations take {phi.value:.2f} ×{within} what capplan assumes "
        f"({windows})"
    ]
    if factor is not None:
        parts.append(f", so a replica carries {factor:.2f} of its promise")
    if (used := fleet.utilisation) is not None:
        runs = plural(fleet.replica_count, "replica")
        parts.append(
            f"; you run {runs} at {format_share(used)} of their saturation throughput"
        )
    if fleet.slo_text:
        enough = "no number that was tried" if fleet.enough is None else fleet.enough
        parts.append(f"; for {fleet.slo_text} {enough} would do")
    return "".join(parts) + "."


def _unexplained(result: Backtest) -> str:
    if not result.unexplained:
        return "Nothing else differs by more than 10 %."
    return f"Not explained by that: {'; '.join(result.unexplained)}."


def _facts(result: Backtest) -> list[Fact]:
    factor, stated = result.capacity_factor, result.configuration.capacity_ratio
    within, how = "", "from KV in use" if result.rho_identified else "assumed"
    if factor is None and result.phi is not None:
        within = "none: no load makes a replica as assumed as slow"
    elif factor is not None and stated is not None:
        side = "outside" if result.is_outside else "within"
        within = f"{side} what is stated, {stated[0]:.2f} to {stated[1]:.2f}"
    front_s = result.front_end_s
    return [
        ("load of a replica", within),
        ("prefill takes", _times(result.phi_prefill, "what is assumed")),
        ("front end", "" if front_s is None else format_duration(max(front_s, 0.0))),
        ("saturated windows", _times(result.throughput_ratio, "the most simulated")),
        (
            "prompts and answers",
            "" if result.rho is None else f"correlated by {result.rho:.2f}, {how}",
        ),
        ("plan with it", "capplan plan … --backtest DIR" * (result.phi is not None)),
    ]


def _times(value: float | None, what: str) -> str:
    return "" if value is None else f"{value:.2f} × {what}"


def _laws(result: Backtest) -> Iterator[Fact]:
    for name, told in TOLD.items():
        values = np.array([window.laws[name] for window in result.windows])
        if np.isfinite(values).any():
            middle = float(np.nanmedian(values))
            is_time = name.endswith("_s")
            yield told, format_duration(middle) if is_time else f"{middle:.3f}"


def _style(window: ComparedWindow) -> str:
    return "fail" if window.saturated else ""


def _compared(window: ComparedWindow) -> Iterator[tuple[object, ...]]:
    for name, value in window.measured.items():
        both = value, window.simulated.get(name), window.ratio.get(name)
        yield window.replica, window.first_s, name, *both


def _number(value: float | None) -> str:
    return DASH if value is None else f"{value:.4g}"


def backtest_values(result: Backtest) -> dict[str, Any]:
    """Return the answer by the keys of ``backtest.json``."""
    configuration, phi = result.configuration, result.phi
    return {
        "schema": SCHEMA,
        "verdict": headline(result),
        "inputs": [each._asdict() for each in result.inputs],
        "deployment": {
            "llm": result.llm,
            "gpu": configuration.gpu,
            "tp": configuration.tp,
            "layout": str(configuration.layout),
            "times_of": configuration.times_of,
            "kv_tokens": configuration.engine.kv_capacity_tokens,
            "replica_count": result.fleet.replica_count,
        },
        "phi": None if phi is None else _finite(phi._asdict()),
        "phi_prefill": result.phi_prefill,
        "front_end": {"request_s": result.front_end_s, "prompt_token_s": None},
        "capacity_factor": result.capacity_factor,
        "throughput_ratio": result.throughput_ratio,
        "joint": {"rho": result.rho, "identified": result.rho_identified},
        "fleet": result.fleet._asdict() | {"utilisation": result.fleet.utilisation},
        "unexplained": list(result.unexplained),
        "laws": dict(TOLD),
        "windows": [
            window._asdict()
            | {"rate_per_s": window.rate_per_s, "laws": _finite(window.laws)}
            for window in result.windows
        ],
        "cautions": list(result.warnings),
    }


def _finite(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: x if math.isfinite(x) else None for name, x in values.items()}
