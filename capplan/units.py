"""Parse and format quantities with units; only this module converts them."""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from capplan.currency import USD, Currency
from capplan.errors import InputError

_shown: ContextVar[Currency] = ContextVar("shown", default=USD)

_NUMBER = re.compile(
    r"^\s*\$?\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(\S*)\s*$"
)

_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0}
_SECONDS |= {"h": 3600.0, "d": 86400.0}


def number_in(value: Any) -> float:
    """Return the number that a value or a text says, NaN where it says none."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _parse(text: str, scale: dict[str, float], quantity: str) -> float:
    match = _NUMBER.match(text)
    if not match or match.group(2) not in scale:
        known = ", ".join(scale)
        raise InputError(
            f"{text!r} is not {quantity}; expected a number and one of {known}"
        )
    value = float(match.group(1)) * scale[match.group(2)]
    if not math.isfinite(value):
        raise InputError(f"{text!r} is not {quantity}; expected a finite number")
    return value


def parse_duration_s(text: str) -> float:
    """Return seconds from text such as ``200ms``, ``1.5s`` or ``2h``."""
    return _parse(text, _SECONDS, "a duration")


def parse_rate(text: str) -> float:
    """Return what comes in a second of ``0.5/s``, ``30/min`` or ``200/h``. [1/s]"""
    scale = {f"/{unit}": 1 / _SECONDS[unit] for unit in ("s", "min", "h", "d")}
    rate_per_s = _parse(text, {**scale, "": 1.0}, "a rate")
    if not rate_per_s > 0:
        raise InputError(f"{text!r}: expected a rate above 0")
    return rate_per_s


def parse_gb_per_s(text: str) -> float:
    """Return the bandwidth of ``50GB/s``. [GB/s]"""
    return _parse(text, {"GB/s": 1.0}, "a bandwidth")


def check_duration(text: str) -> None:
    """Refuse what is no duration, and a negative one."""
    if parse_duration_s(text) < 0:
        raise InputError(f"{text!r} is negative; expected a time >= 0")


def parse_usd_per_h(text: str) -> float:
    """Return dollars per hour from ``2.49``, ``$2.49``, ``$2.49/h`` or ``2.49/gpu``."""
    price = _parse(text, {"/h": 1.0, "/gpu": 1.0, "": 1.0}, "a price per hour")
    if price < 0:
        raise InputError(f"{text!r} is negative; expected a price >= 0")
    return price


def format_duration(seconds: float) -> str:
    """Return seconds in the unit of their magnitude.

    Examples
    --------
    >>> format_duration(0.0123), format_duration(2.5), format_duration(7200)
    ('12.3 ms', '2.5 s', '2 h')
    """
    if not math.isfinite(seconds):
        return "–"
    size = abs(seconds)
    for limit, scale, unit in ((1e-3, 1e6, "µs"), (1, 1e3, "ms"), (600, 1, "s")):
        if size < limit:
            return f"{seconds * scale:.3g} {unit}"
    if size < 7200:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / 3600:.3g} h"


def format_bytes(count: float) -> str:
    """Return bytes in binary units.

    Examples
    --------
    >>> format_bytes(80 * 2**30)
    '80 GiB'
    """
    for scale, unit in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(count) >= scale:
            return f"{count / scale:.4g} {unit}"
    return f"{count:.0f} B"


@contextmanager
def shown_in(currency: Currency) -> Iterator[None]:
    """Let amounts be formatted in a currency."""
    before = _shown.set(currency)
    try:
        yield
    finally:
        _shown.reset(before)


def in_shown_currency(usd: float) -> tuple[str, float]:
    """Return the symbol and the amount that dollars are shown as."""
    currency = _shown.get()
    return currency.symbol, currency.amount(usd)


def format_usd(usd: float, digits: int | None = None) -> str:
    """Return dollars, with cents below $1,000 or as many ``digits`` as asked for.

    Within :func:`shown_in` they are told in its currency.

    Examples
    --------
    >>> format_usd(12345.6), format_usd(2.494), format_usd(2.494, 0)
    ('$12,346', '$2.49', '$2')
    """
    symbol, amount = in_shown_currency(usd)
    if digits is None:
        digits = 0 if abs(amount) >= 1000 else 2
    amount = round(amount, digits) + 0.0  # no sign before a zero
    return f"{symbol}{amount:,.{digits}f}"
