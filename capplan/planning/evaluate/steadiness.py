"""Whether a fleet holds its load in the long run."""

import math
from dataclasses import dataclass

import numpy as np

from capplan.units import format_duration

_SUSTAINED_S = 1800.0
"""Time in which more arrives than is completed, until the last of a trace's own
arrivals, that shows a backlog which does not drain. [s]"""
_CHANCE = 2.0
"""Standard deviations of the arrivals in such a time that are chance."""


@dataclass(frozen=True)
class Steadiness:
    """Whether a fleet holds its load in the long run, as far as it is known."""

    drawn: bool = False  # arrivals are drawn; else they are a trace's own
    # arrivals over the saturated throughput of the replicas
    utilisation: float = math.nan
    utilisation_error: float = 0.0  # relative half-width of its 95 % interval
    busiest_utilisation: float = math.nan  # of the busiest window of a trace's own
    # of a trace's own arrivals until the last, over 30 minutes or all that there are
    sustained: float = math.nan
    as_replayed: bool = False  # a backlog at the end of a trace is taken as it is
    binds: bool = False  # whether no SLO is met at a utilisation of 1 and above
    # whether fleets that start empty and full come to the same; None: not asked
    settled: bool | None = None
    recovery_s: float | None = None  # from a full queue [s]
    simulated_s: float = 0.0  # traffic in which they did, or did not [s]
    filling: bool = False  # whether a trace's own arrivals end before it has filled

    @property
    def known_utilisation(self) -> float | None:
        """The utilisation; None where it is not known."""
        return None if math.isnan(self.utilisation) else self.utilisation

    @property
    def known_sustained(self) -> float | None:
        """That of arrivals until the last; None where it is not known, or drawn."""
        return self.sustained if self.binds and self.sustained > 0 else None

    @property
    def overloaded(self) -> bool:
        """Whether more arrives than can be completed, beyond the error."""
        return self.binds and self.utilisation * (1 - self.utilisation_error) >= 1

    @property
    def outpaced(self) -> bool:
        """Whether a trace ends with a backlog that grows while such traffic lasts."""
        return (self.known_sustained or 0.0) >= 1

    @property
    def open(self) -> str:
        """Why drawn arrivals cannot be said to meet an SLO; empty where they can."""
        if not self.drawn:
            return ""
        if self.binds and self.utilisation >= 1:
            return f"{100 * self.utilisation:.1f} % loaded"
        if self.settled is False:
            return (
                f"still warming up after {format_duration(self.simulated_s)} of traffic"
            )
        return "" if self.settled else "one sample, from an empty start"


def sustained_per_s(arrival_s: np.ndarray) -> float:
    """Return the highest rate of arrivals from a moment until the last. [requests/s]

    That of all, or from a moment 30 minutes before the last or earlier, less what
    chance adds: who completes fewer ends with a backlog (Reich, "Waiting Times when
    Queues are in Tandem", 1957), and has had it for 30 minutes.
    """
    lasts_s = arrival_s[-1] - arrival_s
    early = lasts_s >= min(_SUSTAINED_S, lasts_s[0])
    counts = np.arange(len(arrival_s), 0, -1.0)[early]
    beyond_chance = counts - _CHANCE * np.sqrt(counts)
    beyond_chance[0] = counts[0]  # of all
    return float((beyond_chance / lasts_s[early]).max())
