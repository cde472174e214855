"""Replicas against the arrival rate: simulated at several, extrapolated to others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from capplan.deployment import gpus_text
from capplan.errors import InputError
from capplan.placement.demand_law import DemandLaw, fit_demand_law
from capplan.planning.plan import plan
from capplan.planning.result import Candidate
from capplan.planning.settings import PlanSettings

FEWEST_RATES = 4
"""Rates that the demand law needs."""


@dataclass(frozen=True)
class Demand:
    """How many replicas of one configuration a workload needs as it grows.

    Parameters
    ----------
    gpu, tp
        The configuration: the cheapest at the highest rate.
    rates_per_s
        Rates simulated, ascending. [requests/s]
    candidates
        What was found at each.
    law
        Aladdin's Eq. 7 through them; None where they are not on a line.
    no_law
        Why there is none; empty when there is.
    warnings
        What to know of it.
    """

    gpu: str
    tp: int
    rates_per_s: tuple[float, ...]
    candidates: tuple[Candidate, ...]
    law: DemandLaw | None
    no_law: str
    warnings: tuple[str, ...]

    @property
    def replica_counts(self) -> tuple[int, ...]:
        """Replicas at each rate."""
        return tuple(one.replica_count or 0 for one in self.candidates)

    def gpus_text_at(self, rate_per_s: float) -> str:
        """Return the GPUs that the law gives at a rate that was not simulated.

        Raises
        ------
        InputError
            When there is no law, or the rate is below where it holds.
        """
        if self.law is None:
            raise InputError(self.no_law)
        return gpus_text(self.law.workers(rate_per_s), self.tp)


def demand(
    request: PlanSettings,
    rates_per_s: Sequence[float],
    progress: Callable[[str], None] | None = None,
) -> Demand:
    """Return the replicas that several rates need, and the law through them.

    Aladdin, section 5.2, Eq. 7: above a rate R the workers needed are
    ⌈k5 · rate + c5⌉. Below it the sample in a heartbeat is too small.

    Parameters
    ----------
    request
        What is asked at each rate; its own rate is replaced.
    rates_per_s
        Rates to simulate, four or more. [requests/s]
    progress
        Called with what is being worked on.

    Raises
    ------
    InputError
        When there are fewer than four rates, or one of them cannot be served.
    """
    rates = tuple(sorted(set(rates_per_s)))
    if len(rates) < FEWEST_RATES:
        raise InputError(
            f"{len(rates)} different rates; expected at least {FEWEST_RATES}"
        )
    found: dict[float, Candidate] = {}
    notes: dict[str, None] = {}
    for rate in reversed(rates):
        asked = request.model_copy(update={"rate": rate})
        answer = plan(asked, progress)
        if answer.best is None:
            raise InputError(f"at {rate:g} requests/s: {answer.infeasible_reason}")
        found[rate] = answer.best
        notes.update(dict.fromkeys(answer.warnings))
        chosen = {"gpu": (answer.best.gpu,), "tp": (answer.best.tp,)}
        request = request.model_copy(update=chosen)
    candidates = tuple(found[rate] for rate in rates)
    counts = np.array([one.replica_count for one in candidates], np.float64)
    law, no_law = None, ""
    try:
        law = fit_demand_law(np.array(rates), counts)
    except InputError as error:
        no_law = str(error)
    return Demand(
        gpu=candidates[0].gpu,
        tp=candidates[0].tp,
        rates_per_s=rates,
        candidates=candidates,
        law=law,
        no_law=no_law,
        warnings=tuple(notes),
    )
