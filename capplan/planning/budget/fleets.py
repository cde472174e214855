"""Autoscaled fleets and the budget's hours, simulated on the trace."""

from dataclasses import replace

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.errors import InputError, warn
from capplan.planning.autoscale.autoscale import autoscale
from capplan.planning.autoscale.cases import Outcome
from capplan.planning.autoscale.known_to_policies import name_of
from capplan.planning.autoscale.result import FIXED
from capplan.planning.budget.result import FleetRow
from capplan.planning.budget.settings import BudgetSettings
from capplan.planning.configure.deployments import one_pool
from capplan.planning.evaluate.inputs import Progress
from capplan.planning.load.demand_curve import HOURS_PER_WEEK, DemandCurve, most_of_each
from capplan.planning.money.cost import nodes_of
from capplan.planning.money.node_prices import NodePrices
from capplan.simulator.checks import check_deployment
from capplan.workload.trace import Trace

HOURS = "hours of this budget"
"""Name of the fleet that has the replicas of each hour."""


def schedule_of(replicas: np.ndarray) -> str:
    """Return the policy that has as many replicas at each hour, of a week at most.

    Examples
    --------
    >>> schedule_of(np.array([3, 3, 10]))
    'schedule:max=10,0=3,1=3,2=10'
    """
    folded = most_of_each(replicas, HOURS_PER_WEEK).tolist()
    hours = ",".join(f"{hour}={count}" for hour, count in enumerate(folded))
    return f"schedule:max={max(folded)},{hours}"


def fleet_rows(
    settings: BudgetSettings,
    trace: Trace,
    curve: DemandCurve,
    replicas: np.ndarray,
    configuration: Configuration,
    prices: NodePrices,
    show: Progress,
) -> tuple[FleetRow, ...]:
    """Return fleets on the trace, each beside a fixed one that attains as much.

    ``replicas`` are those of each hour. Nothing where the trace tells no hours, or its
    rate was changed: then there is nothing to simulate; nor, with a warning, where such
    replicas are not simulated as they come and go.
    """
    if not settings.compare_fleets or curve.is_typical or settings.rate is not None:
        return ()
    try:
        check_deployment(one_pool(settings, configuration, 1), moves=True)
    except InputError as error:
        why = str(error).partition(";")[0]
        warn(f"fleets on the trace are not simulated: {why}")
        return ()
    hours = schedule_of(replicas)
    asked = settings.of_fleets(
        configuration.gpu, configuration.layout, (hours, *settings.policies)
    )
    if prices.provider:
        asked = asked.model_copy(update={"provider": prices.provider})
    found = autoscale(asked, show)
    fleets = []
    for row in found.fleets:
        outcome, static = row.outcome, row.fixed
        mean, peak = nodes_over(outcome)
        fleet = FleetRow(
            {FIXED: FIXED, hours: HOURS}.get(row.policy or FIXED, name_of(row.policy)),
            row.policy,
            outcome.slo_attainment,
            outcome.worst_hour_attainment,
            row.meets,
            peak,
            mean,
            outcome.usd_per_month or 0.0,
            None if static is None else nodes_over(static)[1],
            None if static is None else static.usd_per_month,
        )
        fleets.append(fleet)
        if fleet.name == HOURS and not fleet.meets:
            hour = fleet.worst_hour_attainment
            worst = "" if hour is None else f" and {100 * hour:.2f} % in the worst hour"
            warn(
                f"the {HOURS}, simulated on the trace, serve only "
                f"{100 * fleet.slo_attainment:.2f} % in time{worst}: bursts within an "
                "hour need more replicas; the table of fleets shows which fleets hold"
            )
    return tuple(fleets)


def nodes_over(outcome: Outcome) -> tuple[float, int]:
    """Return the nodes paid by a fleet: in the mean over time, and at most."""
    pool, moments = outcome.deployment.pool, outcome.moments

    def units(count: int) -> float:
        paid = nodes_of([replace(pool, replica_count=count)]) or ()
        return sum(row.units for row in paid)

    if moments is None:
        return units(outcome.replica_count), int(units(outcome.replica_count))
    nodes = np.array([units(count) for count in moments.paid.tolist()])
    end_s = moments.start_s[0] + outcome.makespan_s
    lasts_s = np.diff(np.append(moments.start_s, end_s))
    return float((nodes * lasts_s).sum() / lasts_s.sum()), int(nodes.max())
