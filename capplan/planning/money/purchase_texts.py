"""Commitments and quotas as users write them."""

import re
from dataclasses import dataclass

from capplan.errors import InputError
from capplan.planning.money.ladder import Quota

_COMMIT = re.compile(r"reserved:(\d+)(?:=\$?(\d+\.?\d*|\.\d+)\s*(%?))?")
_QUOTAS = {"committed": "committed", "on-demand": "on_demand", "spot": "spot"}

NO_COMMITMENT = "none"
DEFAULT_COMMITMENTS = ("reserved:12", "reserved:36")
"""What the ladder chooses from where nothing is asked for."""


@dataclass(frozen=True)
class Wish:
    """A commitment to choose from: a term, and its price where it is given."""

    months: int
    discount: float | None = None  # on the price on demand
    usd_per_gpu_h: float | None = None  # [$/h]


def parse_commit(text: str) -> Wish | None:
    """Return the term of ``reserved:12``, ``reserved:12=35%`` or ``reserved:12=1.9``.

    None of ``none``.

    Examples
    --------
    >>> parse_commit("reserved:36=55%")
    Wish(months=36, discount=0.55, usd_per_gpu_h=None)
    """
    if text.strip() == NO_COMMITMENT:
        return None
    found = _COMMIT.fullmatch(text.strip())
    if found is None or not 1 <= int(found.group(1)) <= 120:
        raise InputError(
            f"commit {text!r}; expected none, reserved:MONTHS, "
            "reserved:MONTHS=DISCOUNT% or reserved:MONTHS=USD_PER_GPU_HOUR"
        )
    months, value = int(found.group(1)), found.group(2)
    if value is None:
        return Wish(months)
    if not found.group(3):
        if not float(value) > 0:
            raise InputError(f"commit {text!r}: a price of 0; expected more")
        return Wish(months, usd_per_gpu_h=float(value))
    if not 0 <= float(value) < 100:
        raise InputError(f"commit {text!r}: expected a discount from 0 to below 100 %")
    return Wish(months, discount=float(value) / 100)


def parse_quota(text: str) -> Quota:
    """Return the quotas of ``committed=20,on-demand=8,spot=4``.

    Examples
    --------
    >>> parse_quota("on-demand=8")
    Quota(committed=None, on_demand=8, spot=None)
    """
    given: dict[str, int] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, count = (piece.strip() for piece in part.partition("="))
        key = _QUOTAS.get(name.replace("_", "-"))
        if key is None or not count.isdigit():
            raise InputError(
                f"quota {part!r}; expected {', '.join(_QUOTAS)} and a number of nodes, "
                "as in on-demand=8"
            )
        if key in given:
            raise InputError(f"quota {text!r}: {name} is given twice")
        given[key] = int(count)
    return Quota(**given)
