"""Write a fitted profile and print its errors against the measurements."""

from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from rich.console import Console
from rich.table import Table

from capplan.calibration.fit_profile import PointsFit
from capplan.latency.fit import Fit
from capplan.latency.profile_file import save_profile

if TYPE_CHECKING:
    from capplan.calibration.closed_loop import SweepPoint
    from capplan.calibration.served_fit import ServedFit
    from capplan.calibration.sweep_profile import SweepProfile

_MEANINGS = {
    "fixed_s": "each iteration",
    "prefill_s": "per prompt token",
    "attention_s": "per pair of prompt token and earlier token",
    "decode_s": "per decoding request",
    "context_s": "per token of their context",
}


def write_fit(
    fitted: "PointsFit | ServedFit | SweepProfile", out: Path, plot: Path | None
) -> None:
    """Write the profile and its plot, and print the fit."""
    save_profile(fitted.profile, out)
    console = Console(highlight=False)
    if isinstance(fitted, PointsFit):
        _print_points_fit(fitted.fit, console)
    elif fitted.profile.how == "calibrated":
        _print_sweep_fit(cast("SweepProfile", fitted), console)
    else:
        _print_served_fit(cast("ServedFit", fitted), console)
    console.print(f"{fitted.profile.name} → {out}", markup=False, soft_wrap=True)
    if plot:
        from capplan.latency.plots import write_plot

        points = fitted.points if isinstance(fitted, PointsFit) else None
        write_plot(fitted.profile, plot, points)
        console.print(f"plot: {plot}", markup=False, soft_wrap=True)


def _print_points_fit(fitted: Fit, console: Console) -> None:
    forms = Table("part", "form", "free", "unseen points", "unseen sizes", "")
    for score in fitted.scores:
        forms.add_row(
            score.part,
            f"[bold]{score.form}[/bold]" if score.chosen else score.form,
            str(score.coefficients),
            f"{score.held_out_points:.2%}",
            f"{score.held_out_groups:.2%}",
            score.reason if score.chosen else "",
        )
    errors = Table("phase", "points", "mean error", "worst", "mean, held out")
    for phase, error in fitted.errors.items():
        errors.add_row(
            phase,
            str(error.points),
            f"{error.mean_abs:.2%}",
            f"{error.max_abs:.2%}",
            f"{error.held_out_mean_abs:.2%}",
        )
    console.print(forms, errors)


_TIMES = {
    "decode_factor": ("on the kernels of decoding", 1.0, ""),
    "prefill_factor": ("on the kernels of tokens beyond 64", 1.0, ""),
    "iteration_s": ("each iteration", 1e3, " ms"),
    "per_request_s": ("each running request in it", 1e6, " µs"),
    "request_s": ("each request, before its first token", 1e3, " ms"),
    "prompt_token_s": ("each prompt token, likewise", 1e6, " µs"),
}


def _print_sweep_fit(fitted: "SweepProfile", console: Console) -> None:
    tests = Table("isl/osl", "users", "measured", "calibrated", "left out, predicted")
    for point, ratio, unseen in zip(
        fitted.points, fitted.fit.ratio, fitted.held_out, strict=True
    ):
        tests.add_row(
            f"{point.isl:,}/{point.osl:,}",
            f"{point.concurrency:,}",
            _measured_text(point),
            f"{ratio - 1:+.1%}",
            f"{unseen - 1:+.1%}",
        )
    values = Table("value", "of", "fitted", "± standard error", "")
    for name, error, known in zip(
        _TIMES, fitted.fit.standard_errors, fitted.fit.determined, strict=True
    ):
        of, unit, text = _TIMES[name]
        values.add_row(
            name,
            of,
            f"{getattr(fitted.fit.time, name) * unit:.3g}{text}",
            f"{error * unit:.2g}{text}",
            "" if known else "not determined by these tests: near the shipped value",
        )
    off = abs(fitted.held_out - 1)
    console.print(tests, values)
    console.print(
        f"Concurrencies left out are predicted within {np.median(off):.1%} in the "
        f"median and {off.max():.1%} at worst."
    )


def _measured_text(point: "SweepPoint") -> str:
    if point.tpot_s is not None:
        return f"TPOT {point.tpot_s * 1e3:.4g} ms"
    if point.output_tokens_per_s is not None:
        return f"{point.output_tokens_per_s:,.0f} tokens/s"
    return f"TTFT {(point.ttft_s or 0.0) * 1e3:.4g} ms"


def _print_served_fit(fitted: "ServedFit", console: Console) -> None:
    calibration, engine, run = fitted.calibration, fitted.engine, fitted.run
    failed = f", {run.failed} failed" if run.failed else ""
    console.print(
        f"{len(calibration.fitted_rows)} of {len(run.arrival_s)} served requests "
        f"fitted{failed}; simulated with {engine.max_num_batched_tokens:,} tokens and "
        f"{engine.max_num_seqs:,} requests an iteration, {engine.kv_blocks:,} KV "
        f"blocks of {engine.block_size} tokens ({fitted.kv_source}), "
        f"async scheduling {_on(engine.async_scheduling)}, "
        f"prefix caching {_on(engine.prefix_caching)}"
    )
    coefficients = Table("coefficient", "of", "µs", "± standard error", "")
    for name, value_s, error_s, identified in zip(
        _MEANINGS,
        calibration.coefficients_s,
        calibration.standard_errors_s,
        calibration.identified,
        strict=True,
    ):
        coefficients.add_row(
            name,
            _MEANINGS[name],
            _micro(value_s),
            _micro(error_s),
            "" if identified else "not identified by this run",
        )
    errors = Table("requests'", "mean error", "worst", "second half, held out")
    for metric, phase in (("TTFT", "prefill"), ("TPOT", "decode")):
        record = fitted.profile.errors[phase]
        held_out = record.held_out_mean_abs
        errors.add_row(
            metric,
            f"{record.mean_abs:.2%}",
            f"{record.max_abs:.2%}",
            "" if held_out is None else f"{held_out:.2%}",
        )
    console.print(coefficients, errors)
    if not calibration.identified.all():
        console.print(
            "A coefficient that is not identified is in the profile as fitted, but "
            "other values explain this run as well: serve other lengths or rates to "
            "determine it."
        )


def _micro(value_s: float) -> str:
    value_us = 1e6 * value_s
    return f"{value_us:,.0f}" if value_us >= 100 else f"{value_us:.3g}"


def _on(setting: bool) -> str:
    return "on" if setting else "off"
