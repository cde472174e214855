"""What a simulation says of the SLO: the one judgement that every command reports."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from capplan.simulator.metrics import is_stable, share_interval, windowed_interval
from capplan.simulator.times import LIMITS, METRICS, Simulation
from capplan.workload.slo import Slo

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)
"""Percentiles reported of each latency."""

LEVELS = np.concatenate([np.linspace(0, 0.99, 100), [0.995, 0.999, 1.0]])
"""Levels at which the latency distributions are drawn."""

_SHARES = np.array(PERCENTILES) / 100


@dataclass(frozen=True)
class Attainment:
    """Share of the counted requests that meet their SLO.

    Parameters
    ----------
    share
        Share that meets all limits.
    interval
        Its 95 % interval (low, high), by batch means.
    by_limit
        Share that meets each limit alone: "ttft", "tpot", "e2e".
    by_class
        Share by class of the trace.
    request_count
        Counted requests that meet all limits.
    """

    share: float
    interval: tuple[float, float]
    by_limit: dict[str, float]
    by_class: dict[str, float]
    request_count: int


@dataclass(frozen=True, eq=False)
class Judgement:
    """What is counted of a simulation, and what it shows.

    Parameters
    ----------
    warmup_s
        Requests that arrive in this first part are not counted. [s]
    counted_request_count
        Requests that count.
    stable
        Whether the backlog does not grow.
    attainment
        Of the SLO; None without an SLO, or where nothing is counted.
    meets
        Whether the attainment is at or above the target and the backlog does not
        grow; False without an SLO.
    percentiles
        By metric of METRICS: mean, then PERCENTILES; NaN where none is known. [s]
    quantiles_s
        By metric of METRICS: the values at LEVELS, shape (levels,). [s]
    """

    warmup_s: float
    counted_request_count: int
    stable: bool
    attainment: Attainment | None
    meets: bool
    percentiles: dict[str, tuple[float, ...]]
    quantiles_s: dict[str, np.ndarray]

    def p99_s(self, metric: str) -> float:
        """Return the 99th percentile of a metric; NaN where none is known. [s]"""
        return self.percentiles[metric][1 + PERCENTILES.index(99.0)]


def judge(
    simulation: Simulation,
    slo: Slo | None,
    warmup_s: float = 0.0,
    metrics: tuple[str, ...] = METRICS,
) -> Judgement:
    """Return the judgement of a simulation.

    Parameters
    ----------
    simulation
        With its table of requests, or with counts by window made for the same SLO
        and warm-up.
    slo
        Limits by class; None to judge latencies and stability only.
    warmup_s
        Length of the warm-up, from the first arrival. [s]
    metrics
        Latencies to report; fewer take less time.
    """
    measured = (
        _of_table(simulation, slo, warmup_s, metrics)
        if simulation.windows is None
        else _of_windows(simulation, slo, metrics)
    )
    share = None if measured.attainment is None else measured.attainment.share
    stable = is_stable(simulation, measured.start_s + warmup_s)
    meets = slo is not None and share is not None and share >= slo.attainment
    return Judgement(
        warmup_s=warmup_s,
        counted_request_count=measured.counted_request_count,
        stable=stable,
        attainment=measured.attainment,
        meets=meets and stable,
        percentiles=measured.percentiles,
        quantiles_s=measured.quantiles_s,
    )


class _Measured(NamedTuple):
    start_s: float
    counted_request_count: int
    attainment: Attainment | None
    percentiles: dict[str, tuple[float, ...]]
    quantiles_s: dict[str, np.ndarray]


def _of_table(
    simulation: Simulation, slo: Slo | None, warmup_s: float, metrics: tuple[str, ...]
) -> _Measured:
    times = simulation.table
    start_s = float(times.arrival_s[0])
    # Arrivals are in order: those that count are the last ones.
    counted = times.select(
        slice(int(np.searchsorted(times.arrival_s, start_s + warmup_s)), None)
    )
    attainment = None
    if slo is not None and len(counted):
        met = counted.met(slo.columns(counted.request_class, simulation.class_names))
        attained = np.logical_and.reduce(met)
        attainment = Attainment(
            share=float(attained.mean()),
            interval=share_interval(attained),
            by_limit={
                name: float(hits.mean()) for name, hits in zip(LIMITS, met, strict=True)
            },
            by_class={
                name: float(attained[rows].mean())
                for index, name in enumerate(simulation.class_names)
                if (rows := counted.request_class == index).any()
            },
            request_count=int(attained.sum()),
        )
    percentiles, quantiles_s = {}, {}
    for name in metrics:
        values_s = getattr(counted, name)
        known_s = values_s[~np.isnan(values_s)]
        # One call: sorting takes longer than reading the levels off.
        at_s = (
            np.quantile(known_s, [*_SHARES, *LEVELS])
            if known_s.size
            else np.full(len(_SHARES) + len(LEVELS), np.nan)
        )
        mean_s = float(known_s.mean()) if known_s.size else float("nan")
        percentiles[name] = (mean_s, *at_s[: len(_SHARES)].tolist())
        quantiles_s[name] = at_s[len(_SHARES) :]
    return _Measured(start_s, len(counted), attainment, percentiles, quantiles_s)


def _of_windows(
    simulation: Simulation, slo: Slo | None, metrics: tuple[str, ...]
) -> _Measured:
    windows = simulation.windows
    assert windows is not None
    used = len(simulation.series.start_s)
    columns = {name: column[:used] for name, column in windows.columns.items()}
    counted = float(columns["counted"].sum())
    attainment = None
    if slo is not None and counted:
        by_class = windows.by_class[:used].sum(axis=0)
        attainment = Attainment(
            share=float(columns["attained"].sum()) / counted,
            interval=windowed_interval(columns["attained"], columns["counted"]),
            by_limit={name: float(columns[name].sum()) / counted for name in LIMITS},
            by_class={
                name: float(hits / requests)
                for name, (requests, hits) in zip(
                    simulation.class_names, by_class, strict=False
                )
                if requests
            },
            request_count=int(columns["attained"].sum()),
        )
    histograms = {name: windows.histogram(name, used) for name in metrics}
    return _Measured(
        windows.start_s,
        int(counted),
        attainment,
        {
            name: (histogram.mean_s, *histogram.quantiles_s(_SHARES).tolist())
            for name, histogram in histograms.items()
        },
        {name: histogram.quantiles_s(LEVELS) for name, histogram in histograms.items()},
    )
