"""Counts of one simulated sample: what an attainment and its interval are made of."""

from dataclasses import dataclass, replace

import numpy as np

from capplan.simulator.results.answers import Answers, answers_in
from capplan.simulator.results.histogram import Histogram
from capplan.simulator.results.request_times import METRICS
from capplan.simulator.results.times import Simulation
from capplan.simulator.results.turns import with_scopes
from capplan.simulator.results.windows import window_index
from capplan.workload.slo import LIMITS, Slo, base_classes

_MOST_CLASSES = 1000
"""Classes of which windows are kept apart; of more, attainment has no interval."""


@dataclass(frozen=True, eq=False)
class ClassCounts:
    """Counts of a sample by class, without the limits in a class's name."""

    names: tuple[str, ...]
    block_counted: np.ndarray  # by window of arrival, shape (windows, classes)
    block_attained: np.ndarray  # the same
    # class of each value in ``latencies_s``; empty where these are histograms
    latency_class: dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Sample:
    """Counts of one simulated sample of the traffic; its warm-up is left out."""

    counted: np.ndarray  # requests, shape (classes,)
    attained: np.ndarray  # those that meet all limits, shape (classes,)
    met: np.ndarray  # those that meet each of LIMITS, shape (4,)
    block_counted: np.ndarray  # by window of arrival, shape (windows,)
    block_attained: np.ndarray  # by window of arrival, shape (windows,)
    latencies_s: dict[str, np.ndarray | Histogram]  # by metric [s]
    # mean until first scheduled, in the middle and last tenth of the arrivals' time [s]
    wait_s: tuple[float, float]
    service_s: float  # mean time from first scheduling to last token [s]
    duration_s: float  # of the arrivals [s]
    classes: ClassCounts | None = None  # None where there is one, or very many
    answers: Answers | None = None  # of users who wait for them
    by_session: bool = False  # blocks are sessions and no windows


def sample_of(
    simulation: Simulation,
    slo: Slo | None,
    warmup_s: float = 0.0,
    metrics: tuple[str, ...] = METRICS,
    until_s: float = np.inf,
) -> Sample:
    """Return the counts of a simulation; without an SLO of latencies only.

    Requests count that arrive after ``warmup_s`` and before ``until_s``, both from the
    first arrival. Where requests were not kept, its windows were made for the same SLO
    and warm-up. Fewer metrics take less time.
    """
    if simulation.windows is not None:
        return _sample_of_windows(simulation, metrics)
    turns = simulation.turns
    if turns is not None:
        simulation = with_scopes(simulation, () if slo is None else slo.scopes)
        order = np.argsort(simulation.table.arrival_s, kind="stable")
        simulation = replace(simulation, times=simulation.table.select(order))
        turns = None if simulation.turns is None else simulation.turns.select(order)
    times = simulation.table
    first, end = np.searchsorted(
        times.arrival_s - times.arrival_s[0], [warmup_s, until_s]
    )
    counted = times.select(slice(int(first), int(end)))
    scopes = slo.scopes if slo else ()
    turn_classes = len(simulation.class_names) - len(scopes)
    is_turn = counted.request_class < turn_classes
    classes, n = len(simulation.class_names), len(counted)
    met = (np.ones(n, bool),) * len(LIMITS)
    if slo is not None:
        met = counted.met(slo.columns(counted.request_class, simulation.class_names))
    attained = np.logical_and.reduce(met)
    # Windows as a streamed simulation has them, so that both judge alike.
    index, windows = window_index(
        counted.arrival_s, float(times.arrival_s[0]), float(times.arrival_s[-1])
    )
    columns_s = {name: getattr(counted, name) for name in metrics}
    known = {
        name: ~np.isnan(values_s) & is_turn for name, values_s in columns_s.items()
    }
    blocks, block_count = index, windows
    if turns is not None:
        blocks, block_count = _by_session(turns.session[int(first) : int(end)])
    names, base = base_classes(simulation.class_names)
    by_class = None
    if 1 < len(names) <= _MOST_CLASSES:
        of, cells = base[counted.request_class], (block_count, len(names))
        cell, cell_count = blocks * len(names) + of, block_count * len(names)
        by_class = ClassCounts(
            names,
            np.bincount(cell, minlength=cell_count).reshape(cells),
            np.bincount(cell, attained, cell_count).reshape(cells),
            {name: of[rows] for name, rows in known.items()},
        )
    start_s, asked_until_s = float(times.arrival_s[0]), simulation.asked_until_s
    answers = None
    if asked_until_s is not None:
        until_s = min(start_s + until_s, asked_until_s)
        done, asked = times, counted
        if scopes:
            done = times.select(times.request_class < turn_classes)
            asked = counted.select(is_turn)
        answers = answers_in(done, asked, start_s + warmup_s, until_s)
    return Sample(
        counted=np.bincount(counted.request_class, minlength=classes),
        attained=np.bincount(counted.request_class, attained, classes),
        met=np.array([hits.sum() for hits in met]),
        block_counted=np.bincount(blocks, minlength=block_count),
        block_attained=np.bincount(blocks, attained, block_count),
        latencies_s={name: columns_s[name][rows] for name, rows in known.items()},
        wait_s=_wait_s(
            np.bincount(index, minlength=windows),
            np.bincount(index, counted.wait_s, windows),
        ),
        service_s=float((counted.e2e_s - counted.wait_s).mean()) if n else 0.0,
        duration_s=simulation.totals.duration_s,
        classes=by_class,
        answers=answers,
        by_session=turns is not None,
    )


