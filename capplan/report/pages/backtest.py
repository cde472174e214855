"""The page of a backtest: how a fleet differs from what is assumed, and its load."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from capplan.latency.measured_factor import SCHEMA
from capplan.planning.backtest.result import Backtest, ComparedWindow
from capplan.report.columns import DASH, column, format_share, plural
from capplan.report.fields import fields
from capplan.report.page import Fact, Page, Section, Table
from capplan.units import format_duration
from capplan.workload.metrics.laws import TOLD

_NOTE = (
    "Simulated with the times that are assumed, of the same load. φ is the factor on "
    "the time of every iteration at which the time between tokens is the measured one; "
    "windows in which requests wait are judged by throughput."
)
_COLUMNS = fields(
    "backtest_window", factor=lambda phi: DASH if phi is None else f"{phi:.3f}"
)


def backtest_page(result: Backtest) -> Page:
    """Return the line to act on, what it does not explain, and the windows."""
    table = Table(_COLUMNS, result.windows, note=_NOTE, style=_style)
    rows = [row for window in result.windows for row in _compared(window)]
    compared = Table(
        (
            column("replica", "replica", justify="left", path="0"),
            column("first_s", path="1"),
            column("figure", "figure", justify="left", path="2"),
            column("measured", "measured", _number, path="3"),
            column("simulated", "simulated", _number, path="4"),
            column("ratio", "ratio", _number, path="5"),
        ),
        rows,
    )
    return Page(
        "backtest",
        headline(result),
        f"{result.llm or 'the fleet'} on {result.configuration}",
        [
            Section("What it means", _facts(result)),
            Section("Windows", tables=[table]),
            Section("Laws of the metrics, by their median", _laws(result)),
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
    phi, prefill, front = result.phi, result.phi_prefill, result.front_end_s
    stated = result.configuration.capacity_ratio
    rho = ""
    if result.rho is not None:
        how = "from KV in use" if result.rho_identified else "assumed"
        rho = f"{result.rho:.2f}, {how}"
    within = ""
    if stated is not None:
        side = "outside" if result.is_outside else "within"
        within = f"{side} the {stated[0]:.2f} to {stated[1]:.2f} of load tests"
    factor = result.capacity_factor
    beyond = "no load makes a replica as assumed as slow" if phi else ""
    throughput = result.throughput_ratio
    return [
        (
            "a replica carries",
            beyond if factor is None else f"{factor:.2f} of its promise",
        ),
        ("that is", within if factor is not None else ""),
        (
            "prefill takes",
            "" if prefill is None else f"{prefill:.2f} × what is assumed",
        ),
        ("front end", "" if front is None else format_duration(max(front, 0.0))),
        (
            "saturated windows",
            "" if throughput is None else f"{throughput:.2f} × the most",
        ),
        ("prompts and answers", rho and f"correlate by {rho}"),
        ("plan with it", "capplan plan … --backtest backtest.json" if phi else ""),
    ]


def _laws(result: Backtest) -> list[Fact]:
    facts = []
    for name, told in TOLD.items():
        known = sorted(
            value
            for window in result.windows
            if math.isfinite(value := window.laws[name])
        )
        if known:
            middle = known[len(known) // 2]
            is_time = name.endswith("_s")
            facts.append(
                (told, format_duration(middle) if is_time else f"{middle:.3f}")
            )
    return facts


def _style(window: ComparedWindow) -> str:
    return "fail" if window.saturated else ""


def _compared(window: ComparedWindow) -> list[tuple[object, ...]]:
    return [
        (
            window.replica,
            window.first_s,
            name,
            window.measured[name],
            window.simulated.get(name),
            window.ratio.get(name),
        )
        for name in window.measured
    ]


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
        "laws": {name: told for name, told in TOLD.items()},
        "windows": [
            window._asdict()
            | {
                "rate_per_s": window.rate_per_s,
                "laws": _finite(window.laws),
                "measured": dict(window.measured),
                "simulated": dict(window.simulated),
                "ratio": dict(window.ratio),
            }
            for window in result.windows
        ],
        "cautions": list(result.warnings),
    }


def _finite(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: x if math.isfinite(x) else None for name, x in values.items()}
