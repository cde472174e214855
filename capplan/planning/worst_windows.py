"""Attainment in the worst windows of time: what a mean over a day hides."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from capplan.simulator.metrics import requests_needed
from capplan.simulator.request_times import RequestTimes
from capplan.workload.slo import Group, Slo

WIDTHS_S = (300.0, 3600.0)
"""Windows that are told: five minutes, and an hour. [s]"""


@dataclass(frozen=True)
class WorstWindow:
    """The window of a length in which the attainment is furthest below its target.

    Windows follow one another from the first arrival on.
    """

    seconds: float  # its length [s]
    start_s: float  # after the first arrival [s]
    rate_per_s: float  # of the requests that arrive in it [requests/s]
    slo_attainment: float  # share of these that meet the SLO, of the worst group
    classes: tuple[str, ...]  # of that group
    meets: bool  # whether that group attains its target in it, and so in all windows


def worst_windows(
    times: RequestTimes,
    slo: Slo,
    class_names: tuple[str, ...],
    warmup_s: float = 0.0,
    attain_in_s: float | None = None,
) -> tuple[WorstWindow, ...]:
    """Return the worst window of each length, where one has the requests to tell.

    Of five minutes, of an hour, and of ``attain_in_s``; of lengths that the arrivals
    outlast.
    """
    duration_s = float(times.arrival_s[-1] - times.arrival_s[0])
    widths_s = {*WIDTHS_S, *([] if attain_in_s is None else [attain_in_s])}
    met = times.met(slo.columns(times.request_class, class_names))
    attained = np.logical_and.reduce(met)
    since_s = times.arrival_s - times.arrival_s[0]
    groups = slo.groups(class_names)
    found = (
        _worst(since_s, since_s >= warmup_s, attained, times, groups, width_s)
        for width_s in sorted(widths_s)
        if width_s < duration_s
    )
    return tuple(window for window in found if window is not None)


def _worst(
    since_s: np.ndarray,
    counts: np.ndarray,
    attained: np.ndarray,
    times: RequestTimes,
    groups: Iterable[Group],
    width_s: float,
) -> WorstWindow | None:
    index = (since_s / width_s).astype(np.int64)
    arrivals = np.bincount(index)
    worst, worst_margin = None, np.inf
    for group in groups:
        rows = counts & np.isin(times.request_class, group.indices)
        counted = np.bincount(index[rows], minlength=len(arrivals))
        kept = np.bincount(index[rows], attained[rows], len(arrivals))
        is_told = counted >= requests_needed(group.target)
        share = np.where(is_told, kept / np.maximum(counted, 1), np.inf)
        k = int(np.lexsort((-arrivals, share))[0])  # of equals the busiest
        margin = float(share[k] - group.target)
        if not is_told.any() or margin >= worst_margin:
            continue
        worst_margin = margin
        worst = WorstWindow(
            seconds=width_s,
            start_s=k * width_s,
            rate_per_s=float(arrivals[k]) / width_s,
            slo_attainment=float(share[k]),
            classes=group.names,
            meets=margin >= 0,
        )
    return worst
