"""Draws of what a plan rests on: days, the profile's error, lengths, prices, growth."""

import math
from dataclasses import dataclass, replace

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.errors import warn
from capplan.latency.engine_time import between
from capplan.planning.load.load import Load, scaled
from capplan.planning.settings.risk import WEEKDAYS, RiskSettings
from capplan.simulator.checks import oversized
from capplan.units import format_duration
from capplan.workload.days import empty_blocks, laid, whole_blocks
from capplan.workload.synthesis import resample, with_output_scale
from capplan.workload.trace import Trace
from capplan.workload.week_curve import WEEKEND

FEWEST_DAYS = 3
"""Whole days from which days are drawn; of fewer, hours."""
FULL_WEEK = 7
"""Days below which a plan says what so few days do."""
_HOURS = 24
# Each input has numbers of its own: leaving one out changes no other.
_DAYS, _PROFILE, _LENGTHS, _PRICES, _GROWTH, _OUTPUT = range(30, 36)


@dataclass(frozen=True)
class Draw:
    """One draw of what a plan rests on."""

    index: int  # below 0: lengths as they are
    blocks: tuple[int, ...] = ()  # days, or hours, of the trace in their new order
    capacity_ratio: float = 1.0  # load that a replica sustains, of the one planned
    growth: float = 1.0  # factor on the rate
    output: float = 1.0  # factor on the answer lengths
    offer: int | None = None  # index in the providers' prices; None: the planned one

    @property
    def load_ratio(self) -> float:
        """Arrivals at a replica in the terms of the planned one, of those planned."""
        return self.growth / self.capacity_ratio


@dataclass(frozen=True)
class DrawnInput:
    """What is drawn of one input."""

    name: str  # "days", "profile", "lengths", "prices", "growth" or "output"
    how: str  # from what
    # factor that 80 % of the draws lie between; None where it is no factor
    between: tuple[float, float] | None = None
    varies: bool = True  # False where nothing is known to draw from


@dataclass(frozen=True, eq=False)
class Draws:
    """What is drawn around one configuration and its requests."""

    seed: int
    load: Load
    configuration: Configuration
    inputs: tuple[DrawnInput, ...]
    block_s: float = 0.0  # of a day or an hour; 0 where no times are drawn [s]
    strata: tuple[tuple[int, ...], ...] = ()  # of each block: those drawn in its place
    empty: frozenset[int] = frozenset()  # blocks in which nothing arrives
    capacity: tuple[float, float, float] | None = None  # quantiles 10, 50 and 90 %
    factors: dict[str, tuple[float, float]] | None = None  # of growth and output
    offer_count: int = 0  # of prices that are drawn; 0: the planned one
    draws_lengths: bool = False

    @property
    def drawn_names(self) -> tuple[str, ...]:
        """Inputs that vary."""
        return tuple(each.name for each in self.inputs if each.varies)

    def draw(self, index: int) -> Draw:
        """Return a draw, the same whatever else is drawn."""
        blocks: tuple[int, ...] = ()
        if self.strata:
            rng = self._rng(_DAYS, index)
            while self.empty.issuperset(blocks):  # a trace has requests
                blocks = tuple(int(rng.choice(stratum)) for stratum in self.strata)
        factors = self.factors or {}
        return Draw(
            index,
            blocks,
            between(self.capacity, self._z(_PROFILE, index)) if self.capacity else 1.0,
            self._factor(factors.get("growth"), _GROWTH, index),
            self._factor(factors.get("output"), _OUTPUT, index),
            int(self._rng(_PRICES, index).integers(self.offer_count))
            if self.offer_count
            else None,
        )

    def load_of(self, draw: Draw, base: Trace) -> Load:
        """Return what ``base_of`` found, as a replica of the planned kind sees it.

        One that sustains the share c of the planned load is a planned one at 1 / c of
        the arrivals: iterations and limits 1 / c as long, since the sweeps that c is
        counted in have limits in terms of an engine's own TPOT.
        """
        load = self.load
        if base is not load.base:
            # Of a trace's own arrivals the utilisation is told and not judged.
            known = load.saturations if load.process is None else {}
            load = replace(load, base=base, saturations=known, _samples={})
        return load if draw.load_ratio == 1.0 else scaled(load, draw.load_ratio)

    def base_of(self, draw: Draw) -> Trace:
        """Return the requests of a draw before they are scaled in time."""
        base = self.load.base
        if draw.blocks:
            base = laid(base, self.block_s, draw.blocks)
        elif self.draws_lengths and draw.index >= 0:
            drawn = resample(base, len(base), self._rng(_LENGTHS, draw.index))
            base = replace(drawn, arrival_s=base.arrival_s, notes=base.notes)
        return base if draw.output == 1.0 else self._with_output(base, draw.output)

    def busiest_per_s(self, base: Trace) -> float:
        """Return the rate of the busiest hour of a draw's requests; 0 without times."""
        if base.arrival_s is None or not self.strata:
            return 0.0
        hour_s = self.load.day_s / _HOURS
        hours = ((base.arrival_s - base.arrival_s[0]) / hour_s).astype(np.int64)
        return float(np.bincount(hours).max()) / hour_s

    def _with_output(self, base: Trace, factor: float) -> Trace:
        """Return requests with longer or shorter answers, where they fit a replica."""
        changed = with_output_scale(base, factor)
        too_large = oversized(changed, self.configuration.engine)
        if not too_large.any():
            return changed
        kept = {
            name: np.where(too_large, getattr(base, name), getattr(changed, name))
            for name in ("output_tokens", "predicted_output_tokens")
            if getattr(base, name) is not None
        }
        return replace(base, **kept)

    def _factor(self, ends: tuple[float, float] | None, of: int, index: int) -> float:
        if ends is None:
            return 1.0
        low, high = ends
        return between((low, math.sqrt(low * high), high), self._z(of, index))

    def _z(self, of: int, index: int) -> float:
        return float(self._rng(of, index).standard_normal())

    def _rng(self, of: int, index: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, of, index))


