"""The price of a GPU hour and its source."""

import math
from dataclasses import dataclass

from capplan.errors import InputError


@dataclass(frozen=True)
class Price:
    """The price of a GPU hour and its source."""

    usd_per_gpu_h: float  # of one GPU: of a node, over its GPUs [$/h]
    source: str  # provider and document, or "given by the user"
    as_of: str = ""  # date as the source states it; empty when undated
    note: str = ""  # how it was chosen; whether it is old, a guess, of too small a node
    is_guess: bool = False  # nobody asks it

    def __post_init__(self) -> None:
        """Refuse a price that is not positive."""
        if not (math.isfinite(self.usd_per_gpu_h) and self.usd_per_gpu_h > 0):
            raise InputError(
                f"price is {self.usd_per_gpu_h} $/h ({self.source}); "
                "expected more than 0"
            )
