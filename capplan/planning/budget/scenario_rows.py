"""What a budget comes to under each of its scenarios."""

from collections.abc import Callable
from dataclasses import replace

from capplan.planning.budget.result import Budget, ScenarioRow
from capplan.planning.budget.scenarios import AS_ASKED, Scenario, parse_scenarios
from capplan.planning.budget.settings import BudgetSettings
from capplan.planning.evaluate.inputs import Progress, part_of
from capplan.planning.money.cost import HOURS_PER_MONTH, HOURS_PER_YEAR
from capplan.planning.money.node_prices import NodePrices

MONTHS_PER_YEAR = HOURS_PER_YEAR // HOURS_PER_MONTH


def priced(prices: NodePrices, factor: float) -> NodePrices:
    """Return what nodes cost at other prices, whichever way they are paid for."""
    if factor == 1:
        return prices
    spot = prices.spot
    if spot is not None:
        spot = replace(spot, usd_per_gpu_h=spot.usd_per_gpu_h * factor)
    return replace(
        prices,
        usd_per_gpu_h=prices.usd_per_gpu_h * factor,
        least_usd_per_month=prices.least_usd_per_month * factor,
        spot=spot,
        terms=tuple(
            replace(term, usd_per_node_h=term.usd_per_node_h * factor)
            for term in prices.terms
        ),
    )


def scenario_rows(
    settings: BudgetSettings,
    asked: Budget,
    budget_under: Callable[[BudgetSettings, Progress, Scenario], Budget],
    show: Progress,
) -> tuple[ScenarioRow, ...]:
    """Return a row for each scenario: a budget of its own, with its own commitments."""
    rows = []
    named = parse_scenarios(settings.scenarios)
    for done, (name, changed) in enumerate(named.items()):
        found = asked
        if changed != AS_ASKED:
            step = part_of(show, done, len(named), f"{name}: ")
            found = budget_under(settings.under(changed), step, changed)
        rows.append(_row(name, changed, found))
    return tuple(rows)


def _row(name: str, changed: Scenario, budget: Budget) -> ScenarioRow:
    """Return what a budget under a scenario comes to."""
    if not budget.months:
        reason = budget.infeasible_reason
        return ScenarioRow(name, str(changed), infeasible_reason=reason)
    first, last = budget.months[0], budget.months[-1]
    year = budget.months[:MONTHS_PER_YEAR]
    return ScenarioRow(
        name,
        str(changed),
        replicas=first.replicas,
        replicas_last_month=last.replicas,
        nodes=first.bill.nodes,
        nodes_last_month=last.bill.nodes,
        usd_first_month=first.bill.usd,
        usd_last_month=last.bill.usd,
        # Of less than a year no year is known.
        usd_first_year=sum(month.bill.usd for month in year)
        if len(year) == MONTHS_PER_YEAR
        else None,
        usd=budget.usd,
        usd_owed_after=budget.usd_owed_after,
        is_estimated=any(m.is_estimated or m.is_doubtful for m in budget.months),
        configuration=budget.configuration,
        usd_by_month=tuple(month.bill.usd for month in budget.months),
    )
