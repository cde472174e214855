"""Changes of a fleet that are known beforehand: replicas come, leave or die."""

from dataclasses import dataclass
from typing import Literal

from capplan.errors import InputError

Kind = Literal["up", "close", "renew", "fail"]
"""What happens to replicas: they take requests from then on; the newest take no more
and finish what they have; the oldest do so; the newest die with all they have."""


@dataclass(frozen=True)
class Change:
    """Some replicas come up, close or die at a moment."""

    at_s: float  # in the time of the trace [s]
    kind: Kind
    count: int = 1
    ordered_s: float | None = None  # of those that come up; None: at that moment [s]

    def __post_init__(self) -> None:
        """Refuse a change of nothing."""
        if self.count < 1:
            raise InputError(
                f"a change of {self.count} replicas at {self.at_s:g} s; expected >= 1"
            )