def draws_of(
    settings: RiskSettings, seed: int, load: Load, configuration: Configuration
) -> Draws:
    """Return what is drawn for a configuration and its requests."""
    asked = settings.drawn
    days = _blocks(settings, load) if "days" in asked else None
    inputs = [] if days is None else [days[0]]
    block_s, strata = (0.0, ()) if days is None else days[1:]
    if settings.first_day is not None and block_s < load.day_s:
        warn(f"--first-day {settings.first_day} changes nothing: no days are drawn")
    capacity = None
    if "profile" in asked:
        profile, capacity = _profile(configuration)
        inputs.append(profile)
    if "lengths" in asked:
        how = f"drawn from the {len(load.base):,} requests"
        if strata:
            how = "drawn with their days or hours"
        inputs.append(DrawnInput("lengths", how, varies=not strata))
    offers = 0 if configuration.price is None else len(configuration.price.providers)
    if "prices" in asked:
        how = f"{offers} providers, equally likely"
        if offers < 2:
            how = "not drawn: only one price is known"
        inputs.append(DrawnInput("prices", how, varies=offers > 1))
    factors = {name: ends for name, ends in asked.items() if ends is not None}
    for name, ends in factors.items():
        inputs.append(DrawnInput(name, "as given", ends, varies=ends[0] < ends[1]))
    return Draws(
        seed,
        load,
        configuration,
        tuple(inputs),
        block_s,
        strata,
        empty_blocks(load.base, block_s, len(strata)),
        capacity,
        factors,
        offers if "prices" in asked and offers > 1 else 0,
        "lengths" in asked and not strata,
    )


def _profile(
    configuration: Configuration,
) -> tuple[DrawnInput, tuple[float, float, float] | None]:
    found = configuration.capacity_quantiles()
    if found is None or not found[0] > 0:
        how = "not drawn: its error is not known"
        return DrawnInput("profile", how, varies=False), None
    how = "by the error of its fit"
    if configuration.sweep_count:
        how = f"as {configuration.sweep_count:,} load tests differ"
    if configuration.is_unmeasured:
        how += ", of other engines"
    ends = (found[0], found[2])
    return DrawnInput("profile", how, ends, varies=ends[0] < ends[1]), found


def _blocks(
    settings: RiskSettings, load: Load
) -> tuple[DrawnInput, float, tuple[tuple[int, ...], ...]]:
    """Return how times are drawn: the block, and of each which stand in its place."""
    if load.process is not None:
        how = f"not drawn: arrivals are {load.process}, at one rate"
        return DrawnInput("days", how, varies=False), 0.0, ()
    days = whole_blocks(load.base, load.day_s)
    if days >= FEWEST_DAYS:
        strata, how = _strata(days, settings.first_day)
        left_s = load.base.duration_s - days * load.day_s
        if left_s > 0:
            how += f"; the last {format_duration(left_s)}, no whole day, are left out"
        varies = any(len(stratum) > 1 for stratum in strata)
        return DrawnInput("days", how, varies=varies), load.day_s, strata
    hour_s = load.day_s / _HOURS
    hours = whole_blocks(load.base, hour_s)
    if hours < FEWEST_DAYS:
        lasts = format_duration(load.base.duration_s)
        how = f"not drawn: the arrivals last only {lasts}"
        return DrawnInput("days", how, varies=False), 0.0, ()
    of = f"{days} whole day{'s' * (days != 1)}" if days else "not a whole day"
    how = f"{of}, so that {hours} hours are drawn in place of days"
    every = tuple(range(hours))
    return DrawnInput("days", how), hour_s, (every,) * hours


def _strata(
    days: int, first_day: str | None
) -> tuple[tuple[tuple[int, ...], ...], str]:
    """Return which days stand in the place of each: weekdays, or days of a weekend."""
    every = tuple(range(days))
    if first_day is None:
        return (every,) * days, f"{days} days, any in place of any (no --first-day)"
    first = WEEKDAYS.index(first_day)
    weekend = [(first + day) % FULL_WEEK in WEEKEND for day in every]
    strata = tuple(
        tuple(other for other in every if weekend[other] == weekend[day])
        for day in every
    )
    kinds = sum(weekend)
    return strata, f"{days - kinds} weekdays and {kinds} weekend days, drawn apart"
