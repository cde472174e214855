"""What an API that bills by the token would ask for a plan's requests."""

from typing import TYPE_CHECKING

from capplan.fleet.api_price import ApiBill, ApiPrice
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.load.traffic_over_time import busiest_hour_of_mean
from capplan.planning.money.cost import HOURS_PER_MONTH
from capplan.planning.plan.told import Told

if TYPE_CHECKING:
    from capplan.planning.plan.result import Plan


def usd_per_request(plan: "Plan", best: Candidate, price: ApiPrice) -> float:
    """Return what an API asks for a request, cached tokens as the plan finds. [$]"""
    cached = plan.mean_prompt_tokens * (best.cached_share or 0.0)
    return (
        (plan.mean_prompt_tokens - cached) * price.usd_per_million_input_tokens
        + cached * price.usd_per_million_cached_tokens
        + plan.mean_output_tokens * price.usd_per_million_output_tokens
    ) / 1e6


def api_of(told: Told) -> ApiBill | None:
    """Return an API's bill beside a plan's, by the busiest hour of its times."""
    peak = busiest_hour_of_mean(told.inputs.trace) if told.is_timed else None
    return api_bill(told.plan, told.settings.api, peak or 1.0)


def api_bill(
    plan: "Plan", price: ApiPrice | None, peak_of_mean: float = 1.0
) -> ApiBill | None:
    """Return an API's bill beside a plan's; None without a price, or a best candidate.

    ``peak_of_mean`` is the busiest hour's rate over the mean: more of the same day is
    sustained until its busiest hour is all that the fleet sustains within the SLO.
    """
    best, own = plan.best, None
    if price is None or best is None:
        return None
    usd_per_s = HOURS_PER_MONTH * 3600 * usd_per_request(plan, best, price)
    if best.cost is not None:
        own = best.cost.usd_per_month
    most_per_s = None
    if plan.replica_load is not None and best.replica_count is not None:
        at_one_rate = plan.replica_load.rate_per_s * best.replica_count
        # It attains the SLO at the planned rate, however that compares.
        most_per_s = max(plan.rate_per_s, at_one_rate / peak_of_mean)
    return ApiBill(
        price,
        usd_per_s * plan.rate_per_s,
        own,
        None if own is None else own / usd_per_s,
        most_per_s,
    )
