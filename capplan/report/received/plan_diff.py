"""What changed between two plans: effects on the cost to the cent, and their causes."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from capplan.errors import InputError
from capplan.report.received.diff_causes import Cause, causes_of_line, causes_of_plan
from capplan.report.received.plan_figures import (
    CandidateFigures,
    PlanFigures,
    PoolFigures,
)
from capplan.units import format_usd, number_in

MOST_RISE = 1e12
"""Largest number of a limit that is given."""


def cents(usd: float) -> int:
    """Return dollars in whole cents."""
    return round(100 * usd)


@dataclass(frozen=True)
class Rise:
    """How much larger an amount may become: by a share of it, or by so much."""

    share: float = 0.0
    cents: int = 0

    def is_passed(self, new_cents: int, old_cents: int) -> bool:
        """Return whether an amount is larger than another by more."""
        return new_cents > old_cents * (1 + self.share) + self.cents + 1e-6

    def __str__(self) -> str:
        return format_usd(self.cents / 100) if self.cents else f"{100 * self.share:g} %"


class Row(NamedTuple):
    """One quantity before and after."""

    what: str
    old: str
    new: str
    change: str = ""


@dataclass(frozen=True)
class LineChange:
    """One pool of the answer before and after; one of them may be missing."""

    old: PoolFigures | None
    new: PoolFigures | None
    price_cents: int | None  # n_old · Δp of a month; None without two prices
    volume_cents: int | None  # p_new · Δn of a month
    causes: tuple[Cause, ...] = ()

    @property
    def either(self) -> PoolFigures:
        """The pool as it is now, or as it was."""
        pool = self.new or self.old
        assert pool is not None
        return pool

    @property
    def sign(self) -> str:
        """``+`` added, ``-`` removed, ``~`` changed, ``=`` the same."""
        if self.old is None or self.new is None:
            return "-" if self.new is None else "+"
        counts = [
            (pool.replica_count, pool.gpus_paid, pool.node_count, pool.usd_per_month)
            for pool in (self.old, self.new)
        ]
        return "=" if counts[0] == counts[1] and not self.causes else "~"


@dataclass(frozen=True)
class Effects:
    """The change of the monthly cost in parts that add up. [cents]"""

    total_cents: int
    price_cents: int  # the old GPUs at other prices
    volume_cents: int  # other numbers of GPUs at the new prices
    rest_cents: int  # configurations that came or went


@dataclass(frozen=True)
class CandidateChange:
    """One configuration before and after; one of them may be missing."""

    name: str
    old: CandidateFigures | None
    new: CandidateFigures | None

    @property
    def has_changed(self) -> bool:
        """Whether its answer is another one."""
        if self.old is None or self.new is None:
            return True
        return self.old.answer != self.new.answer


@dataclass(frozen=True)
class PlanDiff:
    """Two plans, and what differs."""

    old: PlanFigures
    new: PlanFigures
    lines: tuple[LineChange, ...]  # of the best candidates
    effects: Effects | None  # None unless both answers have a cost
    candidates: tuple[CandidateChange, ...]  # all, largest change of cost first
    causes: tuple[Cause, ...]  # inputs that differ

    @property
    def share(self) -> float | None:
        """Rise of the monthly cost as a share of the old one; None where unknown."""
        if self.effects is None or not self.old.usd_per_month:
            return None
        return self.effects.total_cents / 100 / self.old.usd_per_month

    @property
    def changed_candidates(self) -> list[CandidateChange]:
        """Configurations whose answer is another one."""
        return [row for row in self.candidates if row.has_changed]

    @property
    def has_changed(self) -> bool:
        """Whether anything differs: answer, inputs, or any other figure."""
        return self.old.document != self.new.document

    def exceeds(self, rise: Rise) -> bool:
        """Return whether the cost rises by more.

        So it does where that cannot be told: only one of the answers has a cost.
        """
        old, new = self.old.usd_per_month, self.new.usd_per_month
        if old is None or new is None:
            return old is not new
        return rise.is_passed(cents(new), cents(old))


def plan_diff(old: PlanFigures, new: PlanFigures) -> PlanDiff:
    """Return what differs between two plans."""
    lines = _lines(old.best, new.best)
    return PlanDiff(
        old=old,
        new=new,
        lines=lines,
        effects=_effects(old.usd_per_month, new.usd_per_month, lines),
        candidates=_candidates(old, new),
        causes=causes_of_plan(old, new),
    )


def parse_rise(text: str) -> Rise:
    """Return the rise of ``2.5 %``, or of ``$5000`` a month.

    Examples
    --------
    >>> parse_rise("2.5 %"), parse_rise("$5,000")
    (Rise(share=0.025, cents=0), Rise(share=0.0, cents=500000))
    """
    number, sign, rest = text.strip().partition("%")
    of_dollars = number.startswith("$") and not sign
    if of_dollars:
        number, sign = number[1:].replace(",", ""), "$"
    value = number_in(number)
    if not sign or rest or not 0 <= value <= MOST_RISE:
        raise InputError(
            f"{text!r} is not a rise; expected a percentage such as 10%, or $5000"
        )
    return Rise(cents=cents(value)) if of_dollars else Rise(value / 100)


def _lines(
    old: CandidateFigures | None, new: CandidateFigures | None
) -> tuple[LineChange, ...]:
    """Return the pools of two answers, those of the same identity together."""
    before = {} if old is None else {pool.key: pool for pool in old.pools}
    after = {} if new is None else {pool.key: pool for pool in new.pools}
    return tuple(_line(before.get(k), after.get(k)) for k in {**before, **after})


def _line(old: PoolFigures | None, new: PoolFigures | None) -> LineChange:
    if old is None or new is None:
        return LineChange(old, new, None, None)
    causes = causes_of_line(old, new)
    if old.usd_per_month is None or new.usd_per_month is None:
        return LineChange(old, new, None, None, causes)
    old_price = old.usd_per_month / old.gpus_paid
    new_price = new.usd_per_month / new.gpus_paid
    # The old GPUs at the new price: first the price moves, then their number.
    between = cents(old.gpus_paid * new_price)
    if math.isclose(old_price, new_price, rel_tol=1e-12):
        between = cents(old.usd_per_month)
    elif old.gpus_paid == new.gpus_paid:
        between = cents(new.usd_per_month)
    price = between - cents(old.usd_per_month)
    volume = cents(new.usd_per_month) - between
    return LineChange(old, new, price, volume, causes)


def _effects(
    old: float | None, new: float | None, lines: tuple[LineChange, ...]
) -> Effects | None:
    if old is None or new is None:
        return None
    total = cents(new) - cents(old)
    price = sum(line.price_cents or 0 for line in lines)
    volume = sum(line.volume_cents or 0 for line in lines)
    if all(line.old is not None and line.new is not None for line in lines):
        volume = total - price  # with the cent that rounding each pool leaves over
    return Effects(total, price, volume, total - price - volume)


def _candidates(old: PlanFigures, new: PlanFigures) -> tuple[CandidateChange, ...]:
    rows = [
        CandidateChange(name, old.candidates.get(name), new.candidates.get(name))
        for name in {**new.candidates, **old.candidates}
    ]
    return tuple(sorted(rows, key=lambda row: -_moved(row)))


def _moved(row: CandidateChange) -> float:
    """Return by how much the cost of a configuration moved. [$]"""
    usd = [part.usd_per_month if part else None for part in (row.old, row.new)]
    return abs((usd[1] or 0.0) - (usd[0] or 0.0))
