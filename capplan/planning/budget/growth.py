"""Growth of the traffic over months: users, requests of each, tokens of each."""

import re
from dataclasses import dataclass
from typing import Any

from capplan.errors import InputError
from capplan.setting_values import pairs_text, path_text

PARTS = ("users", "requests", "tokens")
"""Growths that multiply: users, requests of a user, tokens of a request."""
_RATE = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+))\s*%\s*/\s*(month|year)")


@dataclass(frozen=True)
class Growth:
    """Growth by the month, of each part; -1 would be the end of all traffic."""

    users: float = 0.0
    requests: float = 0.0
    tokens: float = 0.0

    def rate_factor(self, month: int) -> float:
        """Return requests/s in a month over those of month 1."""
        return ((1 + self.users) * (1 + self.requests)) ** (month - 1)

    def token_factor(self, month: int) -> float:
        """Return tokens of a request in a month over those of month 1."""
        return (1 + self.tokens) ** (month - 1)

    def work_factor(self, month: int) -> float:
        """Return tokens/s in a month over those of month 1."""
        return self.rate_factor(month) * self.token_factor(month)


def parse_growth(text: str) -> Growth:
    """Return the growth of ``3%/month``, or of ``users=40%/year,tokens=1%/month``.

    One rate alone is that of the users. A yearly rate G is (1 + G)^(1/12) - 1 a month.

    Examples
    --------
    >>> round(parse_growth("3%/month").rate_factor(13), 9)
    1.425760887
    >>> round(parse_growth("requests=100%/year").rate_factor(13), 9)
    2.0
    """
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, equals, rate = part.rpartition("=")
        name = name.strip() if equals else PARTS[0]
        if name not in PARTS:
            raise InputError(
                f"growth {text!r}: {name!r} does not grow; expected "
                f"{', '.join(PARTS)}, as in users=3%/month,tokens=10%/year"
            )
        if name in shares:
            raise InputError(f"growth {text!r}: {name} is given twice")
        shares[name] = _per_month(rate.strip(), text)
    return Growth(**shares)


def _per_month(rate: str, text: str) -> float:
    found = _RATE.fullmatch(rate)
    if found is None:
        raise InputError(
            f"growth {text!r}: {rate!r} is no rate; expected 3%/month or 40%/year: "
            "the two compound differently"
        )
    share = float(found.group(1)) / 100
    if share <= -1:
        raise InputError(
            f"growth {text!r}: {rate} leaves no traffic; expected more than -100%"
        )
    return share if found.group(2) == "month" else (1 + share) ** (1 / 12) - 1


def growth_text(value: Any) -> Any:
    """Return growth as one text; in YAML it may be ``{users: 3%/month}``."""
    return path_text(pairs_text(value))
