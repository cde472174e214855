"""Places of labels in a chart that no line crosses."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

_UP, _DOWN, _BESIDE = 12, 3, 3
"""Room that a text takes from its baseline and beside its ends. [px]"""
_STEP_PX = 2.0
_ANCHORS = ("start", "middle", "end")


class Spot(NamedTuple):
    """Where a text may stand: a point on its baseline, its start, middle or end."""

    x: float  # [px]
    y: float  # [px]
    anchor: str

    def left(self, width: float) -> float:
        """Return where a text of a width begins. [px]"""
        return self.x - width * _ANCHORS.index(self.anchor) / 2

    def points(self, width: float) -> np.ndarray:
        """Return points within a text of a width, shape (n, 2). [px]"""
        left = self.left(width)
        x = np.arange(left, left + width + _STEP_PX, _STEP_PX)
        y = np.arange(self.y - _UP, self.y + _DOWN, _STEP_PX)
        return np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)


def dense(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return points along a line through some, close to each other, shape (n, 2)."""
    if len(x) == 0:
        return np.empty((0, 2))
    length = np.append(0.0, np.cumsum(np.hypot(np.diff(x), np.diff(y))))
    at = np.append(np.arange(0, length[-1], _STEP_PX), length)
    return np.stack([np.interp(at, length, x), np.interp(at, length, y)], axis=-1)


def first_free(
    spots: Iterable[Spot], width: float, points: np.ndarray, ends: Sequence[float]
) -> Spot | None:
    """Return the first place for a text within ``ends`` that has none of the points."""
    for spot in spots:
        left = spot.left(width)
        if left < ends[0] or left + width > ends[1]:
            continue
        x, y = points.T
        beside = (x > left - _BESIDE) & (x < left + width + _BESIDE)
        if not (beside & (y > spot.y - _UP) & (y < spot.y + _DOWN)).any():
            return spot
    return None
