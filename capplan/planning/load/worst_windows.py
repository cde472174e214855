"""Attainment in windows of time, of a trace's own arrivals: what a mean hides.

The target is asked of each group of classes in every hour of the log. An hour with too
few requests of a group to tell (:func:`requests_needed`) is joined with those after it
until they are enough, and what is left at the end with the window before.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np

from capplan.simulator.results.metrics import requests_needed
from capplan.units import format_duration
from capplan.workload.slo import Group, Slo

HOUR_S = 3600.0
"""Windows that are judged by default. [s]"""
_WIDTHS_S = (300.0, HOUR_S)
"""Windows that are told: five minutes, and an hour. [s]"""
_HOURS = 2
"""Windows of a trace at least of which the busiest is named, or an hour judged."""
_OF_A_PEAK = 100
"""Requests of a part of a window, the first or the last, that may be the peak."""


@dataclass(frozen=True)
class LogClock:
    """The clock of a log: which of its hours an arrival falls into."""

    first_s: float | None = None  # local time of its first arrival since 1970 [s]
    speed: float = 1.0  # log time that passes in a second of the simulation

    def judged_s(self, slo: Slo, duration_s: float) -> float | None:
        """Return the length of the windows that are judged; None of the whole. [s]"""
        if slo.attain_in_s is None:
            return HOUR_S if duration_s * self.speed >= _HOURS * HOUR_S else None
        return None if np.isinf(slo.attain_in_s) else slo.attain_in_s

    def index(self, since_s: np.ndarray, width_s: float) -> np.ndarray:
        """Return the window of arrivals after the first one, shape (n,), int64."""
        into_s = (self.first_s or 0.0) % width_s
        return np.asarray((into_s + since_s * self.speed) // width_s, np.int64)

    def since_s(self, index: np.ndarray, width_s: float) -> np.ndarray:
        """Return when windows begin, after the first arrival; 0 at least. [s]"""
        into_s = (self.first_s or 0.0) % width_s
        return np.maximum(0.0, (index * width_s - into_s) / self.speed)

    def told(self, index: int, width_s: float) -> str | None:
        """Return when a window begins by the log, ``2026-11-24T14:00``, or None."""
        if self.first_s is None:
            return None
        at_s = self.first_s // width_s * width_s + index * width_s
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=at_s)
        text = at.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return text.removesuffix(".000").removesuffix(":00")


FROM_THE_FIRST = LogClock()
"""Windows from the first arrival on."""


@dataclass(frozen=True)
class TimeWindow:
    """A window of time, and what the requests that arrive in it attain."""

    seconds: float  # length of a window by the log [s]
    start_s: float  # after the first arrival [s]
    end_s: float  # at the last arrival at most [s]
    rate_per_s: float  # of the requests that arrive in it [requests/s]
    slo_attainment: float  # share of these that meet the SLO, of the worst group
    target: float  # that this group is to attain
    classes: tuple[str, ...]  # of that group; none where it has all
    meets: bool  # whether the groups attain their targets
    joined: int = 1  # windows of its length that it is made of
    is_judged: bool = False  # whether that is asked of every window of this length
    is_alone: bool = False  # of several, the only one below the target, of all groups
    starts_at: str | None = None  # by the log's clock
    ends_at: str | None = None

    @property
    def when(self) -> str:
        """Its begin and end, by the log's clock where it has one.

        As "Tue 24 Nov 14:00–15:00", else "13 h to 14 h after the first arrival".
        """
        if self.starts_at is None or self.ends_at is None:
            start, end = map(format_duration, (self.start_s, self.end_s))
            return f"{start if self.start_s else '0'} to {end} after the first arrival"
        starts, ends = map(datetime.fromisoformat, (self.starts_at, self.ends_at))
        day, end_day = (f"{at:%a} {at.day} {at:%b}" for at in (starts, ends))
        first, last = (f"{at:%H:%M:%S}".removesuffix(":00") for at in (starts, ends))
        if last == "00:00" and ends - starts <= timedelta(days=1):
            return f"{day} {first}–24:00"
        return f"{day} {first}–{last if day == end_day else f'{end_day} {last}'}"


@dataclass(frozen=True)
class WithoutWindow:
    """What would do if one window, which decides the last replicas, were left out."""

    window: TimeWindow  # the only one in which one replica fewer misses the target
    replica_count: int  # that attain it in all others
    gpu_count: int
    usd_per_month: float | None  # [$]


@dataclass(frozen=True)
class WindowWidths:
    """How wide the windows are in which a group of classes is judged."""

    classes: tuple[str, ...]  # none where it has all
    window_count: int
    longest: int  # hours, or windows of the length asked, joined in one at most


@dataclass(frozen=True)
class InWindows:
    """What windows of time show of a run."""

    worst: tuple[TimeWindow, ...] = ()  # of each length
    peak: TimeWindow | None = None  # the hour, or window judged, of most requests
    widths: tuple[WindowWidths, ...] = ()  # of the windows that are judged
    missing: tuple[str, ...] = ()  # classes below their target in one of these


NO_WINDOWS = InWindows()


def in_windows(
    arrival_s: np.ndarray,
    request_class: np.ndarray,
    attained: np.ndarray,
    slo: Slo,
    class_names: tuple[str, ...],
    warmup_s: float = 0.0,
    judged_s: float | None = None,
    clock: LogClock = FROM_THE_FIRST,
) -> InWindows:
    """Return the worst window of each length, and the busiest.

    Of five minutes and of an hour those with the requests to tell; of ``judged_s``, in
    each of which the target is asked, all, joined until they have these. Requests are
    in order of arrival, with whether each meets the SLO; shape (n,) each.
    """
    since_s = arrival_s - arrival_s[0]
    log_s = float(since_s[-1]) * clock.speed
    widths_s = {*_WIDTHS_S, *([] if judged_s is None else [judged_s])}
    rows = np.flatnonzero(since_s >= warmup_s)
    groups = slo.groups(class_names)
    of = slo.group_of(request_class[rows], class_names)
    # In order of arrival within each group.
    rows = rows[np.argsort(of, kind="stable")]
    parts = np.split(rows, np.cumsum(np.bincount(of, minlength=len(groups)))[:-1])
    counted = [pair for pair in zip(groups, parts, strict=True) if len(pair[1])]
    found = InWindows()
    for width_s in sorted(widths_s):
        is_judged = width_s == judged_s
        if (width_s >= log_s and not is_judged) or not counted:
            continue
        grid = _Grid(since_s, clock, width_s, is_judged=is_judged)
        judged = [
            _joined(group, grid.index[part], attained[part], grid.count)
            for group, part in counted
        ]
        told = judged if is_judged else [each.alone() for each in judged]
        if told := [each for each in told if len(each.share)]:
            worst = grid.worst(told, len(groups))
            found = replace(found, worst=(*found.worst, worst))
        if is_judged:
            names = [
                name for each in judged if each.misses for name in each.group.names
            ]
            widths = tuple(grid.widths(each, len(groups)) for each in judged)
            found = replace(found, widths=widths, missing=tuple(names))
        if width_s == (judged_s or HOUR_S) and log_s >= _HOURS * width_s:
            found = replace(found, peak=grid.peak(judged, len(groups)))
    return found


@dataclass(frozen=True, eq=False)
class _Judged:
    """The windows of one group, in order, shape (windows,) each."""

    group: Group
    first: np.ndarray  # window of the grid with which it begins
    end: np.ndarray  # that after its last
    share: np.ndarray  # of its counted requests that meet their SLO

    @property
    def margin(self) -> np.ndarray:
        """How far each is above the target."""
        return self.share - self.group.target

    @property
    def misses(self) -> bool:
        """Whether one is below the target."""
        return bool((self.margin < 0).any())

    def alone(self) -> "_Judged":
        """Return those of the windows that are not joined."""
        one = self.end - self.first == 1
        return _Judged(self.group, self.first[one], self.end[one], self.share[one])


def _joined(
    group: Group, index: np.ndarray, attained: np.ndarray, count: int
) -> _Judged:
    """Return the windows of a group that have the requests to tell.

    ``index`` is the window of the grid of each of its requests, never falling.
    """
    needed, ends = requests_needed(group.target), [0]
    while (last := ends[-1] + needed - 1) < len(index):
        ends.append(int(np.searchsorted(index, index[last], side="right")))
    ends = [*ends[: max(len(ends) - 1, 1)], len(index)]  # the rest joins the last
    edges = [0, *(int(index[row - 1]) + 1 for row in ends[1:-1]), count]
    kept = np.add.reduceat(attained, ends[:-1], dtype=float)
    return _Judged(
        group, np.array(edges[:-1]), np.array(edges[1:]), kept / np.diff(ends)
    )


class _Grid:
    """Windows of one length, and what arrives in them."""

    def __init__(
        self, since_s: np.ndarray, clock: LogClock, width_s: float, *, is_judged: bool
    ) -> None:
        self.index = clock.index(since_s, width_s)  # shape (n,)
        self.count = int(self.index[-1]) + 1
        self._since_s, self._clock = since_s, clock
        self._width_s, self._is_judged = width_s, is_judged

    def worst(self, groups: Sequence[_Judged], of_all: int) -> TimeWindow:
        """Return the window furthest below its target; of equals the busiest.

        Of groups that have windows, of so many in all.
        """
        of = min(groups, key=lambda each: float(each.margin.min()))
        busiest = self._rates(of.first, of.end)
        k = int(np.lexsort((-busiest, of.share))[0])
        first, end = int(of.first[k]), int(of.end[k])
        low = [
            (each.first[each.margin < 0], each.end[each.margin < 0]) for each in groups
        ]
        alone = len(of.share) > 1 and of.misses
        alone &= all((a >= first).all() and (b <= end).all() for a, b in low)
        return self._window(first, end, of, k, of_all, is_alone=alone)

    def peak(self, groups: Sequence[_Judged], of_all: int) -> TimeWindow:
        """Return the busiest window of the grid, by the group furthest below there."""
        ends = np.arange(self.count), np.arange(1, self.count + 1)
        per_s, lasts_s = self._rates(*ends), self._lasts_s(*ends)
        shows = (2 * lasts_s >= self._full_s) | (per_s * lasts_s >= _OF_A_PEAK)
        at = int(np.argmax(per_s * (shows | ~shows.any())))
        at_k = [int(np.searchsorted(each.end, at, side="right")) for each in groups]
        margins = [float(each.margin[k]) for each, k in zip(groups, at_k, strict=True)]
        worst = int(np.argmin(margins))
        return self._window(at, at + 1, groups[worst], at_k[worst], of_all)

    def widths(self, of: _Judged, groups: int) -> WindowWidths:
        """Return how wide the windows of a group are."""
        return WindowWidths(
            of.group.names if groups > 1 else (),
            len(of.share),
            int((of.end - of.first).max()),
        )

    @property
    def _full_s(self) -> float:
        return self._width_s / self._clock.speed

    def _lasts_s(self, first: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Return how much of windows the trace lasts. [s]"""
        at = [self._clock.since_s(k, self._width_s) for k in (first, end)]
        return np.minimum(at[1], self._since_s[-1]) - at[0]

    def _rates(self, first: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Return the rates of what arrives in windows, while it does. [requests/s]"""
        arrived = np.diff(np.searchsorted(self.index, np.stack([first, end])), axis=0)
        # At a moment, as if it lasted a second of an hour.
        lasts_s = np.maximum(self._lasts_s(first, end), self._full_s / HOUR_S)
        return np.asarray(arrived[0] / lasts_s)

    def _window(
        self,
        first: int,
        end: int,
        of: _Judged,
        k: int,
        groups: int,
        *,
        is_alone: bool = False,
    ) -> TimeWindow:
        width_s, clock = self._width_s, self._clock
        ends = np.array([first]), np.array([end])
        start_s = float(clock.since_s(ends[0], width_s)[0])
        return TimeWindow(
            seconds=width_s,
            start_s=start_s,
            end_s=start_s + float(self._lasts_s(*ends)[0]),
            rate_per_s=float(self._rates(*ends)[0]),
            slo_attainment=float(of.share[k]),
            target=of.group.target,
            classes=of.group.names if groups > 1 else (),
            meets=bool(of.margin[k] >= 0),
            joined=end - first,
            is_judged=self._is_judged,
            is_alone=is_alone,
            starts_at=clock.told(first, width_s),
            ends_at=clock.told(end, width_s),
        )
