"""What simulated samples say of the SLO: the one judgement that every command reports.

Arrivals that are drawn are judged by independent samples (replications), so that the
interval of the attainment does not rest on one draw; a trace with its own times is
one sample, judged as it is, its interval by blocks of time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from capplan.planning.evaluate.classes import TAIL, ClassResult, class_results
from capplan.planning.evaluate.steadiness import Steadiness
from capplan.planning.load.worst_windows import NO_WINDOWS, InWindows
from capplan.simulator.results.answers import Answers, together
from capplan.simulator.results.histogram import Histogram
from capplan.simulator.results.metrics import CONFIDENCE, share_interval
from capplan.simulator.results.sample import Sample
from capplan.workload.slo import LIMITS, Group, Slo, base_classes

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)
"""Percentiles reported of each latency."""

LEVELS = np.concatenate([np.linspace(0, 0.99, 100), TAIL[TAIL > 0.99], [1.0]])
"""Levels at which the latency distributions are drawn."""

DECISION_CONFIDENCE = 0.99
"""Confidence at which a count is said to meet the SLO, or to miss it."""

FEWEST = 5
"""Samples of drawn arrivals that may decide, at least."""
LOOKS = 10
"""Times at most that it is asked whether the samples decide.

The intervals of all looks together keep their confidence, whichever look ends the
sampling: each has a tenth of the error (Bonferroni's inequality; repeated confidence
intervals, Jennison & Turnbull, "Group Sequential Methods", chapter 9).
"""

_SHARES = np.array(PERCENTILES) / 100
_DRIFT_SHARE = 0.01
"""Growth of the queue's wait, as a share of time, that a fleet with 1 % too little
capacity shows."""
_HOPELESS = 0.5
"""Share of its target below which a group's attainment takes no further sample."""
_ROOMY = 0.25
"""Share of what may miss up to which few samples show that the SLO is met."""


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
    stable: bool  # the load is held: the wait in the queue does not grow
    steadiness: Steadiness
    open: str  # why it is not decided; empty where it is
    no_miss: bool  # open only because no sample shows that no request ever misses
    attainment: Attainment | None  # None without an SLO, or where nothing is counted
    meets: bool | None  # None where too close to call; False without an SLO
    missing: tuple[str, ...]  # classes below their target, in all or in a window
    # by metric of METRICS: mean, then PERCENTILES; NaN where none is known [s]
    percentiles: dict[str, tuple[float, ...]]
    # by metric of METRICS: the values at LEVELS, shape (levels,) [s]
    quantiles_s: dict[str, np.ndarray]
    classes: tuple[ClassResult, ...] = ()  # where there are several, with an SLO
    in_windows: InWindows = NO_WINDOWS  # of arrivals of a trace's own
    spent: bool = False  # more samples were wanted than the budget allowed
    answers: Answers | None = None  # of users, in what counts of the samples
    unsteady: str = ""  # what contradicts itself in them; empty: nothing

    @property
    def holds(self) -> bool:
        """Whether it is decided that the SLO is met, or no request misses it."""
        return self.meets is True or self.no_miss

    @property
    def seems_held(self) -> bool:
        """Whether the samples keep the SLO below capacity, decided or not."""
        if self.steadiness.utilisation >= 1:
            return False
        return self.stable and not self.missing

    def p99_s(self, metric: str) -> float:
        """Return the 99th percentile of a metric; NaN where none is known. [s]"""
        return self.percentiles[metric][1 + PERCENTILES.index(99.0)]

    @property
    def p99(self) -> dict[str, float]:
        """The 99th percentile of each metric. [s]"""
        return {metric: self.p99_s(metric) for metric in self.percentiles}


_UNKNOWN = Steadiness()


