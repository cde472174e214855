"""Spot nodes: how many are there when some are needed."""

import math
from functools import cache

from capplan.errors import InputError
from capplan.planning.money.cost import HOURS_PER_MONTH
from capplan.planning.money.spares import fewest_spares

SHORTFALL = 0.001
"""Share of the time in which fewer spot nodes than needed are accepted; assumed."""
INTERRUPTION_PER_MONTH = 0.20
"""Share of spot nodes taken back in a month where none is known: the upper end of AWS
Spot Advisor's band of p5 nodes, 15 to 20 % (2026-02-24, via thundercompute.com)."""


def availability(per_month: float, return_s: float) -> float:
    """Return the share of time that a spot node is there: 1 / (1 + λ t).

    A node is taken back at rate λ = -ln(1 - q) / 730 h, for the share q taken back in a
    month, and another takes t to come.

    Examples
    --------
    >>> round(availability(0.20, 3600.0), 6)
    0.999694
    """
    if not 0 <= per_month < 1:
        raise InputError(
            f"{100 * per_month:.0f} % of the spot nodes are taken back in a month; "
            "expected less than 100 %"
        )
    rate_per_h = -math.log1p(-per_month) / HOURS_PER_MONTH
    return 1 / (1 + rate_per_h * return_s / 3600)


def most_spot(share: float, nodes: int) -> int:
    """Return the most of so many nodes that may be spot.

    Examples
    --------
    >>> most_spot(0.3, 10), most_spot(0.3, 3)
    (3, 0)
    """
    return int(share * nodes + 1e-6)  # 0.29 of 100 are 29 and not 28


@cache
def spot_nodes(needed: int, share_there: float, shortfall: float = SHORTFALL) -> int:
    """Return the fewest nodes of which so many are there, but for a share of the time.

    The fewest n with P(Bin(n, a) >= needed) >= 1 - shortfall; nodes are taken to go
    independently, which they do not within one zone.

    Examples
    --------
    >>> spot_nodes(10, 0.99), spot_nodes(0, 0.99)
    (12, 0)
    """
    if needed <= 0:
        return 0
    return needed + fewest_spares(needed, 1 - share_there, 1 - shortfall)
