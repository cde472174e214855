"""A currency of one's own: dollars of one unit, as its user gives it."""

import re
from dataclasses import dataclass

from capplan.errors import InputError

DOLLAR = "USD"
_SYMBOLS = {"EUR": "€", "GBP": "£", "JPY": "¥", "INR": "₹", "KRW": "₩"}
_CODE = re.compile(r"[A-Z]{3}")


@dataclass(frozen=True)
class Currency:
    """A currency, and what one unit of it costs."""

    code: str = DOLLAR  # of ISO 4217
    usd: float = 1.0  # of one unit [$]

    @property
    def symbol(self) -> str:
        """What stands before an amount: ``€``, or the code and a space."""
        if self.code == DOLLAR:
            return "$"
        return _SYMBOLS.get(self.code, f"{self.code}\N{NO-BREAK SPACE}")

    def dollars(self, amount: float) -> float:
        """Return the dollars of an amount in this currency. [$]"""
        return amount * self.usd

    def amount(self, usd: float) -> float:
        """Return the amount in this currency of dollars."""
        return usd / self.usd

    def __str__(self) -> str:
        """Return ``EUR at $1.08``."""
        return f"{self.code} at ${self.usd:g}"


USD = Currency()


def parse_code(text: str) -> str:
    """Return the code of a currency in capitals.

    Examples
    --------
    >>> parse_code("eur")
    'EUR'
    """
    code = text.strip().upper()
    if not _CODE.fullmatch(code):
        raise InputError(f"{text!r} is no currency; expected a code such as EUR or GBP")
    return code


def currency_of(code: str | None, usd_per_unit: float | None) -> Currency:
    """Return a currency as given; without one, dollars. No exchange rate is guessed."""
    if code in (None, DOLLAR):
        if usd_per_unit not in (None, 1.0):
            raise InputError(
                f"exchange_rate is {usd_per_unit:g} and currency "
                f"{code or 'is not given'}; expected the currency of which one unit "
                "costs so many dollars, such as EUR"
            )
        return USD
    if usd_per_unit is None:
        raise InputError(
            f"currency is {code} and exchange_rate is not given; expected the dollars "
            f"of one {code}"
        )
    return Currency(str(code), usd_per_unit)
