"""Why a configuration's count of GPUs or its cost may be far from what it will be."""

from capplan.fleet.price import Price
from capplan.latency.profile import Profile

WIDE = 2.0
"""Most over least that real engines carry, from which a configuration is in doubt."""


def doubts_of(
    profile: Profile | None, carried: tuple[float, float] | None, price: Price | None
) -> tuple[str, ...]:
    """Return the doubts; none where engines were measured and a price is asked.

    ``carried`` is what 80 % of real engines carry of what is assumed (low, high).
    """
    found = []
    if profile is not None and profile.how == "estimate":
        found.append("its latency is an estimate")
    elif spread := _spread(profile, carried):
        low, high = spread
        if high >= WIDE * low:
            text = f"real engines carry {low:.2f} to {high:.2f} of what is assumed"
            found.append(text)
    if price is not None and price.is_guess:
        found.append("its price is a guess")
    return tuple(found)


def _spread(
    profile: Profile | None, carried: tuple[float, float] | None
) -> tuple[float, float] | None:
    """Return what real engines carry, by the sweeps where a plan states no range."""
    if carried is not None or profile is None or profile.engine_time is None:
        return carried
    served = profile.engine_time.served
    return None if served is None else (served.capacity[0], served.capacity[2])
