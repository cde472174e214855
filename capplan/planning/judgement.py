"""What simulated samples say of the SLO: the one judgement that every command reports.

Arrivals that are drawn are judged by independent samples (replications), so that the
interval of the attainment does not rest on one draw; a trace with its own times is
one sample, judged as it is, its interval by blocks of time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtri, stdtrit

from capplan.planning.classes import ClassResult, class_results
from capplan.simulator.histogram import Histogram
from capplan.simulator.metrics import CONFIDENCE, share_interval
from capplan.simulator.sample import Sample
from capplan.workload.slo import LIMITS, Group, Slo, base_classes

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)
"""Percentiles reported of each latency."""

LEVELS = np.concatenate([np.linspace(0, 0.99, 100), [0.995, 0.999, 1.0]])
"""Levels at which the latency distributions are drawn."""

DECISION_CONFIDENCE = 0.99
"""Confidence at which a count is said to meet the SLO, or to miss it."""

_SHARES = np.array(PERCENTILES) / 100
_DRIFT_SHARE = 0.005
"""Growth of the queue's wait, as a share of time, that a fleet with 0.5 % too little
capacity shows."""
_DRIFT_CONFIDENCE = 0.999
_SCATTER_CONFIDENCE = 0.8
_HOPELESS = 0.5
"""Share of its target below which a group's attainment takes no further sample."""


@dataclass(frozen=True)
class Attainment:
    """Share of the counted requests that meet their SLO."""

    share: float  # that meets all limits
    interval: tuple[float, float]  # 95 % (low, high): between samples or blocks of time
    by_limit: dict[str, float]  # each of LIMITS alone
    by_class: dict[str, float]  # of the trace, whatever requests' own limits
    request_count: int  # counted requests that meet all limits


@dataclass(frozen=True, eq=False)
class Judgement:
    """What is counted of a deployment's samples, and what it shows."""

    warmup_s: float  # arrivals in this first part of a sample do not count [s]
    counted_request_count: int  # of all samples
    sample_count: int  # independent samples; 1 for a trace with its own times
    sample_length: int  # times that they are as long as the first one
    stable: bool  # the wait in the queue does not grow
    attainment: Attainment | None  # None without an SLO, or where nothing is counted
    meets: bool | None  # None where too close to call; False without an SLO
    missing: tuple[str, ...]  # classes below their target
    # by metric of METRICS: mean, then PERCENTILES; NaN where none is known [s]
    percentiles: dict[str, tuple[float, ...]]
    # by metric of METRICS: the values at LEVELS, shape (levels,) [s]
    quantiles_s: dict[str, np.ndarray]
    classes: tuple[ClassResult, ...] = ()  # where there are several, with an SLO

    def p99_s(self, metric: str) -> float:
        """Return the 99th percentile of a metric; NaN where none is known. [s]"""
        return self.percentiles[metric][1 + PERCENTILES.index(99.0)]


def verdict(
    samples: Sequence[Sample], slo: Slo, class_names: tuple[str, ...]
) -> bool | None:
    """Return whether the samples meet the SLO; None where they are too close to call.

    Of one sample, the SLO is met where every group of classes attains its target. Of
    several, that is decided where the 99 % interval between samples is on one side
    of the target. Either way the wait in the queue must not grow.
    """
    verdicts = [
        _group_verdict(samples, group)
        for group in slo.groups(class_names)
        if _counts(samples, group)[0].sum()
    ]
    if not verdicts or False in verdicts or not _is_stable(samples):
        return False
    return None if None in verdicts else True


def judge(
    samples: Sequence[Sample],
    slo: Slo | None,
    class_names: tuple[str, ...],
    warmup_s: float = 0.0,
    sample_length: int = 1,
) -> Judgement:
    """Return the judgement of a deployment's samples."""
    counted = int(sum(sample.counted.sum() for sample in samples))
    judged = slo is not None and counted > 0
    distributions = {
        name: _distribution(samples, name) for name in samples[0].latencies_s
    }
    return Judgement(
        warmup_s=warmup_s,
        counted_request_count=counted,
        sample_count=len(samples),
        sample_length=sample_length,
        stable=_is_stable(samples),
        attainment=_attainment(samples, class_names) if judged else None,
        meets=False if slo is None else verdict(samples, slo, class_names),
        missing=tuple(
            name
            for group in (slo.groups(class_names) if slo is not None and judged else ())
            if _share(samples, group) < group.target
            for name in group.names
        ),
        percentiles={name: values for name, (values, _) in distributions.items()},
        quantiles_s={name: values for name, (_, values) in distributions.items()},
        classes=()
        if slo is None
        else class_results(
            samples,
            slo,
            class_names,
            lambda group: _interval(samples, group, CONFIDENCE),
        ),
    )


def _attainment(samples: Sequence[Sample], class_names: tuple[str, ...]) -> Attainment:
    counted = np.sum([sample.counted for sample in samples], axis=0)
    attained = np.sum([sample.attained for sample in samples], axis=0)
    met = np.sum([sample.met for sample in samples], axis=0)
    names, base = base_classes(class_names)
    by_name = zip(
        names, np.bincount(base, attained), np.bincount(base, counted), strict=True
    )
    everyone = Group(class_names, tuple(range(len(class_names))), 1.0)
    return Attainment(
        share=float(attained.sum() / counted.sum()),
        interval=_interval(samples, everyone, CONFIDENCE),
        by_limit={
            name: float(hits / counted.sum())
            for name, hits in zip(LIMITS, met, strict=True)
        },
        by_class={
            name: float(hits / requests) for name, hits, requests in by_name if requests
        },
        request_count=int(attained.sum()),
    )


