"""Scenarios before and after a change: their plans, the bill, what fails a check."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from capplan.input_file import read_text
from capplan.report.columns import format_count, sign, three_digits
from capplan.report.page import FLEET
from capplan.report.received.explained import Explained, explained
from capplan.report.received.plan_diff import Rise, Row, cents
from capplan.report.received.plan_figures import PlanFigures, plan_figures

MISSES, ESTIMATED = "misses", "estimated"
_WORST_LAST = ("measured", "checked", ESTIMATED)
_SHOWN = {
    "$ a month": "{:,.0f}".format,
    "$ per million output tokens": three_digits,
}


class Bill(NamedTuple):
    """A month before and after; None where it is not known. [$]"""

    old: float | None
    new: float | None

    @property
    def moved(self) -> float | None:
        """By how much it is larger."""
        return None if self.old is None or self.new is None else self.new - self.old

    @property
    def share(self) -> float | None:
        """The same as a share of what it was."""
        return self.moved / self.old if self.moved is not None and self.old else None


class WrittenPlan(NamedTuple):
    """A plan that lies in a folder, as ``capplan plan --out`` wrote it."""

    figures: PlanFigures
    explained: Explained
    brief: str  # its first screen as Markdown
    held: tuple[str, str]  # the peak, or a fleet without one; and whether it is held
    sure: str  # measured, checked or estimated, and more; empty without an answer

    @classmethod
    def of(cls, folder: Path) -> "WrittenPlan":
        """Read a plan."""
        text, brief = explained(folder), read_text(folder / "plan.md")
        held, sure = [x for x in text.said if x.label in ("peak", FLEET, "sure")]
        told = (held.label, held.short), sure.short
        return cls(plan_figures(folder), text, brief, *told)

    @property
    def gpus(self) -> dict[str, float]:
        """GPUs that are paid, by type; none without an answer."""
        found: dict[str, float] = {}
        for pool in self.figures.best.pools if self.figures.best else ():
            found[pool.gpu] = found.get(pool.gpu, 0) + pool.gpus_paid
        return found

    @property
    def sureness(self) -> str:
        """How sure it is, in one word."""
        return self.sure.partition(":")[0]

    @property
    def misses(self) -> bool:
        """Whether what was asked is not held."""
        return self.held[1].startswith(MISSES)

    @property
    def compared(self) -> dict[str, float | str | None]:
        """What people compare, by what it is."""
        best = self.figures.document["best"] or {}
        values = (self.figures.usd_per_month, best.get("usd_per_million_output_tokens"))
        return {
            **{f"{gpu} GPUs": count for gpu, count in self.gpus.items()},
            **dict(zip(_SHOWN, values, strict=True)),
            **dict([self.held]),
            "sure": self.sure,
        }


class ScenarioChange(NamedTuple):
    """A scenario before and after; one of its plans may be missing."""

    scenario: str  # its path
    old: WrittenPlan | None
    new: WrittenPlan | None
    why_no_old: str = ""  # it exists, and cannot be planned

    @property
    def bill(self) -> Bill:
        """What it costs."""
        sides = (self.old, self.new)
        old, new = (0.0 if of is None else of.figures.usd_per_month for of in sides)
        return Bill(None if self.why_no_old else old, new)

    @property
    def rows(self) -> list[Row]:
        """The figures that people compare, GPUs first."""
        old, new = (of.compared if of else {} for of in (self.old, self.new))
        names = sorted({**new, **old}, key=lambda what: not what.endswith(" GPUs"))
        rows = [_row(what, old.get(what), new.get(what)) for what in names]
        return [row for row in rows if row.old or row.new]

    @property
    def has_changed(self) -> bool:
        """Whether its answer is another one."""
        return bool(self.why_no_old) or any(row.old != row.new for row in self.rows)


def _row(what: str, *values: float | str | None) -> Row:
    show = _SHOWN.get(what, format_count)
    numbers = [value for value in values if isinstance(value, int | float)]
    moved = numbers[1] - numbers[0] if len(numbers) == len(values) else 0
    old, new = (
        x if isinstance(x, str) else "" if x is None else show(x) for x in values
    )
    return Row(what, old, new, f"{sign(moved)}{show(abs(moved))}" if moved else "")


@dataclass(frozen=True)
class Changes:
    """All scenarios of a change."""

    each: Sequence[ScenarioChange]
    is_compared: bool  # with a base

    @property
    def bill(self) -> Bill:
        """What all cost together."""
        old, new = zip(*(change.bill for change in self.each), strict=True)
        return Bill(*(None if None in side else sum(side) for side in (old, new)))

    @property
    def only(self) -> ScenarioChange | None:
        """The scenario, where it is the only one."""
        return self.each[0] if len(self.each) == 1 else None

    def moves(self, rise: Rise) -> bool:
        """Return whether an answer is another one, and the bill moved by more."""
        old, new = self.bill
        if old is None or new is None or rise == Rise():
            return any(change.has_changed for change in self.each)
        both = cents(old), cents(new)
        return rise.is_passed(*both) or rise.is_passed(*both[::-1])

    def failures(self, rise: Rise | None, fail_if: str) -> Iterator[str]:
        """Yield why the check fails.

        A bill that cannot be told fails a limit; a share of nothing is none.
        """
        old, new = self.bill
        if rise is not None and self.is_compared:
            if old is None or new is None:
                yield f"whether the bill rises by more than {rise} cannot be told"
            elif (old or rise.cents) and rise.is_passed(cents(new), cents(old)):
                yield f"more than +{rise}"
        for change in self.each:
            if change.new is not None and change.new.misses and MISSES in fail_if:
                yield f"{change.scenario} misses its limits"
            elif change.new is not None and change.new.sureness == ESTIMATED in fail_if:
                yield f"{change.scenario} is estimated"

    def outputs(self, headline: str) -> dict[str, str]:
        """Return what a step of a pipeline may read, by name."""
        plans = [change.new for change in self.each if change.new is not None]
        bill = self.bill if self.is_compared else Bill(None, self.bill.new)
        gpus = [plan.gpus for plan in plans]
        known = [plan.sureness for plan in plans if plan.sureness in _WORST_LAST]
        states = [MISSES if plan.misses else "holds" for plan in plans]
        return {
            "title": plans[0].explained.headline if self.only and plans else headline,
            "gpus": format(sum(sum(of.values()) for of in gpus), "g"),
            "gpu": ",".join(dict.fromkeys(gpu for of in gpus for gpu in of)),
            "usd-per-month": "" if bill.new is None else f"{bill.new:.2f}",
            "usd-change": "" if bill.moved is None else f"{bill.moved:.2f}",
            "percent-change": "" if bill.share is None else f"{100 * bill.share:.1f}",
            "peak": max(states, default=""),  # the worst
            "sure": max(known, key=_WORST_LAST.index, default=""),
        }
