"""How a fleet is simulated and judged: by how many samples, and what is told."""

from dataclasses import dataclass

from capplan.planning.evaluate.known_runs import Simulate
from capplan.simulator.fleet.fleet import Stopped
from capplan.simulator.results.request_times import METRICS
from capplan.simulator.simulate import simulate

BUDGET_REQUESTS = 200_000
"""Requests simulated for one replica count of several configurations."""
OF_FEW = 10
"""Times as many where there are few configurations."""
THOROUGH = 40
"""Times as many for the best configuration, and for a count by itself."""


@dataclass(frozen=True)
class Judging:
    """How a fleet is simulated and judged."""

    seed: int
    metrics: tuple[str, ...] = METRICS  # whose distributions are told
    budget_requests: int = THOROUGH * BUDGET_REQUESTS  # of drawn arrivals, about
    first_only: bool = False  # by one sample alone
    only_whether: bool = False  # where it misses the SLO nothing else is told
    stopped: Stopped | None = None  # says when to raise Interrupted
    by_then: bool = False  # only before there is a sample: else judge those there are
    simulate_with: Simulate = simulate  # may know simulations of other plans
