"""Run scenes in turn, more than once, and return medians and their spread."""

import random
from collections.abc import Callable, Iterator, Sequence
from statistics import median, quantiles

from capplan.profiling.point_file import Row
from capplan.profiling.scenes import Point, Sample, Scene

NOISY_SPREAD = 0.05
"""Interquartile range over the median above which a point is measured again."""
EXTRA_ROUNDS = 2


def spread(seconds: Sequence[float]) -> float:
    """Return the interquartile range over the median.

    Examples
    --------
    >>> spread([1.0, 1.0, 1.0, 1.0, 9.0])
    0.0
    """
    if len(seconds) < 2:
        return 0.0
    low, _, high = quantiles(seconds, n=4, method="inclusive")
    return (high - low) / median(seconds)


def measured_row(point: Point, rounds_s: list[list[float]]) -> Row:
    """Return the point with the median of its rounds' medians.

    Iterations of a round follow each other and suffer the same disturbance, so a
    round counts once.
    """
    seconds = [value for values in rounds_s for value in values]
    middle = median(median(values) for values in rounds_s)
    iqr = spread(seconds)
    return Row(point, middle, iqr, len(seconds), iqr > NOISY_SPREAD)


def measure_in_turn(
    scenes: Sequence[Scene],
    rounds: int,
    run: Callable[[Scene], list[Sample]],
    shuffle: random.Random,
) -> Iterator[tuple[Scene, list[Row] | None]]:
    """Run each scene ``rounds`` times, others in between, and again where noisy.

    Yield after each run its scene and None; at the end each scene and its rows.
    """
    rounds_s: dict[Scene, dict[Point, list[list[float]]]] = {s: {} for s in scenes}
    pending = list(scenes)
    for turn in range(rounds + EXTRA_ROUNDS):
        if turn >= rounds:
            pending = [s for s in pending if _is_noisy(rounds_s[s])]
        for scene in shuffle.sample(pending, len(pending)):
            round_s: dict[Point, list[float]] = {}
            for point, seconds in run(scene):
                round_s.setdefault(point, []).append(seconds)
            for point, values in round_s.items():
                rounds_s[scene].setdefault(point, []).append(values)
            yield scene, None
    for scene in scenes:
        yield scene, [measured_row(p, values) for p, values in rounds_s[scene].items()]


def _is_noisy(rounds_s: dict[Point, list[list[float]]]) -> bool:
    return any(measured_row(p, values).noisy for p, values in rounds_s.items())