def _counts(samples: Sequence[Sample], group: Group) -> tuple[np.ndarray, np.ndarray]:
    """Return counted and attained requests of a group by sample."""
    rows = list(group.indices)
    return (
        np.array([sample.counted[rows].sum() for sample in samples], float),
        np.array([sample.attained[rows].sum() for sample in samples], float),
    )


def _share(samples: Sequence[Sample], group: Group) -> float:
    counted, attained = _counts(samples, group)
    return float(attained.sum() / counted.sum()) if counted.sum() else 1.0


def _interval(
    samples: Sequence[Sample], group: Group, confidence: float
) -> tuple[float, float]:
    """Return the interval of a group's attainment.

    Between samples where there are several; between blocks of time of one.
    """
    if len(samples) == 1:
        counted, attained = _blocks(samples[0], group)
    else:
        counted, attained = _counts(samples, group)
    if not counted.sum():
        return math.nan, math.nan
    return share_interval(attained, counted, confidence)


def _blocks(sample: Sample, group: Group) -> tuple[np.ndarray, np.ndarray]:
    """Return counted and attained requests of a group by window of arrival.

    Nothing where there are too many classes to keep them apart.
    """
    if len(group.indices) == len(sample.counted):
        return sample.block_counted, sample.block_attained
    if sample.classes is None:
        return np.zeros(1), np.zeros(1)
    columns = [sample.classes.names.index(name) for name in group.names]
    return (
        sample.classes.block_counted[:, columns].sum(axis=1),
        sample.classes.block_attained[:, columns].sum(axis=1),
    )


def _group_verdict(samples: Sequence[Sample], group: Group) -> bool | None:
    """Return whether a group attains its target; None where it is too close to call.

    A target of 1 lies above every interval: it is met while no request misses.
    """
    share = _share(samples, group)
    if len(samples) == 1:
        return share >= group.target
    if group.target >= 1:
        return share >= 1
    low, high = _interval(samples, group, DECISION_CONFIDENCE)
    if low >= group.target:
        return True
    return False if high < group.target else None


def _is_stable(samples: Sequence[Sample]) -> bool:
    """Return whether the wait in the queue does not grow.

    A fleet with a share ε of capacity too little lets the wait grow by ε of the time
    that passes: by 0.45 ε of the arrivals' time from the middle to the last tenth.
    One sample must show 1 %, and more than a request's own time, since a queue that
    fills and drains again is no such fleet; several must show that chance does not
    explain 0.5 %.
    """
    growth_s = np.array([sample.wait_s[1] - sample.wait_s[0] for sample in samples])
    passed_s = 0.45 * np.array([sample.duration_s for sample in samples])
    if len(samples) == 1:
        enough_s = max(2 * _DRIFT_SHARE * passed_s[0], samples[0].service_s)
        return bool(growth_s[0] <= enough_s)
    growth = growth_s / np.maximum(passed_s, 1e-12)
    error = growth.std(ddof=1) / np.sqrt(len(growth))
    t = stdtrit(len(growth) - 1, _DRIFT_CONFIDENCE)
    return bool(growth.mean() - t * error <= _DRIFT_SHARE)


def is_hopeless(sample: Sample, slo: Slo, class_names: tuple[str, ...]) -> bool:
    """Return whether a group attains less than half of its target in one sample.

    Further samples do not bring it to the target.
    """
    return any(
        _share([sample], group) < _HOPELESS * group.target
        for group in slo.groups(class_names)
    )


def is_drifting(samples: Sequence[Sample], target: float) -> bool:
    """Return whether the attainment falls from the first half to the second.

    By more than chance explains, and by half of what the target allows to miss: then
    the samples are too short to show where it ends.
    """
    fall = np.array([s.half_shares[0] - s.half_shares[1] for s in samples])
    if len(fall) < 3 or fall.mean() <= (1 - target) / 2:
        return False
    error = fall.std(ddof=1) / np.sqrt(len(fall))
    return bool(fall.mean() > stdtrit(len(fall) - 1, DECISION_CONFIDENCE) * error)


def largest_scatter(samples: Sequence[Sample]) -> float:
    """Return how much the misses differ between samples at most, over their mean.

    The upper limit of their standard deviation, at 80 % confidence.
    """
    missed = np.array([s.counted.sum() - s.attained.sum() for s in samples], float)
    freedom = len(missed) - 1
    most = np.sqrt(freedom / chdtri(freedom, _SCATTER_CONFIDENCE))
    return float(most * missed.std(ddof=1) / max(missed.mean(), 1e-12))


def _distribution(
    samples: Sequence[Sample], metric: str
) -> tuple[tuple[float, ...], np.ndarray]:
    """Return mean and PERCENTILES, and the values at LEVELS, over all samples. [s]"""
    first = samples[0].latencies_s[metric]
    if isinstance(first, Histogram):  # a streamed simulation is one sample
        at_s = first.quantiles_s(np.concatenate([_SHARES, LEVELS]))
        mean_s = first.mean_s
    else:
        values_s = np.concatenate([sample.latencies_s[metric] for sample in samples])
        if not values_s.size:
            nothing = np.full(len(LEVELS), np.nan)
            return (float("nan"),) * (1 + len(_SHARES)), nothing
        values_s.sort()  # many levels are read off sorted values several times faster
        at_s = np.quantile(values_s, np.concatenate([_SHARES, LEVELS]))
        mean_s = float(values_s.mean())
    return (mean_s, *at_s[: len(_SHARES)].tolist()), at_s[len(_SHARES) :]
