"""Prices of an API that bills by the token, and its bill beside a plan's."""

import math
from dataclasses import dataclass

from capplan.errors import InputError
from capplan.units import number_in


@dataclass(frozen=True)
class ApiPrice:
    """What an API asks for a million tokens, by their kind."""

    usd_per_million_input_tokens: float  # of prompts that no cache had [$]
    usd_per_million_output_tokens: float  # [$]
    usd_per_million_cached_tokens: float  # of prompts, found in a prefix cache [$]


@dataclass(frozen=True)
class ApiBill:
    """What an API would ask for a plan's requests, and from when owning is cheaper."""

    price: ApiPrice
    usd_per_month: float  # 730 h at the planned rate [$]
    own_usd_per_month: float | None  # the plan's bill; None without a price [$]
    # of the same requests, at which the API asks what this fleet costs [requests/s]
    break_even_per_s: float | None
    # that the fleet sustains within its SLO; None where not measured [requests/s]
    most_per_s: float | None


_NAMES = ("in", "out", "cached")


def parse_api_price(text: str) -> ApiPrice:
    """Return the prices of ``in=0.60,out=2.40``, and ``cached`` where it has one."""
    usd: dict[str, float] = {}
    for part in str(text).split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        amount = number_in(value)
        if name not in _NAMES or name in usd or not 0 <= amount < math.inf:
            raise InputError(
                f"{part!r} is no price of an API; expected dollars of a million tokens "
                "as in in=0.60,out=2.40,cached=0.15, each once"
            )
        usd[name] = amount
    if not {"in", "out"} <= usd.keys() or not usd["out"] > 0:
        raise InputError(f"{text!r}: expected a price of in, and of out above 0")
    return ApiPrice(usd["in"], usd["out"], usd.get("cached", usd["in"]))
