"""Cost of a deployment as lines: quantity × unit price = amount."""

import math
from dataclasses import dataclass

from capplan.errors import InputError
from capplan.fleet.price import Price
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
    """Cost of GPUs by the hour, the month, the year and the token."""

    usd_per_h: float  # of all GPUs [$]
    usd_per_month: float  # 730 h [$]
    usd_per_year: float  # 8,760 h [$]
    usd_per_million_output_tokens: float | None  # None without traffic [$]
    usd_per_million_total_tokens: float | None  # None without traffic [$]
    lines: tuple[CostLine, ...]  # how each is computed
    price: Price  # of one GPU for an hour, with its source


def cost(
    gpu_count: int,
    price: Price,
    *,
    rate_per_s: float = math.nan,
    mean_prompt_tokens: float = 0.0,
    mean_output_tokens: float = 0.0,
) -> Cost:
    """Return the cost of GPUs by the hour, the month, the year and the token.

    ``rate_per_s`` is NaN when the traffic is not known [requests/s]; means are over the
    requests [tokens].
    """
    if gpu_count < 1:
        raise InputError(f"gpu_count is {gpu_count}; expected >= 1")
    for name, value in (
        ("rate_per_s", rate_per_s),
        ("mean_prompt_tokens", mean_prompt_tokens),
        ("mean_output_tokens", mean_output_tokens),
    ):
        if value < 0 or math.isinf(value):
            raise InputError(f"{name} is {value}; expected >= 0")
    doubtful = bool(price.note) and any(
        word in price.note for word in ("guess", "undated", "days old")
    )
    gpus = "GPU" if gpu_count == 1 else "GPUs"
    hour = CostLine("per hour", gpu_count, gpus, price.usd_per_gpu_h, doubtful)
    usd_per_h = hour.amount_usd
    month = CostLine("per month", HOURS_PER_MONTH, "h", usd_per_h, doubtful)
    year = CostLine("per year", HOURS_PER_YEAR, "h", usd_per_h, doubtful)
    total_tokens = mean_prompt_tokens + mean_output_tokens
    output = _per_million("output", rate_per_s * mean_output_tokens, usd_per_h)
    total = _per_million("total", rate_per_s * total_tokens, usd_per_h)
    lines = (hour, month, year, output, total)
    return Cost(
        usd_per_h=usd_per_h,
        usd_per_month=month.amount_usd,
        usd_per_year=year.amount_usd,
        usd_per_million_output_tokens=output.amount_usd if output else None,
        usd_per_million_total_tokens=total.amount_usd if total else None,
        lines=tuple(line for line in lines if line),
        price=price,
    )


def _per_million(kind: str, tokens_per_s: float, usd_per_h: float) -> CostLine | None:
    """Return the hours that a million tokens take, at the price of an hour."""
    if not tokens_per_s > 0:
        return None
    hours = 1e6 / tokens_per_s / 3600
    return CostLine(f"per million {kind} tokens", hours, "h", usd_per_h, True)