@dataclass(frozen=True)
class Judge:
    """Judges samples of requests of some classes by their SLO."""

    slo: Slo | None
    class_names: tuple[str, ...]
    steadiness: Steadiness = _UNKNOWN

    @property
    def groups(self) -> Sequence[Group]:
        """Classes that attain a target together; none without an SLO."""
        return () if self.slo is None else self.slo.groups(self.class_names)

    def verdict(self, samples: Sequence[Sample]) -> bool | None:
        """Return whether samples meet the SLO; None where they are too close to call.

        Of a trace with its own times, the one sample, the SLO is met where every group
        of classes attains its target, the wait in the queue does not grow, and it does
        not end in a backlog that would grow (``Steadiness.outpaced``). Of drawn
        arrivals that is decided where the 99 % interval is on one side of the target;
        that it is met, where the fleet also holds its load. A target of 1 is missed by
        one request, and no number of requests shows that it is met.
        """
        verdicts = [met for _, met in self._verdicts(samples)]
        if not verdicts or False in verdicts:
            return False
        steadiness = self.steadiness
        if not steadiness.drawn:
            lasts = steadiness.as_replayed or not steadiness.outpaced
            return lasts and _is_stable(samples[0])
        if steadiness.overloaded or self.is_hopeless(samples[0]):
            return False
        return None if None in verdicts or steadiness.open else True

    def is_hopeless(self, sample: Sample) -> bool:
        """Return whether a group attains less than half of its target in one sample.

        Further samples do not bring it to the target.
        """
        return any(
            _share([sample], group) < _HOPELESS * group.target for group in self.groups
        )

    def is_roomy(self, samples: Sequence[Sample]) -> bool:
        """Return whether each group misses at most a quarter of what it may.

        Then few samples are enough. Misses come in rare busy hours: nearer to the
        target a few quiet samples look alike, and an interval of theirs is too narrow.
        """
        return all(
            1 - _share(samples, group) <= _ROOMY * (1 - group.target)
            for group in self.groups
        )

    def judgement(self, samples: Sequence[Sample], warmup_s: float = 0.0) -> Judgement:
        """Return the judgement of a deployment's samples."""
        counted = int(sum(sample.counted.sum() for sample in samples))
        judged, names = self.slo is not None and counted > 0, self.class_names
        meets = self.verdict(samples)
        why, no_miss = self._open(samples) if meets is None else ("", False)
        distributions = {
            name: _distribution(samples, name) for name in samples[0].latencies_s
        }
        return Judgement(
            warmup_s=warmup_s,
            counted_request_count=counted,
            sample_count=len(samples),
            stable=_is_held(samples[0], self.steadiness),
            steadiness=self.steadiness,
            open=why,
            no_miss=no_miss,
            attainment=_attainment(samples, names, self.groups) if judged else None,
            meets=meets,
            missing=tuple(
                name
                for group in (self.groups if judged else ())
                if _share(samples, group) < group.target
                for name in group.names
            ),
            percentiles={name: values for name, (values, _) in distributions.items()},
            quantiles_s={name: values for name, (_, values) in distributions.items()},
            classes=()
            if self.slo is None
            else class_results(
                samples, self.slo, names, lambda of: _interval(samples, of, CONFIDENCE)
            ),
            answers=answered(samples),
        )

    def _verdicts(self, samples: Sequence[Sample]) -> list[tuple[Group, bool | None]]:
        """Return the groups that have requests, each with its own verdict."""
        return [
            (group, _group_verdict(samples, group, drawn=self.steadiness.drawn))
            for group in self.groups
            if counts_of(samples, group)[0].sum()
        ]

    def _open(self, samples: Sequence[Sample]) -> tuple[str, bool]:
        """Return why samples do not decide, and whether only more could show a miss."""
        if self.steadiness.open:
            return self.steadiness.open, False
        of_groups = self._verdicts(samples)
        if any(met is None and group.target < 1 for group, met in of_groups):
            few = f"too close to the target after {len(samples)} samples"
            return few, False
        counts = [counts_of(samples, of)[0].sum() for of, met in of_groups if not met]
        count = int(min(counts))
        least = math.floor((1 - CONFIDENCE) ** (1 / count) * 1e4) / 1e2
        return f"no miss in {count:,} requests: at least {least:.2f} % in time", True


