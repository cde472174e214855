"""The price of a GPU hour and its source."""

import math
from dataclasses import dataclass, replace

from capplan.errors import InputError

GIVEN = "given by the user"
"""Source of a price that the user gave."""


@dataclass(frozen=True)
class Price:
    """The price of a GPU hour and its source."""

    usd_per_gpu_h: float  # of one GPU: of a node, over its GPUs [$/h]
    source: str  # whose price it is, of the user's file its document too; or GIVEN
    as_of: str = ""  # date as the source states it; empty when undated
    note: str = ""  # for people: how it was chosen, and what is doubtful about it
    is_guess: bool = False  # nobody asks it
    is_stale: bool = False  # undated, or old on the day of the plan
    kind: str = "on-demand"  # as of an Offer, with its months
    provider: str = ""
    node: str = ""  # what the provider calls the offer; empty where not known
    gpus_per_node: int | None = None  # GPUs that are rented together; None: not known
    nvlink_domain_gpus: int | None = None  # as of an Offer
    # of each provider: price of a GPU hour [$/h], GPUs of its node; none where given
    asked: tuple[tuple[float, int | None], ...] = ()

    def __post_init__(self) -> None:
        """Refuse a price that is not positive."""
        if not (math.isfinite(self.usd_per_gpu_h) and self.usd_per_gpu_h > 0):
            raise InputError(
                f"price is {self.usd_per_gpu_h} $/h ({self.source}); "
                "expected more than 0"
            )

    @property
    def bought(self) -> tuple[str, str, int | None, float]:
        """What is bought at it: equal where replicas can share nodes."""
        return self.provider, self.node, self.gpus_per_node, self.usd_per_gpu_h

    @property
    def by_provider(self) -> list["Price"]:
        """The price as each provider asks it; none where it is given."""
        return [
            replace(self, usd_per_gpu_h=usd, gpus_per_node=size)
            for usd, size in self.asked
        ]

    @property
    def usd_per_gpu_h_range(self) -> tuple[float, float] | None:
        """Of the providers, (cheapest, dearest); None where it is given. [$/h]"""
        asked = [usd for usd, _ in self.asked]
        return (min(asked), max(asked)) if asked else None
