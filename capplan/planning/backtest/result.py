"""The answer of a backtest."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from capplan.deployment.configuration import Configuration
from capplan.planning.backtest.compared import Figures
from capplan.planning.backtest.phi import Phi
from capplan.planning.shown import Shown


class Input(NamedTuple):
    """A file that was read."""

    path: str
    sha256: str
    kind: str  # "metrics" or "requests"


class ComparedWindow(NamedTuple):
    """A window as measured, and as simulated with the times that are assumed."""

    replica: str
    first_s: float
    last_s: float
    requests: float
    laws: Mapping[str, float]
    measured: Figures
    simulated: Figures
    ratio: Figures
    phi: float | None  # None of a saturated one
    saturated: bool

    @property
    def rate_per_s(self) -> float:
        """Requests that ended in a second."""
        return self.requests / (self.last_s - self.first_s)


class Fleet(NamedTuple):
    """How many replicas run, how much they carry, and how many would do."""

    replica_count: int
    peak_per_s: float  # of all replicas in the busiest window [requests/s]
    saturation_per_s: float | None  # of a replica, with the factor; None: not known
    enough: int | None = None  # replicas for the SLO at that peak; None: not asked
    slo_text: str = ""

    @property
    def utilisation(self) -> float | None:
        """Share of what the replicas complete at most, in the busiest window."""
        if not self.saturation_per_s:
            return None
        return self.peak_per_s / (self.replica_count * self.saturation_per_s)


@dataclass(frozen=True, eq=False, repr=False)
class Backtest(Shown):
    """A fleet that runs, held against its simulation."""

    inputs: tuple[Input, ...]
    llm: str
    configuration: Configuration
    windows: tuple[ComparedWindow, ...]
    phi: Phi | None  # None where all windows are saturated
    phi_prefill: float | None  # of the time from the first chunk to the first token
    front_end_s: float | None  # TTFT without queue and prefill [s]
    capacity_factor: float | None  # load that a replica carries, of that assumed
    rho: float | None  # correlation of prompts and answers; None of given requests
    rho_identified: bool
    throughput_ratio: float | None  # of saturated windows: measured over the most
    unexplained: tuple[str, ...]
    fleet: Fleet
    warnings: tuple[str, ...] = ()

    @property
    def is_outside(self) -> bool:
        """Whether a replica carries other than the profile's range says."""
        stated = self.configuration.capacity_ratio
        if self.capacity_factor is None or stated is None or self.phi is None:
            return False
        if self.phi.low <= 1 <= self.phi.high:
            return False
        return not stated[0] <= self.capacity_factor <= stated[1]
