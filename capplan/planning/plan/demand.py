"""Replicas against the arrival rate: simulated at several, extrapolated to others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import Pool
from capplan.errors import InputError
from capplan.placement.demand_law import OF_LAW, DemandLaw, fit_demand_law
from capplan.planning.configure.speculation import is_searched, with_drafts
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.inputs import Progress, part_of, unseen
from capplan.planning.plan.plan import of_best, plan
from capplan.planning.settings.plan import DemandSettings, PlanSettings
from capplan.planning.shown import Shown

FEWEST_RATES = 2
"""Rates that are a comparison."""


Planned = tuple[tuple[Candidate, ...], tuple[str, ...]]
"""The best candidate at each rate, ascending, and warnings of the plans."""
Plans = dict[str, Planned]
"""By the settings of the plans."""


@dataclass(frozen=True, repr=False)
class Demand(Shown):
    """How many replicas of one configuration a workload needs as it grows."""

    configuration: Configuration  # the cheapest at the highest rate
    rates_per_s: tuple[float, ...]  # simulated, ascending [requests/s]
    extrapolated_per_s: tuple[float, ...]  # to extrapolate to [requests/s]
    candidates: tuple[Candidate, ...]  # the best at each rate simulated
    law: DemandLaw | None  # Aladdin's Eq. 7; None of too few, or not on a line
    no_law: str  # why there is none; empty when there is one
    warnings: tuple[str, ...]  # for the reader

    def pool_at(self, rate_per_s: float) -> Pool:
        """Return the replicas that the law extrapolates to a rate."""
        if self.law is None:
            raise InputError(self.no_law)
        return Pool(self.configuration, self.law.workers(rate_per_s))


def demand(settings: DemandSettings, progress: Progress | None = None) -> Demand:
    """Plan for several arrival rates and fit the demand law through the counts.

    Aladdin, section 5.2, Eq. 7: above a rate R the workers needed are
    ⌈k5 · rate + c5⌉. Below it the sample in a heartbeat is too small. The highest
    rate chooses the configuration, which the others keep.
    """
    rates = tuple(sorted(set(settings.rates)))
    if len(rates) < FEWEST_RATES:
        raise InputError(
            f"{len(rates)} different rate{'s' * (len(rates) != 1)}; expected at least "
            f"{FEWEST_RATES}, as in --rates 20,40"
        )
    if settings.at and len(rates) < OF_LAW:
        raise InputError(
            f"--at extrapolates by a line through the counts at {OF_LAW} rates or more;"
            f" {len(rates)} are given: give more --rates, or these among them"
        )
    candidates, notes = planned_at(rates, settings.at_rate, progress)
    counts = np.array([row.replica_count for row in candidates], np.float64)
    run = candidates[-1].run
    assert run is not None
    law, no_law = None, ""
    try:
        law = fit_demand_law(np.array(rates), counts)
    except InputError as error:
        no_law = str(error)
    return Demand(
        configuration=run.configuration,
        rates_per_s=rates,
        extrapolated_per_s=settings.at,
        candidates=candidates,
        law=law,
        no_law=no_law,
        warnings=notes,
    )


def planned_at(
    rates_per_s: Sequence[float],
    at_rate: Callable[[float], PlanSettings],
    progress: Progress | None = None,
    known: Plans | None = None,
) -> Planned:
    """Return the best candidate at each rate, ascending, and warnings of the plans.

    The highest rate chooses the configuration, which the others keep. What is ``known``
    of plans with the same settings, which differ in money beside them, is kept there.
    """
    known = {} if known is None else known
    key = "\n".join(at_rate(rate).model_dump_json() for rate in rates_per_s)
    if key in known:
        return known[key]
    best: Candidate | None = None
    candidates: list[Candidate] = []
    notes: dict[str, None] = {}
    for done, rate in enumerate(reversed(rates_per_s)):
        before = f"{rate:g} requests/s: "
        step = part_of(progress or unseen, done, len(rates_per_s), before)
        asked = at_rate(rate)
        result = plan(asked if best is None else _of_best(asked, best), step)
        if result.best is None:
            raise InputError(f"at {rate:g} requests/s: {result.infeasible_reason}")
        best = result.best
        candidates.insert(0, best)
        notes.update(dict.fromkeys(result.warnings))
    known[key] = tuple(candidates), tuple(notes)
    return known[key]


def _of_best(settings: PlanSettings, best: Candidate) -> PlanSettings:
    """Return the settings of a plan of one GPU type, layout and number of drafts."""
    assert best.run is not None
    configuration = best.run.configuration
    speculation = configuration.engine.speculation
    if is_searched(settings):
        settings = with_drafts(settings, speculation.drafts if speculation else 0)
    return of_best(settings, best)
