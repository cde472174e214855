"""Scenarios before and after a change: their plans, the bill, what fails a check."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from capplan.errors import InputError
from capplan.input_file import read_text
from capplan.report.columns import format_count, sign, three_digits
from capplan.report.received.explained import Explained, explained
from capplan.report.received.plan_diff import PlanDiff, Rise, cents, plan_diff
from capplan.report.received.plan_figures import PlanFigures, plan_figures

MISSES, ESTIMATED, NONE = "misses", "estimated", "none"
_WORST_LAST = ("measured", "checked", ESTIMATED)


class Row(NamedTuple):
    """A figure of a scenario before and after; empty where there is none."""

    what: str
    old: str
    new: str
    change: str = ""


@dataclass(frozen=True)
class WrittenPlan:
    """A plan that lies in a folder."""

    figures: PlanFigures
    explained: Explained
    brief: str  # its first screen as Markdown

    @classmethod
    def of(cls, folder: Path) -> "WrittenPlan":
        """Read a plan as ``capplan plan --out`` wrote it."""
        brief = read_text(folder / "plan.md")
        return cls(plan_figures(folder), explained(folder), brief)

    @property
    def gpus(self) -> dict[str, float]:
        """GPUs that are paid, by type; none without an answer."""
        found: dict[str, float] = {}
        for pool in self.figures.best.pools if self.figures.best else ():
            found[pool.gpu] = found.get(pool.gpu, 0) + pool.gpus_paid
        return found

    @property
    def sureness(self) -> str:
        """``measured``, ``checked`` or ``estimated``; empty without an answer."""
        return str((self.figures.document["best"] or {}).get("sureness") or "")

    def said(self, label: str) -> str:
        """Return what its first screen says, in few words."""
        rows = self.explained.said
        return next((row.short for row in rows if row.label == label), "")

    @property
    def held(self) -> str:
        """What holds or misses: the peak, or the fleet of a load without one."""
        return next(x.label for x in self.explained.said if x.label in _HELD)

    @property
    def misses(self) -> bool:
        """Whether what was asked is not held."""
        return self.said(self.held).startswith(MISSES)


_HELD = ("peak", "fleet")
_Show = Callable[[Any], str]


@dataclass(frozen=True)
class ScenarioChange:
    """A scenario before and after; one of its plans may be missing."""

    scenario: str  # its path
    old: WrittenPlan | None
    new: WrittenPlan | None
    why_no_old: str = ""  # it exists, and cannot be planned

    @property
    def diff(self) -> PlanDiff | None:
        """What differs; None unless both are there."""
        if self.old is None or self.new is None:
            return None
        return plan_diff(self.old.figures, self.new.figures)

    @property
    def usd(self) -> tuple[float | None, float | None]:
        """Cost of a month before and after; None where it is not known. [$]"""
        old = None if self.why_no_old else _usd(self.old)
        return old, _usd(self.new)

    @property
    def rows(self) -> list[Row]:
        """The figures that people compare."""
        sides = (self.old, self.new)

        def row(what: str, of: Callable[[WrittenPlan], Any], show: _Show) -> Row:
            return _row(
                what, [None if side is None else of(side) for side in sides], show
            )

        held = next(side.held for side in sides[::-1] if side)
        gpus = {gpu: None for side in sides if side for gpu in side.gpus}
        rows = [
            *(row(f"{gpu} GPUs", _gpus(gpu), format_count) for gpu in gpus),
            row("$ a month", lambda p: p.figures.usd_per_month, _whole),
            row("$ per million output tokens", _per_million, three_digits),
            row(held, lambda p: p.said(held), str),
            row("sure", lambda p: p.said("sure"), str),
        ]
        return [each for each in rows if each.old or each.new]

    @property
    def has_changed(self) -> bool:
        """Whether its answer is another one."""
        return bool(self.why_no_old) or any(row.old != row.new for row in self.rows)


def _usd(plan: WrittenPlan | None) -> float | None:
    return 0.0 if plan is None else plan.figures.usd_per_month


def _gpus(gpu: str) -> Callable[[WrittenPlan], float]:
    return lambda plan: plan.gpus.get(gpu, 0)


def _per_million(plan: WrittenPlan) -> Any:
    return (plan.figures.document["best"] or {}).get("usd_per_million_output_tokens")


def _whole(usd: float) -> str:
    return f"{round(usd):,}"


def _row(what: str, sides: Sequence[Any], show: _Show) -> Row:
    before, after = ("" if value is None else show(value) for value in sides)
    if None in sides or before == after or show is str:
        return Row(what, before, after)
    moved = sides[1] - sides[0]
    return Row(what, before, after, f"{sign(moved)}{show(abs(moved))}")


@dataclass(frozen=True)
class Changes:
    """All scenarios of a change."""

    each: Sequence[ScenarioChange]
    is_compared: bool  # with a base

    @property
    def usd(self) -> tuple[float | None, float | None]:
        """Cost of a month of all before and after; None where one is not known. [$]"""
        old, new = zip(*(change.usd for change in self.each), strict=True)
        return (
            None if None in old else sum(old),
            None if None in new else sum(new),
        )

    @property
    def after(self) -> list[WrittenPlan]:
        """Plans of the scenarios that are there now."""
        return [change.new for change in self.each if change.new is not None]

    @property
    def only(self) -> ScenarioChange | None:
        """The scenario, where it is the only one."""
        return self.each[0] if len(self.each) == 1 else None

    def moves(self, rise: Rise) -> bool:
        """Return whether an answer is another one, and the bill moved by more."""
        (old, new), any_rise = self.usd, rise == Rise()
        if old is None or new is None or any_rise:
            return any(change.has_changed for change in self.each)
        both = cents(old), cents(new)
        return rise.is_passed(*both) or rise.is_passed(*both[::-1])

    def failures(self, rise: Rise | None, fail_if: Sequence[str]) -> Iterator[str]:
        """Yield why the check fails.

        A bill that cannot be told fails a limit; a share of nothing is none.
        """
        old, new = self.usd
        if rise is not None and self.is_compared:
            if old is None or new is None:
                yield f"whether the bill rises by more than {rise} cannot be told"
            elif (old or rise.cents) and rise.is_passed(cents(new), cents(old)):
                yield f"more than +{rise}"
        for change in self.each:
            if change.new is not None and change.new.misses and MISSES in fail_if:
                yield f"{change.scenario} misses its limits"
            elif change.new is not None and change.new.sureness in fail_if:
                yield f"{change.scenario} is estimated"

    def outputs(self, title: str) -> dict[str, str]:
        """Return what a step of a pipeline may read, by name."""
        plans, (old, new) = self.after, self.usd
        gpus = [plan.gpus for plan in plans]
        known = [plan.sureness for plan in plans if plan.sureness in _WORST_LAST]
        moved = None if None in (old, new) else new - old  # type: ignore[operator]
        share = 100 * moved / old if moved is not None and old else None
        return {
            "title": title,
            "gpus": format(sum(sum(of.values()) for of in gpus), "g"),
            "gpu": ",".join(dict.fromkeys(gpu for of in gpus for gpu in of)),
            "usd-per-month": "" if new is None else f"{new:.2f}",
            "usd-change": ""
            if not self.is_compared or moved is None
            else f"{moved:.2f}",
            "percent-change": ""
            if not self.is_compared or share is None
            else f"{share:.1f}",
            "peak": MISSES if any(plan.misses for plan in plans) else "holds",
            "sure": max(known, key=_WORST_LAST.index, default=""),
        }


def parse_fail_if(text: str) -> tuple[str, ...]:
    """Return what fails a check, of ``misses,estimated`` or ``none``."""
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names or {*names} - {MISSES, ESTIMATED, NONE} or NONE in names[1:]:
        raise InputError(f"--fail-if is {text!r}; expected misses, estimated or none")
    return names
