"""What each class of the requests attains, against its own limits and target."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from capplan.simulator.results.sample import Sample
from capplan.workload.slo import Group, Slo, base_classes

Interval = tuple[float, float]
_METRICS = ("ttft_s", "tpot_s", "e2e_s")
TAIL = np.array([0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9998, 0.9999])
"""Levels of the tails of a class's latencies."""
_P99 = 3
"""Place of 99 % in TAIL."""
_FEW = 20


@dataclass(frozen=True)
class ClassResult:
    """Attainment and latencies of one class of the requests that count."""

    class_name: str
    slo_text: str  # limits on its requests: "ttft ≤ 1 s"
    attainment: float  # share of the requests of ``attainment_of`` that must meet them
    attainment_of: tuple[str, ...]  # classes that attain it together
    slo_attainment: float
    slo_attainment_interval: Interval  # 95 % (low, high); NaN where not known
    counted_request_count: int
    ttft_p99_s: float  # 99th percentile; NaN where not known [s]
    tpot_p99_s: float  # [s]
    e2e_p99_s: float  # [s]
    # that all its requests share, by metric; one without is left out [s]
    limits_s: dict[str, float] = field(default_factory=dict)
    # by metric: the values at TAIL; NaN where too few requests tell [s]
    tails_s: dict[str, tuple[float, ...]] = field(default_factory=dict)


def class_results(
    samples: Sequence[Sample],
    slo: Slo,
    class_names: tuple[str, ...],
    interval: Callable[[Group], Interval],
) -> tuple[ClassResult, ...]:
    """Return the classes of which requests count, in the order of the trace.

    None where there is one class: its attainment is that of all requests.
    """
    names, base = base_classes(class_names)
    if len(names) < 2:
        return ()
    counted = np.bincount(base, np.sum([s.counted for s in samples], axis=0))
    attained = np.bincount(base, np.sum([s.attained for s in samples], axis=0))
    group_of = {name: x for x in slo.groups(class_names) for name in x.names}
    tails_s = {metric: _tails_s(samples, metric, len(names)) for metric in _METRICS}
    results = []
    for k in np.flatnonzero(counted):
        if names[k] not in group_of:  # first turns without limits
            continue
        group, indices = group_of[names[k]], tuple(np.flatnonzero(base == k).tolist())
        own_names = tuple(class_names[row] for row in indices)
        told = (1 - TAIL) * counted[k] >= 1
        results.append(
            ClassResult(
                names[k],
                slo.describe(own_names),
                group.target,
                group.names,
                float(attained[k] / counted[k]),
                interval(Group((names[k],), indices, group.target)),
                int(counted[k]),
                ttft_p99_s=float(tails_s["ttft_s"][k, _P99]),
                tpot_p99_s=float(tails_s["tpot_s"][k, _P99]),
                e2e_p99_s=float(tails_s["e2e_s"][k, _P99]),
                limits_s=slo.shared_limits_s(own_names),
                tails_s={
                    metric.removesuffix("_s"): tuple(
                        np.where(told, tails_s[metric][k], np.nan).tolist()
                    )
                    for metric in _METRICS
                },
            )
        )
    return tuple(results)


def few(classes: tuple[ClassResult, ...]) -> tuple[ClassResult, ...]:
    """Return the classes where they are few enough to be kept for every count."""
    return classes if len(classes) <= _FEW else ()


def own_targets(classes: tuple[ClassResult, ...]) -> bool:
    """Return whether classes have targets of their own, not one for all together."""
    return len({row.attainment_of for row in classes}) > 1


def _tails_s(samples: Sequence[Sample], metric: str, classes: int) -> np.ndarray:
    """Return the values of each class at TAIL, shape (classes, levels). [s]"""
    tails_s = np.full((classes, len(TAIL)), np.nan)
    parts = [(s.latencies_s.get(metric), s.classes) for s in samples]
    kept = [
        (values_s, of.latency_class[metric])
        for values_s, of in parts
        if isinstance(values_s, np.ndarray) and of is not None
    ]
    if kept:
        values_s, of_value = map(np.concatenate, zip(*kept, strict=True))
        # Of so short numbers numpy sorts by digits, eight times as fast.
        order = np.argsort(of_value.astype(np.int16), kind="stable")
        ends = np.cumsum(np.bincount(of_value, minlength=classes))
        for k, part in enumerate(np.split(values_s[order], ends[:-1])):
            if part.size:
                tails_s[k] = np.quantile(part, TAIL)
    return tails_s
