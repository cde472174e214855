"""Features that do not go together, as ``conflicts.csv`` lists them."""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from capplan.errors import InputError
from capplan.shipped import table_rows


class Conflict(NamedTuple):
    """Two features that do not go together."""

    feature: str
    beside: str
    why: str
    expected: str

    @property
    def because(self) -> str:
        """The end of a message: why not, and what is expected instead."""
        return f"{self.why and ': '}{self.why}; expected {self.expected}"


@cache
def conflicts() -> tuple[Conflict, ...]:
    """Return the rows of ``conflicts.csv``."""
    return tuple(table_rows(Path(__file__).with_suffix(".csv"), Conflict))


def found_conflict(given: Iterable[str]) -> Conflict | None:
    """Return the first two of some features that do not go together."""
    features = frozenset(given)
    return next((row for row in conflicts() if features.issuperset(row[:2])), None)


def conflict_of(given: Mapping[str, str]) -> str:
    """Return what does not go together, and what is expected; empty for nothing.

    ``given``: how a user names each feature.
    """
    if (row := found_conflict(given)) is None:
        return ""
    both = f"{given[row.feature]} with {given[row.beside]}"
    return f"{both} is not modelled{row.because}"


def refuse_conflicts(given: Mapping[str, str]) -> None:
    """Refuse features that do not go together; ``given``: how a user names each."""
    if text := conflict_of(given):
        raise InputError(text)
