"""Numbers as people read them, and columns of tables of results."""

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from rich.console import JustifyMethod

from capplan.units import format_usd, in_shown_currency

DASH = "–"


def format_share(share: float) -> str:
    """Return a share in percent, rounded down: 98.996 % is below a target of 99 %.

    Examples
    --------
    >>> format_share(0.98996), format_share(1.0), format_share(0.57)
    ('98.99 %', '100 %', '57 %')
    """
    if not math.isfinite(share):
        return DASH
    # 0.57 * 10_000 is 5699.999...: the small term keeps it at 57 %.
    return f"{math.floor(share * 10_000 + 1e-6) / 100:g} %"


def format_load(share: float) -> str:
    """Return a share of the capacity in percent, whole but close to all of it.

    Examples
    --------
    >>> format_load(0.7366), format_load(0.9966), format_load(1.2)
    ('74 %', '99.7 %', '120 %')
    """
    return f"{100 * share:.{int(abs(share - 1) < 0.005)}f} %"


def format_interval(interval: tuple[float, float]) -> str:
    """Return an interval of shares: ``98.9 % to 99.5 %``."""
    return " to ".join(map(format_share, interval))


def format_list(names: Sequence[str]) -> str:
    """Return names in a sentence; empty without any.

    Examples
    --------
    >>> format_list(["rate", "llm", "tp"]), format_list(["rate"])
    ('rate, llm and tp', 'rate')
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def format_count(count: float) -> str:
    """Return a count with thousands separated; three digits of a fraction.

    Examples
    --------
    >>> format_count(20000), format_count(12.3456), format_count(0.01234)
    ('20,000', '12.3', '0.0123')
    """
    if not math.isfinite(count):
        return DASH
    # From 999.5 on, three digits would round to 1e+03.
    if float(count).is_integer() or abs(count) >= 999.5:
        return f"{count:,.0f}"
    return three_digits(count)


def three_digits(value: float) -> str:
    """Return three digits of a number, never with an exponent.

    Examples
    --------
    >>> three_digits(0.0000596), three_digits(12.34), three_digits(12345)
    ('0.0000596', '12.3', '12300')
    """
    return f"{Decimal(f'{value:.3g}'):f}"


def format_cents(usd: float) -> str:
    """Return dollars to the cent, whatever currency is shown."""
    return f"${usd:,.2f}"


def format_ms(seconds: float) -> str:
    """Return a time in milliseconds, to a hundredth."""
    return f"{1e3 * seconds:.2f} ms"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun.

    Examples
    --------
    >>> plural(1, "GPU"), plural(40, "GPU")
    ('1 GPU', '40 GPUs')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def format_fine_usd(usd: float) -> str:
    """Return dollars; below a dollar, three digits in place of whole cents.

    Examples
    --------
    >>> format_fine_usd(0.0414), format_fine_usd(99.6), format_fine_usd(0)
    ('$0.0414', '$99.60', '$0.00')
    """
    symbol, amount = in_shown_currency(usd)
    # From $0.995 on, three digits would round to $1.
    small = 0 < abs(amount) < 0.995
    return f"{symbol}{three_digits(amount)}" if small else format_usd(usd)


def format_usd_change(amount: float) -> str:
    """Return dollars with their sign.

    Examples
    --------
    >>> format_usd_change(35945), format_usd_change(-99.6), format_usd_change(0)
    ('+$35,945', '−$99.60', '$0.00')
    """
    return f"{sign(amount)}{format_usd(abs(amount))}"


def sign(amount: float) -> str:
    """Return the sign before an amount; none before zero."""
    return "+" if amount > 0 else "−" if amount < 0 else ""


def at(value: Any, path: str) -> Any:
    """Return what lies at a path of attributes, keys and indices.

    None where a part of the path is None, or a sequence ends before the index.

    Examples
    --------
    >>> at({"interval": (0.98, 0.99)}, "interval.1"), at(None, "interval.1")
    (0.99, None)
    """
    for part in path.split(".") if path else ():
        if value is None:
            return None
        if isinstance(value, Mapping):
            value = value[part]
        elif part.isdigit():
            value = value[int(part)] if int(part) < len(value) else None
        else:
            value = getattr(value, part)
    return value


def starred(
    flag: str, path: str, show: Callable[[Any], str] = format_usd
) -> Callable[[Any], str | None]:
    """Return what shows a value with a star where a flag of its row is set."""

    def told(row: Any) -> str | None:
        value = at(row, path)
        return None if value is None else show(value) + ("*" if at(row, flag) else "")

    return told


CSV, JSON = "CSV", "JSON"


class Column(NamedTuple):
    """A figure of a result: its key in the files, where it lies, how people read it."""

    name: str  # in JSON and CSV; empty: in neither
    value: Callable[[Any], Any]  # of a row; may be None
    heading: str = ""  # for people; empty: not shown to them
    show: Callable[[Any], str] = str  # formats the value for people
    justify: JustifyMethod = "right"
    is_wide: bool = False  # a text that takes a line of its own on a phone
    leaves: int = 0  # order in which columns leave a narrow terminal; 0: it stays
    told: Callable[[Any], Any] | None = None  # what people read of a row instead
    only: str = ""  # CSV or JSON, where the other has no such key
    after: str = ""  # name behind which tables have it, which JSON has further on

    def text(self, row: Any) -> str:
        """Return the value for people; a dash where there is none."""
        value = (self.told or self.value)(row)
        return DASH if value is None or value == "" else self.show(value)

    def within(self, path: str) -> "Column":
        """Return the column of rows in which its own row lies at a path."""

        def of_part(value: Callable[[Any], Any]) -> Callable[[Any], Any]:
            def of(row: Any) -> Any:
                part = at(row, path)
                return None if part is None else value(part)

            return of

        told = None if self.told is None else of_part(self.told)
        return self._replace(value=of_part(self.value), told=told)


def column(
    name: str,
    heading: str = "",
    show: Callable[[Any], str] = str,
    justify: JustifyMethod = "right",
    *,
    path: str = "",
    **layout: Any,
) -> Column:
    """Return the column of what lies at a path; by default that of its name."""
    place = path or name
    return Column(name, lambda row: at(row, place), heading, show, justify, **layout)


def constant(name: str, value: Any) -> Column:
    """Return the column with the same value in every row; people are not shown it."""
    return Column(name, lambda row: value)


def tabled(fields: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns of tables, each behind the one that it names.

    Examples
    --------
    >>> low, tp = column("low", after="tp"), column("tp")
    >>> [each.name for each in tabled([low, column("pools", only=JSON), tp])]
    ['tp', 'low']
    """
    kept = [each for each in fields if each.only != JSON]
    found = [each for each in kept if not each.after]
    for each in kept:
        if each.after:
            names = [other.name for other in found]
            found.insert(names.index(each.after) + 1, each)
    return tuple(found)


def record(columns: Sequence[Column], row: Any) -> dict[str, Any]:
    """Return the values of a row by the keys of the JSON.

    Examples
    --------
    >>> record([column("tp", "TP"), column("", "at", path="tp")], {"tp": 2})
    {'tp': 2}
    """
    kept = [each for each in columns if each.name and each.only != CSV]
    return {each.name: each.value(row) for each in kept}


def by_name(columns: Sequence[Column]) -> dict[str, Column]:
    """Return the columns of files by their names."""
    return {each.name: each for each in columns if each.name}
