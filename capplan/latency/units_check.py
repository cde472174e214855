"""Detect a column of times in a wrong unit, by comparison with a roofline."""

import numpy as np

from capplan.errors import ProfileError
from capplan.fleet.gpu import Gpu
from capplan.latency.forms import iteration_s
from capplan.latency.measurements import Points
from capplan.latency.roofline import roofline_terms
from capplan.llm.architecture import Architecture

FASTEST, SLOWEST = 1 / 4, 100
"""Range of measured over estimated time outside which the unit must be wrong."""


def check_seconds(
    points: Points, llm: Architecture, gpu: Gpu, tp: int, source: str
) -> None:
    """Refuse times that no engine can have with this LLM, GPU type and TP degree."""
    estimate_s = iteration_s(*roofline_terms(llm, gpu, tp), points)
    ratio = float(np.median(points.seconds / estimate_s))
    if FASTEST <= ratio <= SLOWEST:
        return
    hint = "is this another LLM, GPU or unit?"
    if ratio > SLOWEST:
        hint = "are these milliseconds?"
    median_s, sheet_s = np.median(points.seconds), np.median(estimate_s)
    raise ProfileError(
        f"{source}: seconds are {ratio:,.3g} times what {llm.name} on {tp} × "
        f"{gpu.name} takes by data sheet (median {median_s:.3g} against "
        f"{sheet_s:.3g} s); {hint}"
    )
