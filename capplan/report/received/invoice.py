"""A plan's bill against the one that came: planned and billed, to the cent.

References
----------
FinOps Open Cost and Usage Specification, v1.2, ``specification/columns``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from capplan.csv_file import read_rows
from capplan.errors import InputError, placed
from capplan.report.received.plan_diff import cents
from capplan.report.received.plan_document import plan_path, read_plan
from capplan.report.received.plan_record import Record, checked

_NEEDED = ("ChargePeriodStart", "ChargePeriodEnd", "BillingCurrency")
_COSTS = ("EffectiveCost", "BilledCost")
"""Of a charge, the first that a file has: with commitments spread over their use."""
_QUANTITIES = ("ConsumedQuantity", "ConsumedUnit"), ("PricingQuantity", "PricingUnit")
_HOURS = {"hour": 1.0, "hr": 1.0, "h": 1.0, "minute": 1 / 60, "second": 1 / 3600}
_UNIT = re.compile(
    r"(?:1\W*)?(?:(gpu)|node|instance|machine|vm|compute)?\W*(hour|hr|h|minute|second)s?"
)
_USAGE, _UNUSED = "Usage", "Unused"


_Positive = Annotated[float, Field(gt=0, le=10**12)]


class _Node(Record):
    gpu: str = ""
    node: str | None = None
    count: Annotated[int, Field(ge=1)] | None = None
    gpus_paid: _Positive
    usd_per_h: _Positive | None = None


class _Best(Record):
    nodes: list[dict[str, Any]]


@dataclass
class _Line:
    """A kind of node as planned, and its charges. [h, $]"""

    name: str  # as the provider calls it; of GPUs priced alone their type
    gpus: float  # of each
    planned_count: float
    usd_per_h: float  # planned, of each
    hours: float = 0.0  # that ran
    idle_hours: float = 0.0  # of a commitment that nothing used
    usd: float = 0.0  # billed for both
    other_usd: float = 0.0  # billed without hours


class Billed(NamedTuple):
    """A kind of node, planned and billed; the last four add up to the difference."""

    name: str
    planned_count: float
    mean_count: float  # that ran
    idle_hours: float  # paid by a commitment that nothing used [h]
    planned_usd_per_h: float  # of each
    usd_per_h: float | None  # billed; None where no hours were
    planned_usd: float
    billed_usd: float
    volume_usd: float  # hours that ran beyond those planned, at the planned price
    idle_usd: float  # idle hours, at the planned price
    price_usd: float  # all hours at other prices
    other_usd: float  # credits, adjustments, taxes


@dataclass(frozen=True)
class Invoice:
    """A plan beside the charges for its nodes."""

    plan: str
    path: str  # of the charges
    start: datetime
    end: datetime
    nodes: tuple[Billed, ...]
    left_out: int  # charges for something else
    left_out_usd: float

    @property
    def hours(self) -> float:
        """Length of the time that the charges are for. [h]"""
        return (self.end - self.start).total_seconds() / 3600

    @property
    def planned_cents(self) -> int:
        """What was planned for this time."""
        return cents(sum(row.planned_usd for row in self.nodes))

    @property
    def billed_cents(self) -> int:
        """What was billed."""
        return cents(sum(row.billed_usd for row in self.nodes))

    @property
    def effects(self) -> dict[str, int]:
        """How the bill differs from the plan, in parts that add up. [cents]"""
        volume, idle, other = (
            cents(sum(getattr(row, f"{part}_usd") for row in self.nodes))
            for part in ("volume", "idle", "other")
        )
        total = self.billed_cents - self.planned_cents
        return {
            "price": total - volume - idle - other,
            "volume": volume,
            "idle": idle,
            "other": other,
            "total": total,
        }


def invoice(plan: Path, path: Path) -> Invoice:
    """Return the charges of a FOCUS file for the nodes of a plan."""
    plan = plan_path(plan)
    document = read_plan(plan)
    lines = _planned(plan, document)
    names, rows = read_rows(path)
    lacking = [name for name in _NEEDED if name not in names]
    if lacking:
        raise InputError(f"{path}: no column {lacking[0]}; expected an export of FOCUS")
    charges = _Charges(lines, _rate(document))
    with placed(path):
        for number, row in rows:
            with placed(f"line {number}"):
                charges.add(row)
        return charges.invoice(str(plan), str(path))


def _billed(line: _Line, hours: float) -> Billed:
    """Return a kind of node over so many hours."""
    planned_hours, paid_hours = line.planned_count * hours, line.hours + line.idle_hours
    return Billed(
        line.name,
        line.planned_count,
        line.hours / hours,
        line.idle_hours,
        line.usd_per_h,
        line.usd / paid_hours if paid_hours else None,
        planned_hours * line.usd_per_h,
        line.usd + line.other_usd,
        volume_usd=(line.hours - planned_hours) * line.usd_per_h,
        idle_usd=line.idle_hours * line.usd_per_h,
        price_usd=line.usd - paid_hours * line.usd_per_h,
        other_usd=line.other_usd,
    )


def _planned(path: Path, document: Mapping[str, Any]) -> list[_Line]:
    best = document.get("best")
    if not best:
        raise InputError(f"{path}: it is infeasible, so that nothing was planned")
    found: dict[str, _Line] = {}
    for index, values in enumerate(checked(path, "best.", _Best, best).nodes):
        node = checked(path, f"best.nodes.{index}.", _Node, values)
        if node.usd_per_h is None:
            raise InputError(
                f"{path}: its nodes have no price; plan again with --price"
            )
        count = node.count or node.gpus_paid
        name, usd = node.node or node.gpu, node.usd_per_h / count
        if not name:
            raise InputError(f"{path}: best.nodes.{index} has no name; plan again")
        line = found.setdefault(name, _Line(name, node.gpus_paid / count, 0.0, usd))
        line.planned_count += count
    return list(found.values())


def _rate(document: Mapping[str, Any]) -> dict[str, float]:
    """Return dollars of a unit of each currency that the plan knows."""
    settings = document.get("settings") or {}
    code, usd = settings.get("currency"), settings.get("exchange_rate")
    if not (isinstance(code, str) and isinstance(usd, int | float) and usd > 0):
        return {"USD": 1.0}
    return {"USD": 1.0, code.upper(): float(usd)}


class _Charges:
    """Adds up charges."""

    def __init__(self, lines: list[_Line], rates: dict[str, float]) -> None:
        self.lines, self.rates = lines, rates
        names = "|".join(re.escape(line.name) for line in lines)
        # Behind a prefix as Standard_, but not within a longer name.
        text = rf"(?<![^\W_])(?:{names})(?![\w-]|\.\w)"
        self._found = re.compile(text, re.IGNORECASE)
        self._by_name = {line.name.casefold(): line for line in lines}
        self._starts: list[datetime] = []
        self._ends: list[datetime] = []
        self._left_out, self._left_out_usd = 0, 0.0

    def add(self, row: Mapping[str, str]) -> None:
        """Add a charge to the line of the node that it names."""
        code = row["BillingCurrency"].upper()
        if code not in self.rates:
            known = " or ".join(self.rates)
            raise InputError(
                f"BillingCurrency is {code!r}; expected {known}, or a plan with "
                "--currency and --exchange-rate"
            )
        name = next((x for x in _COSTS if row.get(x)), None)
        if name is None:
            raise InputError(f"no {' and no '.join(_COSTS)}; expected one of them")
        usd = _number(row, name) * self.rates[code]
        found = self._found.search("\n".join(row.values()))
        line = None if found is None else self._by_name.get(found[0].casefold())
        is_usage = (row.get("ChargeCategory") or _USAGE) == _USAGE
        hours = 0.0 if line is None or not is_usage else _hours(row, line)
        if line is None or hours is None:
            self._left_out += 1
            self._left_out_usd += usd
            return
        self._starts.append(_time(row, "ChargePeriodStart"))
        self._ends.append(_time(row, "ChargePeriodEnd"))
        if not is_usage:
            line.other_usd += usd
            return
        line.usd += usd
        if row.get("CommitmentDiscountStatus") == _UNUSED:
            line.idle_hours += hours
        else:
            line.hours += hours

    def invoice(self, plan: str, path: str) -> Invoice:
        """Return what was added."""
        if not self._starts:
            names = ", ".join(line.name for line in self.lines)
            raise InputError(
                f"none of {self._left_out:,} charges names a node of the plan; "
                f"expected {names}"
            )
        start, end = min(self._starts), max(self._ends)
        hours = (end - start).total_seconds() / 3600
        if not hours > 0:
            raise InputError("its charges last no time; is ChargePeriodEnd right?")
        nodes = tuple(_billed(line, hours) for line in self.lines)
        return Invoice(
            plan, path, start, end, nodes, self._left_out, self._left_out_usd
        )


def _hours(row: Mapping[str, str], line: _Line) -> float | None:
    """Return the hours of nodes of a charge for use; None where it is no time."""
    for quantity, unit in _QUANTITIES:
        if not row.get(quantity):
            continue
        if found := _UNIT.fullmatch(row.get(unit, "").lower()):
            of = line.gpus if found[1] else 1.0
            return _number(row, quantity) * _HOURS[found[2]] / of
    return None


def _number(row: Mapping[str, str], name: str) -> float:
    try:
        value = float(row[name])
    except ValueError:
        value = float("nan")
    if not abs(value) < 1e15:
        raise InputError(f"{name} is {row[name]!r}; expected a number")
    return value


def _time(row: Mapping[str, str], name: str) -> datetime:
    try:
        moment = datetime.fromisoformat(row[name])
    except ValueError:
        raise InputError(
            f"{name} is {row[name]!r}; expected a time such as 2026-11-01T00:00:00Z"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