def answered(samples: Sequence[Sample]) -> Answers | None:
    """Return what users were answered; None where requests arrive whatever."""
    parts = [each.answers for each in samples if each.answers is not None]
    return together(parts) if parts else None


def _attainment(
    samples: Sequence[Sample], class_names: tuple[str, ...], groups: Sequence[Group]
) -> Attainment:
    counted = np.sum([sample.counted for sample in samples], axis=0)
    attained = np.sum([sample.attained for sample in samples], axis=0)
    met = np.sum([sample.met for sample in samples], axis=0)
    names, base = base_classes(class_names)
    by_name = zip(
        names, np.bincount(base, attained), np.bincount(base, counted), strict=True
    )
    judged = sorted(index for group in groups for index in group.indices)
    of = tuple(name for group in groups for name in group.names)
    everyone = Group(of, tuple(judged), 1.0)
    return Attainment(
        share=_share(samples, everyone),
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


def counts_of(samples: Sequence[Sample], group: Group) -> tuple[np.ndarray, np.ndarray]:
    """Return counted and attained requests of a group by sample."""
    rows = list(group.indices)
    return (
        np.array([sample.counted[rows].sum() for sample in samples], float),
        np.array([sample.attained[rows].sum() for sample in samples], float),
    )


def alike(samples: Sequence[Sample], groups: Sequence[Group], part: float) -> bool:
    """Return whether samples attain as much of each group, or are on the same side.

    The shares differ by at most a part of what may miss, or are both on one side of the
    target.
    """
    for group in groups:
        counted, attained = counts_of(samples, group)
        share = attained / np.maximum(counted, 1)
        same_side = (share >= group.target).all() or (share < group.target).all()
        if not same_side and np.ptp(share) > part * (1 - group.target):
            return False
    return True


def _share(samples: Sequence[Sample], group: Group) -> float:
    counted, attained = counts_of(samples, group)
    return float(attained.sum() / counted.sum()) if counted.sum() else 1.0


def _interval(
    samples: Sequence[Sample], group: Group, confidence: float
) -> tuple[float, float]:
    """Return the interval of a group's attainment.

    Between samples where there are several, with a look's part of the error;
    between blocks of time of one. Between sessions where there are such, of all.
    """
    if len(samples) > 1:
        confidence = 1 - (1 - confidence) / LOOKS
    if len(samples) == 1 or samples[0].by_session:
        of = [_blocks(sample, group) for sample in samples]
        counted, attained = map(np.concatenate, zip(*of, strict=True))
    else:
        counted, attained = counts_of(samples, group)
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


def _group_verdict(
    samples: Sequence[Sample], group: Group, *, drawn: bool
) -> bool | None:
    """Return whether a group attains its target; None where it is too close to call."""
    share = _share(samples, group)
    if not drawn:
        return share >= group.target
    if group.target >= 1:
        return None if share >= 1 else False
    low, high = _interval(samples, group, DECISION_CONFIDENCE)
    if low >= group.target:
        return True
    return False if high < group.target else None


def _is_held(sample: Sample, steadiness: Steadiness) -> bool:
    """Return whether a fleet holds its load, as far as it is known."""
    if steadiness.overloaded or steadiness.outpaced or steadiness.settled is False:
        return False
    return bool(steadiness.settled) or _is_stable(sample)


def _is_stable(sample: Sample) -> bool:
    """Return whether the wait in the queue does not grow over a trace.

    A fleet with a share ε of capacity too little lets the wait grow by ε of the time
    that passes: by 0.45 ε of the arrivals' time from the middle to the last tenth. It
    must show 1 %, and more than a request's own time, since a queue that fills and
    drains again is no such fleet.
    """
    growth_s = sample.wait_s[1] - sample.wait_s[0]
    passed_s = 0.45 * sample.duration_s
    return bool(growth_s <= max(_DRIFT_SHARE * passed_s, sample.service_s))


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
