"""What a budget rests on: each figure with its source, and which are assumed."""

from capplan.planning.budget.result import Budget
from capplan.planning.money.cost import HOURS_PER_MONTH
from capplan.planning.money.owned import defaults_of, parse_owned
from capplan.planning.money.spot import SHORTFALL
from capplan.planning.plan.assumptions import price_day
from capplan.planning.plan.result import Assumption
from capplan.units import format_duration, format_usd

GIVEN, ASSUMED = "given", "assumed"


def budget_assumptions(budget: Budget, drain_s: float) -> tuple[Assumption, ...]:
    """Return what a budget rests on; ``assumed`` are the starred ones."""
    rows = [*_traffic(budget), *_fleet(budget, drain_s), *_prices(budget)]
    if budget.rent.spot is not None:
        rows += _spot(budget)
    if budget.owned is not None:
        given = parse_owned(budget.settings.owned or "")
        rows += [
            Assumption(what, value, source, ASSUMED)
            for what, value, source in defaults_of(budget.owned, given)
        ]
    return (*rows, *_energy(budget))


def _traffic(budget: Budget) -> list[Assumption]:
    curve, settings = budget.curve, budget.settings
    window = format_duration(curve.window_s)
    text = f"the busiest {window} of each hour hold the SLO by themselves"
    rows = [
        Assumption("hours", curve.source, text, ASSUMED if curve.is_typical else GIVEN),
        Assumption(
            "growth",
            settings.growth,
            "--growth",
            GIVEN if "growth" in settings.model_fields_set else ASSUMED,
        ),
    ]
    if settings.growing.tokens:
        text = "a request of k times the tokens counts as k requests"
        rows.append(Assumption("tokens", text, "not simulated", ASSUMED))
    return rows


def _fleet(budget: Budget, drain_s: float) -> list[Assumption]:
    known, settings = budget.by_rate, budget.settings
    points = ", ".join(
        f"{count} at {rate:.4g}/s"
        for rate, count in zip(known.rates_per_s, known.counts, strict=True)
    )
    law = known.no_law
    if known.law is not None:
        slope, fixed = known.law.workers_per_rate, known.law.workers_fixed
        law = f"in between ⌈{slope:.4g} · rate {fixed:+.3g}⌉ within these"
    arrivals = settings.arrivals or "poisson"
    cold = format_duration(budget.cold_start_s)
    return [
        Assumption(
            "replicas", points, f"simulated, {arrivals} arrivals; {law}", "fitted"
        ),
        Assumption(
            "cold start",
            cold,
            "paid from the order on",
            GIVEN if settings.cold_start else ASSUMED,
        ),
        Assumption("drain", format_duration(drain_s), "paid after the hour", ASSUMED),
        Assumption("month", f"{HOURS_PER_MONTH} h", "8,760 h / 12", GIVEN),
    ]


def _prices(budget: Budget) -> list[Assumption]:
    prices = budget.prices
    size = f"node of {prices.gpus_per_node} GPUs"
    if prices.is_per_gpu:
        size = "GPU; the size of a node is not known"
    value = f"{format_usd(prices.usd_per_node_h)} an hour for a {size}"
    how = ASSUMED if prices.is_doubtful else "published"
    rows = price_day(budget.settings)
    rows.append(Assumption("on demand", value, prices.source, how))
    for term in prices.terms:
        value = f"{format_usd(term.usd_per_node_h)} an hour"
        how = ASSUMED if term.is_assumed else GIVEN
        rows.append(Assumption(term.name, value, term.source, how))
    if any(term.upfront_share for term in prices.terms):
        value = f"{budget.settings.wacc:g} a year"
        rows.append(Assumption("cost of capital", value, "--wacc", GIVEN))
    return rows


def _spot(budget: Budget) -> list[Assumption]:
    rent, settings = budget.rent, budget.settings
    there = f"{100 * rent.spot_there:.3f} % of the time"
    there += f"; too few in {100 * SHORTFALL:.1f} % of it"
    rows = [
        Assumption(
            "spot node there",
            there,
            "1 / (1 + λ t); losses assumed independent, which they are not in a zone",
            GIVEN if settings.spot else ASSUMED,
        )
    ]
    if settings.spot_return is None:
        text = "the time to find another is not counted; give --spot-return"
        rows.append(Assumption("spot return", "a cold start", text, ASSUMED))
    return rows


def _energy(budget: Budget) -> list[Assumption]:
    power = budget.power
    if power is None:
        return []
    drawn = f"{power.draw:g} of it drawn, PUE {power.pue:g}"
    value = f"{power.kw:.3g} kW a node at most, {drawn}"
    grid = f"{power.g_co2e_per_kwh:.4g} g CO2e/kWh"
    how = GIVEN if "grid" in budget.settings.model_fields_set else ASSUMED
    source = "rated power x 10.2 kW / 5.6 kW of a DGX H100; Uptime Institute 2025"
    return [
        Assumption("power", value, source, ASSUMED),
        Assumption(
            "electricity",
            grid,
            f"{power.grid_source}; making the GPUs not counted",
            how,
        ),
    ]
