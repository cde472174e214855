"""The price of a GPU hour and its source."""

import math
from dataclasses import dataclass

from capplan.errors import InputError


@dataclass(frozen=True)
class Price:
    """The price of a GPU hour and its source.

    Parameters
    ----------
    usd_per_gpu_h
        Price of one GPU: of a node, over its GPUs. [$/h]
    source
        Provider and document, or "given by the user".
    as_of
        Date of the price as the source states it; empty when undated.
    note
        How it was chosen, and whether it is old, a guess or of too small a node;
        may be empty.
    """

    usd_per_gpu_h: float
    source: str
    as_of: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        """Refuse a price that is not positive."""
        if not (math.isfinite(self.usd_per_gpu_h) and self.usd_per_gpu_h > 0):
            raise InputError(
                f"price is {self.usd_per_gpu_h} $/h ({self.source}); "
                "expected more than 0"
            )
