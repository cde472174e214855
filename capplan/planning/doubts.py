"""Why a configuration's count of GPUs or its cost may be far from what it will be."""

from capplan.fleet.price import Price
from capplan.latency.profile import Profile

WIDE = 2.0
"""Most over least that real engines carry, from which it is no range."""

UNMEASURED = "no engine of this kind was measured"


def doubts_of(
    profile: Profile | None, carried: tuple[float, float] | None, price: Price | None
) -> tuple[str, ...]:
    """Return the doubts; none where engines were measured and a price is asked.

    ``carried`` is what 80 % of real engines carry of what is assumed (low, high).
    """
    found = []
    if profile is not None and profile.how == "estimate":
        found.append("its latency is an estimate")
    elif is_too_wide(carried):
        found.append(UNMEASURED)
    if price is not None and price.is_guess:
        found.append("its price is a guess")
    return tuple(found)


def is_too_wide(carried: tuple[float, float] | None) -> bool:
    """Return whether real engines differ by a factor of two or more."""
    return carried is not None and carried[1] >= WIDE * carried[0]
