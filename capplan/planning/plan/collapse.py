"""At how many sessions a replica the hits of prefix caches collapse."""

from collections.abc import Sequence
from dataclasses import dataclass

from capplan.planning.evaluate.probe import Probe

_KEPT, _LOST = 0.9, 0.5
"""Parts of the highest hit rate simulated, above which hits stay and below which most
are gone."""


@dataclass(frozen=True)
class Collapse:
    """The counts simulated between which most hits vanish."""

    users_per_replica: float  # the most sessions of which hits stay
    hit_rate: float  # share of prompt tokens found in caches
    users_per_replica_lost: float  # the fewest, of those simulated, that lose most
    hit_rate_lost: float

    def __str__(self) -> str:
        return (
            f"hits collapse beyond {self.users_per_replica:,.0f} sessions a replica: "
            f"{100 * self.hit_rate:.0f} % of prompt tokens are found in caches there, "
            f"{100 * self.hit_rate_lost:.0f} % with {self.users_per_replica_lost:,.0f}"
        )


def collapse_of(probes: Sequence[Probe]) -> Collapse | None:
    """Return where hits collapse; None where no count simulated lost most of them."""
    rates = [
        (probe.users_per_replica, probe.sessions.hit_rate)
        for probe in probes
        if probe.sessions is not None
    ]
    most = max((rate for _, rate in rates), default=0.0)
    lost = [row for row in rates if row[1] < _LOST * most]
    first = min(lost, default=(0.0, 0.0))
    kept = [row for row in rates if row < first and row[1] >= _KEPT * most]
    return Collapse(*max(kept), *first) if kept else None
