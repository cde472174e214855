"""What a GPU costs for an hour, and who says so."""

import math
from dataclasses import dataclass

from capplan.errors import InputError


@dataclass(frozen=True)
class Price:
    """What one GPU costs for an hour, and who says so.

    Parameters
    ----------
    usd_per_gpu_h
        Price of one GPU. [$/h]
    source
        Provider and document, or "given by the user".
    as_of
        Date of the price as the source gives it; empty when undated.
    note
        What to know of it (old, a guess, how it was chosen); empty when nothing.
    """

    usd_per_gpu_h: float
    source: str
    as_of: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        """Refuse a price that nobody can ask."""
        if not (math.isfinite(self.usd_per_gpu_h) and self.usd_per_gpu_h >= 0):
            raise InputError(
                f"price is {self.usd_per_gpu_h} $/h ({self.source}); expected >= 0"
            )
