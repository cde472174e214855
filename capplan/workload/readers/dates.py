"""Dates as logs write them, as ISO 8601 has them."""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

_SLASHED = re.compile(
    r"\[?(\d\d?)([/.])(\d\d?|[A-Z][a-z]{2})\2(\d{4})[:,]? ?(\d\d?)(:[\d:.]+)"
    r"(?: ([AP]M))?(?: ?([+-]\d\d:?\d\d|Z|UTC))?\]?"
)
"""As nginx writes them, ``10/Oct/2025:13:55:36 +0000``, and spreadsheets."""
_ISO = re.compile(r"\d{4}-\d\d(?:-\d\d|$)|\d{8}T")
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun"]
_MONTHS += ["Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def is_date(value: object) -> bool:
    """Return whether a text is a date that :func:`iso` reads or asks about."""
    text = value if isinstance(value, str) else ""
    return bool(_ISO.match(text) or _SLASHED.fullmatch(text))


def iso(cells: "pd.Series") -> "pd.Series":
    """Return dates as ISO 8601 has them, others as they are.

    Of numbers with slashes the day is sure where one of them is above 12.
    """
    texts = cells.astype(str)  # a number is no year
    if len(texts) and _SLASHED.fullmatch(texts.iloc[0]):
        return _in_order(texts)
    texts = texts.str.replace(r"(:\d\d),(\d+)", r"\1.\2", regex=True)
    return texts.str.replace(r" UTC$", "Z", regex=True)


def _in_order(texts: "pd.Series") -> "pd.Series":
    """Return dates whose parts stand in another order, where it is sure."""
    import pandas as pd

    parts = texts.str.extract(f"^{_SLASHED.pattern}$")
    numbers = {name: str(k) for k, name in enumerate(_MONTHS, 1)}
    day, month = (
        pd.to_numeric(parts[k].replace(numbers), errors="coerce") for k in (0, 2)
    )
    if (month > 12).any():
        day, month = month, day
    is_sure = (parts[1] == ".") | parts[2].isin(_MONTHS) | bool((day > 12).any())
    half = parts[6].map({"AM": 0, "PM": 12})
    hour = pd.to_numeric(parts[4])
    hour = hour.where(half.isna(), hour % 12 + half)
    date = parts[3] + "-" + _two(month) + "-" + _two(day) + "T" + _two(hour) + parts[5]
    date += parts[7].replace("UTC", "Z").fillna("")
    return date.where(is_sure & date.notna(), texts)


def _two(numbers: "pd.Series") -> "pd.Series":
    return numbers.fillna(0).astype(int).astype(str).str.zfill(2)
