"""Arrivals of a table: dates, or numbers in a unit that is named or told by size."""

from shlex import quote
from typing import NamedTuple

import numpy as np

from capplan.errors import InputError
from capplan.workload.readers.cells import are_dates, parsed
from capplan.workload.readers.columns import EPOCH_S, PER_S, Columns
from capplan.workload.readers.table import Table
from capplan.workload.trace import MOST_EPOCH_S

_FIRST_SURE_S, _LAST_SURE_S = 946_684_800, 4_102_444_800
"""Years 2000 and 2100: a number between them is a stamp in the unit that puts it there;
in another unit it is thousands of years away. [s]"""
_FIRST_EXCEL_D, _LAST_EXCEL_D = 40_000, 60_000
"""Days of 2009 and 2064 since 1900."""
_MOST_RATE_PER_S = 100
"""Beyond which numbers between them are no seconds. [requests/s]"""
_DAYS = (
    "import pandas; t = pandas.read_csv({path!r}, sep=None, engine='python'); t[{name!r"
    "}] = pandas.to_datetime(t[{name!r}], unit='D', origin='1899-12-30'); t.to_csv("
    "'new.csv', index=False)"
)
"""What makes days as Excel counts them dates."""
_DATE = "a date such as 2026-11-22T18:15:46.68Z"
_WORDS = {
    "arrival_s": "seconds",
    "arrival_ms": "milliseconds",
    "arrival_us": "microseconds",
    "arrival_ns": "nanoseconds",
}


class Stamps(NamedTuple):
    """Arrivals as a file has them."""

    values: np.ndarray  # in 1/``per_s`` seconds, int64 or float64, shape (n,)
    per_s: float
    zone_s: float = 0.0  # how far the clock of the first is ahead of UTC

    def seconds(self, origin: float = 0) -> np.ndarray:
        """Return the time of each since an origin in the unit of the file. [s]"""
        return np.asarray((self.values - origin) / self.per_s, np.float64)

    @property
    def clock_s(self) -> float | None:
        """Time of the log's clock at the origin, None without one. [s]"""
        return float(self.origin / self.per_s) + self.zone_s if self.origin else None

    @property
    def origin(self) -> float:
        """The first stamp where they count from 1970, else 0."""
        first = self.values.min()
        return first if first / self.per_s > EPOCH_S else 0


def arrivals(table: Table, columns: Columns) -> Stamps | None:
    """Return the arrivals, or None when the column is missing or empty."""
    if columns.arrival is None:
        return None
    name = columns.names[columns.arrival]
    values = table.frame[name]
    if values.isna().all():
        return None
    if are_dates(values):
        values_ns, zone_s = table.stamps_ns(name, _DATE)
        return Stamps(values_ns, 1e9, zone_s)
    unit = columns.arrival
    numbers = parsed(values).to_numpy()
    table.require(np.isfinite(numbers), name, f"{_WORDS[unit]}, or {_DATE}")
    if columns.is_sized:
        first, last = numbers.min() / _FIRST_SURE_S, numbers.max() / _LAST_SURE_S
        sure = next((sure for sure in PER_S if last <= PER_S[sure] <= first), None)
        rate, told = by_unit(numbers)
        if sure is None and rate and not (numbers % 1).any():
            ways = " or ".join(
                quote(f"{of}={name}") for of in ("arrival_s", "arrival_ms")
            )
            raise InputError(
                f"{table.path}: {name} counts from no known begin: {told}; say "
                f"--columns {ways}"
            )
        span = numbers.max() - numbers.min()
        days = _FIRST_EXCEL_D < numbers.min() < numbers.max() < _LAST_EXCEL_D
        code = _DAYS.format(path=str(table.path), name=name)
        if days and rate > _MOST_RATE_PER_S and span < 366 and (numbers % 1).any():
            raise InputError(
                f"{table.path}: {name} has days as Excel counts them, or {rate:,.3g} "
                f"requests/s; of a CSV make them dates, python -c {quote(code)}, or "
                f"say --columns {quote(f'arrival_s={name}')}"
            )
        unit = sure or unit
    late = np.abs(numbers / PER_S[unit]) > MOST_EPOCH_S
    if late.any():
        row = int(np.argmax(late))
        table.refuse(row, name, _question(float(numbers[row]), name, unit))
    return Stamps(numbers, PER_S[unit])


def by_unit(stamps: np.ndarray) -> tuple[float, str]:
    """Return the rate of stamps in seconds, 0 without, and what units make of it."""
    span = float(stamps.max() - stamps.min())
    rate = (len(stamps) - 1) / span if span else 0.0
    told = (
        f"{rate:,.3g} requests/s if it has seconds, {rate * 1e3:,.4g} if milliseconds"
    )
    return rate, told


def _question(value: float, name: str, unit: str) -> str:
    year = 1970 + value / PER_S[unit] / (365.25 * 86_400)
    shown = f"{year:,.0f}" if year < 1e9 else f"{year:.3g}"
    asked = ""
    for other, per_s in PER_S.items():
        if EPOCH_S < value / per_s < MOST_EPOCH_S:
            said = quote(f"{other}={name}")
            asked = f": is it {_WORDS[other]} since 1970? then --columns {said}"
    return f"{_WORDS[unit]}, by which it is the year {shown}{asked}"
