"""Numbers as people read them, and columns of tables of results."""

import math
from collections.abc import Callable, Mapping, Sequence
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
    return f"{count:.3g}"


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
    return f"{symbol}{amount:.3g}" if 0 < abs(amount) < 0.995 else format_usd(usd)


def format_usd_change(amount: float) -> str:
    """Return dollars with their sign.

    Examples
    --------
    >>> format_usd_change(35945), format_usd_change(-99.6), format_usd_change(0)
    ('+$35,945', '−$99.60', '$0.00')
    """
    sign = "+" if amount > 0 else "−" if amount < 0 else ""
    return f"{sign}{format_usd(abs(amount))}"


def at(value: Any, path: str) -> Any:
    """Return what lies at a path of attributes, keys and indices.

    None where a part of the path, or the value before it, is None.

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
        else:
            value = value[int(part)] if part.isdigit() else getattr(value, part)
    return value


def starred(
    flag: str, path: str, show: Callable[[Any], str] = format_usd
) -> Callable[[Any], str | None]:
    """Return what shows a value with a star where a flag of its row is set."""

    def told(row: Any) -> str | None:
        value = at(row, path)
        return None if value is None else show(value) + ("*" if at(row, flag) else "")

    return told


class Column(NamedTuple):
    """One column of a table of results."""

    name: str  # in CSV; empty: not there
    value: Callable[[Any], Any]  # of a row; may be None
    heading: str = ""  # for people; empty: not shown to them
    show: Callable[[Any], str] = str  # formats the value for people
    justify: JustifyMethod = "right"
    is_wide: bool = False  # a text that takes a line of its own on a phone
    leaves: int = 0  # order in which columns leave a narrow terminal; 0: it stays
    told: Callable[[Any], Any] | None = None  # what people read of a row instead

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
    told: Callable[[Any], Any] | None = None,
    is_wide: bool = False,
    leaves: int = 0,
) -> Column:
    """Return the column of what lies at a path; by default that of its name."""
    place = path or name
    return Column(
        name,
        lambda row: at(row, place),
        heading,
        show,
        justify,
        is_wide,
        leaves,
        told,
    )


def constant(name: str, value: Any) -> Column:
    """Return the column with the same value in every row; people are not shown it."""
    return Column(name, lambda row: value)


def ends(name: str, path: str) -> tuple[Column, Column]:
    """Return the columns of the ends of an interval; people are shown neither."""
    return (
        column(f"{name}_low", path=f"{path}.0"),
        column(f"{name}_high", path=f"{path}.1"),
    )


def record(columns: Sequence[Column], row: Any) -> dict[str, Any]:
    """Return the values of a row by the names of the columns that have one.

    Examples
    --------
    >>> record([column("tp", "TP"), column("", "at", path="tp")], {"tp": 2})
    {'tp': 2}
    """
    return {column.name: column.value(row) for column in columns if column.name}
