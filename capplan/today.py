"""The day that prices are looked at and that reports carry."""

import os
from datetime import UTC, date, datetime

from capplan.errors import InputError

_VARIABLE = "SOURCE_DATE_EPOCH"


def current_day() -> date:
    """Return the day of SOURCE_DATE_EPOCH (reproducible-builds.org), else today."""
    given = os.environ.get(_VARIABLE)
    if not given:
        return date.today()
    try:
        return datetime.fromtimestamp(int(given), UTC).date()
    except (ValueError, OverflowError, OSError):
        raise InputError(
            f"{_VARIABLE} is {given!r}; expected a Unix time, as 1762646400"
        ) from None
