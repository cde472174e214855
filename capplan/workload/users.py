"""Users who each wait for their answer, think, and ask again: a closed loop."""

from dataclasses import dataclass

import numpy as np

from capplan.errors import InputError
from capplan.units import format_duration, parse_duration_s
from capplan.workload.trace import Trace

MOST_USERS = 1_000_000
"""Users that may ask at once; each has a place in memory."""

_EXPONENTIAL = "exp:"


@dataclass(frozen=True)
class Users:
    """How many users there are, and how long they think."""

    count: int
    mean_think_s: float  # between an answer and the next request [s]
    is_exponential: bool = False  # distributed so; else every user thinks as long

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST_USERS:
            raise InputError(f"users is {self.count}; expected 1 to {MOST_USERS:,}")

    def __str__(self) -> str:
        """Return ``500 users, think time exp:20 s``."""
        users = f"{self.count:,} {'user' if self.count == 1 else 'users'}"
        return f"{users}, {think_text(self.mean_think_s, self.is_exponential)}"

    def asking(
        self, trace: Trace, rng: np.random.Generator, until_s: float = np.inf
    ) -> Trace:
        """Return requests that users ask one after the other, without times.

        The first request of a user comes after the rest of a think time that began
        before: uniform where all think as long, else exponential again. So users do
        not all ask at time 0, unless they do not think.
        """
        think_s = np.full(len(trace), float(self.mean_think_s))
        first = slice(0, self.count)
        if self.is_exponential:
            think_s *= rng.standard_exponential(len(trace))
        else:
            think_s[first] *= rng.random(len(think_s[first]))
        return trace.changed(
            arrival_s=None,
            users=min(self.count, len(trace)),
            think_s=think_s,
            asked_until_s=until_s,
            notes=(*trace.notes, f"asked by {self}"),
        )


ONE_USER = Users(1, 0.0)
"""One user who does not think: requests one after the other."""


def think_text(mean_s: float, is_exponential: bool) -> str:
    """Return ``think time exp:20 s``. ``mean_s`` is as in ``Users``."""
    if not mean_s:
        return "no think time"
    kind = _EXPONENTIAL if is_exponential else ""
    return f"think time {kind}{format_duration(mean_s)}"


def parse_think(text: str) -> tuple[float, bool]:
    """Return the mean think time of ``2s`` or ``exp:2s``, and whether it varies. [s]"""
    varies = text.startswith(_EXPONENTIAL)
    given = text.removeprefix(_EXPONENTIAL)
    mean_s = 0.0 if given.strip() == "0" else parse_duration_s(given)
    if mean_s < 0:
        raise InputError(f"{text!r} is negative; expected a think time >= 0")
    return mean_s, varies
