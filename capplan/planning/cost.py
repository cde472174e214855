"""Cost of a deployment as lines: quantity × unit price = amount."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from capplan.deployment.pools import DECODE, PREFILL, Pool
from capplan.errors import InputError
from capplan.units import format_usd

HOURS_PER_MONTH = 730
"""Hours that a month is billed as. [h]"""

HOURS_PER_YEAR = 8760
"""Hours of a year. [h]"""


@dataclass(frozen=True)
class CostLine:
    """One line of a bill."""

    what: str  # "per month"
    quantity: float  # 730
    quantity_unit: str  # "h"
    unit_price_usd: float  # of one of them [$]
    estimated: bool = False  # rests on simulated traffic or a doubtful price; starred

    @property
    def amount_usd(self) -> float:
        """Quantity times unit price. [$]"""
        return self.quantity * self.unit_price_usd

    def __str__(self) -> str:
        """Return ``per month: 730 h × $34.32 = $25,054``, starred if estimated."""
        star = "*" if self.estimated else ""
        return (
            f"{self.what}: {self.quantity:,.6g} {self.quantity_unit} × "
            f"{format_usd(self.unit_price_usd)} = {format_usd(self.amount_usd)}{star}"
        )


@dataclass(frozen=True)
class Cost:
    """Cost of pools by the hour, the month, the year and the token."""

    usd_per_h: float  # of all pools [$]
    usd_per_month: float  # 730 h [$]
    usd_per_year: float  # 8,760 h [$]
    usd_per_million_output_tokens: float | None  # None without traffic [$]
    usd_per_million_total_tokens: float | None  # None without traffic [$]
    lines: tuple[CostLine, ...]  # how each is computed


def usd_per_h(pools: Sequence[Pool]) -> float | None:
    """Return what pools cost by the hour; None where one has no price. [$]"""
    hours = _hours(pools)
    return None if hours is None else sum(line.amount_usd for line in hours)


def usd_per_month(pools: Sequence[Pool]) -> float | None:
    """Return what pools cost in a month; None where one has no price. [$]"""
    hour = usd_per_h(pools)
    return None if hour is None else HOURS_PER_MONTH * hour


def cost(
    pools: Sequence[Pool],
    *,
    paid_replicas: float | None = None,
    rate_per_s: float = math.nan,
    mean_prompt_tokens: float = 0.0,
    mean_output_tokens: float = 0.0,
) -> Cost | None:
    """Return the cost of pools by the hour, the month, the year and the token.

    None where a pool has no price. ``paid_replicas`` are those of the only pool in the
    mean, where they come and go. ``rate_per_s`` is NaN when the traffic is not known
    [requests/s]; means are over the requests [tokens].
    """
    for name, value in (
        ("rate_per_s", rate_per_s),
        ("mean_prompt_tokens", mean_prompt_tokens),
        ("mean_output_tokens", mean_output_tokens),
    ):
        if value < 0 or math.isinf(value):
            raise InputError(f"{name} is {value}; expected >= 0")
    hours = _hours(pools, paid_replicas)
    if hours is None:
        return None
    usd = sum(line.amount_usd for line in hours)
    doubtful = any(line.estimated for line in hours)
    month = CostLine("per month", HOURS_PER_MONTH, "h", usd, doubtful)
    year = CostLine("per year", HOURS_PER_YEAR, "h", usd, doubtful)
    total_tokens = mean_prompt_tokens + mean_output_tokens
    output = per_million("output", rate_per_s * mean_output_tokens, usd)
    total = per_million("total", rate_per_s * total_tokens, usd)
    return Cost(
        usd_per_h=usd,
        usd_per_month=month.amount_usd,
        usd_per_year=year.amount_usd,
        usd_per_million_output_tokens=output.amount_usd if output else None,
        usd_per_million_total_tokens=total.amount_usd if total else None,
        lines=(*hours, *(line for line in (month, year, output, total) if line)),
    )


def _hours(
    pools: Sequence[Pool], paid_replicas: float | None = None
) -> list[CostLine] | None:
    """Return an hour of each pool; None where one has no price."""
    lines, of = [], [pool.configuration.gpu for pool in pools]
    if len(set(of)) < len(of):  # of one GPU type they are told by what they do
        of = [PREFILL, DECODE]
    for pool, name in zip(pools, of, strict=False):
        count: float = pool.gpu_count
        if paid_replicas is not None:
            count = paid_replicas * pool.configuration.tp
        price = pool.configuration.price
        if price is None:
            return None
        lines.append(
            CostLine(
                "per hour" if len(pools) == 1 else f"per hour, {name}",
                count,
                "GPU" if count == 1 else "GPUs",
                price.usd_per_gpu_h,
                price.is_guess or price.is_stale or paid_replicas is not None,
            )
        )
    return lines


def per_million(kind: str, tokens_per_s: float, usd_per_h: float) -> CostLine | None:
    """Return the hours that a million tokens take, at the price of an hour."""
    if not tokens_per_s > 0:
        return None
    hours = 1e6 / tokens_per_s / 3600
    return CostLine(f"per million {kind} tokens", hours, "h", usd_per_h, True)
