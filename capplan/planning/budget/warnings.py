"""Warnings of what a reader of a budget would not expect."""

from capplan.errors import warn
from capplan.planning.budget.settings import BudgetSettings
from capplan.planning.load.demand_curve import DemandCurve
from capplan.planning.money.bill import Rent
from capplan.planning.money.node_prices import NodePrices
from capplan.planning.money.spot import most_spot


def warn_of_budget(
    settings: BudgetSettings,
    prices: NodePrices,
    curve: DemandCurve,
    rent: Rent,
    peak_nodes: int,
) -> None:
    """Warn of what a reader would not expect, and of what changes nothing."""
    if prices.min_months:
        warn(
            f"nodes are rented for {prices.min_months} months at least: each is paid "
            "for all its hours until then, and none by the hour"
        )
    if settings.spot_share > 0 and most_spot(rent.spot_share, peak_nodes) == 0:
        warn(
            f"a spot share of {rent.spot_share:g} of {peak_nodes} nodes at the peak is "
            "less than one node: none is spot"
        )
    _warn_of_hours(settings, curve)


def _warn_of_hours(settings: BudgetSettings, curve: DemandCurve) -> None:
    """Warn of what the requests' own hours do not show."""
    seen = {
        "window": settings.window,
        "policies": ", ".join(settings.policies),
        "compare_fleets": settings.compare_fleets,
    }
    given = [f"{k} ({v})" for k, v in seen.items() if k in settings.model_fields_set]
    if given and curve.is_typical:
        warn(
            f"{', '.join(given)}: no effect, since a typical week takes the place of "
            "the requests' own hours"
        )
    elif settings.rate is not None and settings.compare_fleets and not curve.is_typical:
        warn("fleets on the trace are not simulated: --rate changes its traffic")
    if curve.is_short:
        warn(
            f"the requests span {curve.days_text}, less than a week: give more, since "
            "weekdays and weekends differ"
        )