def _by_session(session: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the block of each row, (n,), in order of sessions' first, and how many."""
    _, first, label = np.unique(session, return_index=True, return_inverse=True)
    place = np.empty(len(first), np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    return place[label], len(first)


def _sample_of_windows(simulation: Simulation, metrics: tuple[str, ...]) -> Sample:
    windows = simulation.windows
    assert windows is not None
    used = len(simulation.series.start_s)
    columns = {name: column[:used] for name, column in windows.columns.items()}
    by_class = np.zeros((len(simulation.class_names), 2))
    known = windows.by_class[:used].sum(axis=0)[: len(by_class)]
    by_class[: len(known)] = known
    counted = columns["counted"].sum()
    service_s = columns["e2e_s"].sum() - columns["wait_s"].sum()
    return Sample(
        counted=by_class[:, 0],
        attained=by_class[:, 1],
        met=np.array([columns[name].sum() for name in LIMITS]),
        block_counted=columns["counted"],
        block_attained=columns["attained"],
        latencies_s={name: windows.histogram(name, used) for name in metrics},
        wait_s=_wait_s(columns["counted"], columns["wait_s"]),
        service_s=float(service_s / counted) if counted else 0.0,
        duration_s=simulation.totals.duration_s,
        classes=_classes_of_windows(windows.by_class[:used], simulation.class_names),
    )


def _classes_of_windows(
    by_class: np.ndarray, class_names: tuple[str, ...]
) -> ClassCounts | None:
    """Return the counts of windows, shape (windows, classes, 2), by class."""
    names, base = base_classes(class_names)
    if not 1 < len(names) <= _MOST_CLASSES:
        return None
    blocks = np.zeros((2, len(by_class), len(names)))
    known = by_class[:, : len(base)]
    for k in range(known.shape[1]):
        blocks[:, :, base[k]] += known[:, k].T
    return ClassCounts(names, blocks[0], blocks[1], {})


def _wait_s(counted: np.ndarray, wait_s: np.ndarray) -> tuple[float, float]:
    """Return the mean wait in the middle and in the last tenth of the windows. [s]"""
    used = len(counted)
    tenth = max(1, used // 10)
    middle = used // 2 - tenth // 2
    parts = (slice(middle, middle + tenth), slice(used - tenth, used))
    means = [
        float(wait_s[part].sum() / counted[part].sum()) if counted[part].sum() else 0.0
        for part in parts
    ]
    return means[0], means[1]
