"""Figures of a window: as measured, and as simulated."""

from collections.abc import Mapping

import numpy as np

from capplan.workload.metrics.windows import Window

_LATENCIES = ("ttft_s", "itl_s", "tpot_s", "e2e_s", "queue_s", "prefill_s")
_SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_COUNTERS = {
    "requests_per_s": "ended",
    "prompt_tokens_per_s": "prompt",
    "output_tokens_per_s": "generation",
}

Figures = Mapping[str, float]
"""By name, as ``ttft_s_mean``; those that are not known are left out."""


def figures(window: Window) -> Figures:
    """Return the figures of a window. A quantile is even within its bucket."""
    found: dict[str, float] = {}
    for name in _LATENCIES:
        of = window.observed(name)
        if of is not None and of.count:
            found[f"{name}_mean"] = of.mean
            found |= {f"{name}_{x}": of.quantile(at) for x, at in _SHARES.items()}
    for name in ("running", "waiting"):
        values = window.gauge(name)
        found |= {name: float(values.mean()), f"{name}_p95": _p95(values)}
    found["kv_use"] = float(window.gauge("kv_use").mean())
    for name, counter in _COUNTERS.items():
        found[name] = window.count(counter) / window.lasts_s
    found |= {"hit_rate": window.hit_rate, "preemptions": window.count("preemptions")}
    return {name: value for name, value in found.items() if np.isfinite(value)}


def ratios(measured: Figures, simulated: Figures) -> Figures:
    """Return measured over simulated, of those that both have."""
    return {
        name: measured[name] / simulated[name]
        for name in measured
        if simulated.get(name, 0.0) > 0
    }


def _p95(values: np.ndarray) -> float:
    return float(np.quantile(values, 0.95))
