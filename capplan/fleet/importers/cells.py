"""Cells of price files of other tools."""

import math
from typing import Any

from capplan.errors import InputError


def number(value: Any, column: str) -> float:
    """Return the number in a cell, finite."""
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise InputError(f"{column} is {str(value)[:40]!r}; expected a number")
    return found
