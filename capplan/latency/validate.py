"""Errors of a profile on points it was not fitted to."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from capplan.latency.measurements import Points
from capplan.latency.profile import Profile


class Validation(NamedTuple):
    """Relative errors of a profile on points, by phase and by region."""

    mean_abs_error_by_phase: dict[str, float]
    max_abs_error_by_phase: dict[str, float]
    bias_by_phase: dict[str, float]
    """Mean signed error; positive when the profile is too slow."""
    points_by_phase: dict[str, int]
    mean_abs_error_by_region: dict[str, float]
    """Mean error by quartile of prompt tokens (prefill) or of the batch."""


def validate(profile: Profile, points: Points) -> Validation:
    """Return the relative errors of a profile on points."""
    error = profile.predict(points) / points.seconds - 1
    phases = points.phases()
    region: dict[str, float] = {}
    for name, rows in phases.items():
        work = points.prefill_tokens if name == "prefill" else points.decoding
        region |= _regions(name, work[rows], np.abs(error[rows]))
    return Validation(
        {name: float(np.abs(error[rows]).mean()) for name, rows in phases.items()},
        {name: float(np.abs(error[rows]).max()) for name, rows in phases.items()},
        {name: float(error[rows].mean()) for name, rows in phases.items()},
        {name: int(rows.sum()) for name, rows in phases.items()},
        region,
    )


def _regions(name: str, work: np.ndarray, error: np.ndarray) -> dict[str, float]:
    unit = "tokens" if name == "prefill" else "requests"
    edges = np.unique(np.quantile(work, [0, 0.25, 0.5, 0.75, 1], method="nearest"))
    if len(edges) < 2:
        return {f"{name} of {edges[0]:g} {unit}": float(error.mean())}
    regions = {}
    for low, high in pairwise(edges):
        last = high == edges[-1]
        rows = (work >= low) & ((work <= high) if last else (work < high))
        regions[f"{name} of {low:g} to {high:g} {unit}"] = float(error[rows].mean())
    return regions
