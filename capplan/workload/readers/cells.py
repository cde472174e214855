"""Dates and numbers as logs and spreadsheets write them in cells."""

import re
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

FIRST_YEAR, LAST_YEAR = 1970, 2199
"""Years that a request may be of."""
DECIMAL_COMMA = r"\s*-?\d+,\d+\s*"
_GROUPED = r"\s*-?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?\s*"
_ISO = re.compile(r"\d{4}-\d\d(?:-\d\d|$)|\d{8}T")
_DAYS = ("%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y")
_TIMES: tuple[str, ...] = ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M %p")
_TIMES += ("%I:%M:%S %p", "%I:%M:%S.%f %p")
_FORMS = (
    "%d/%b/%Y:%H:%M:%S %z",
    *(f"{day} {time}" for day in _DAYS for time in _TIMES),
    *(f"%Y-%m-%d {time}" for time in ("%H:%M:%S:%f", *_TIMES[3:])),
    *("%b %d %Y @ %H:%M:%S.%f", "%a %d %b %Y %H:%M:%S GMT"),
    *("%a %b %d %H:%M:%S UTC %Y", "%a %b %d %H:%M:%S GMT %Y"),
)
"""Of nginx and Apache; of spreadsheets, where the month may stand first, and portals
and SQL Server; of Kibana, HTTP and Java."""


def is_date(text: object) -> bool:
    """Return whether a text is a date."""
    return isinstance(text, str) and bool(_ISO.match(text) or _forms(text))


def dates(cells: "pd.Series") -> tuple["pd.Series", "pd.Series", float]:
    """Return the time of each date, its month first and last, NaT where it is none.

    The month is sure where they are the same. And how far the clock of the first is
    ahead of UTC. [s]
    """
    import pandas as pd

    def read(texts: "pd.Series", form: str) -> "pd.Series":
        return pd.to_datetime(texts, format=form, utc=True, errors="coerce")

    texts = cells.dropna().astype(str)
    forms = _forms(texts.iloc[0]) or ["ISO8601"]
    likely = [read(texts, form) for form in forms]
    if likely[0].hasnans:
        texts = texts.str.replace(r"(:\d\d),(\d)", r"\1.\2", regex=True)
        texts = texts.str.strip("[]").str.replace(", ", " ", regex=False)
        if forms == ["ISO8601"]:
            texts = texts.str.replace(r" UTC$", "Z", regex=True)
        likely = [read(texts, form) for form in forms]
    most = max(stamps.count() for stamps in likely)
    likely = [s.reindex(cells.index) for s in likely if s.count() == most]
    first = pd.to_datetime(texts.iloc[:1], format=forms[0], errors="coerce").iloc[0]
    ahead = None if pd.isna(first) else first.utcoffset()
    return likely[0], likely[-1], 0.0 if ahead is None else ahead.total_seconds()


def in_years(stamps: "pd.Series") -> "pd.Series":
    """Return which stamps are of the years that a request may be of."""
    # int64 overflows at 1677 and 2262
    return stamps.dt.year.between(FIRST_YEAR, LAST_YEAR)


def are_dates(cells: "pd.Series") -> bool:
    """Return whether cells are dates and no numbers, by the first that is not empty."""
    first = next(iter(cells.dropna()), None)
    return not is_numeric(cells) and is_date(str(first))


def impossible(cells: "pd.Series", least: float = -np.inf) -> np.ndarray:
    """Return which cells say no date or number of a request, shape (n,), bool.

    Such as Infinity, n/a, what is below ``least``, or the 30th of February; digits that
    are no number may be one in a form that is not known.
    """
    if are_dates(cells):
        first, last, _ = dates(cells)
        return (cells.notna() & ~in_years(first) & ~in_years(last)).to_numpy()
    numbers = parsed(cells, whole=True)
    none = np.isinf(numbers) | (numbers < least)
    if not is_numeric(cells):
        has_digit = cells.astype(str).str.contains(r"\d")
        none |= cells.notna() & numbers.isna() & ~has_digit
    return none.to_numpy(bool)


def is_numeric(cells: "pd.Series") -> bool:
    """Return whether a column was read as numbers."""
    return cells.dtype.kind in "biuf"


def parsed(cells: "pd.Series", *, whole: bool = False) -> "pd.Series":
    """Return the numbers that cells say, NaN where one says none.

    A comma stands between thousands or for the decimal point where the column shows
    which: a ``whole`` number has none but zeros behind a point.
    """
    import pandas as pd

    if is_numeric(cells) and cells.dtype != bool:
        return cells
    texts = cells.astype(str)
    commas = texts[texts.str.contains(",", regex=False)]
    if len(commas):
        grouped = commas.str.fullmatch(_GROUPED)
        zeros = commas.str.contains(r"^[^,]+,000$") & (len(commas) == cells.count())
        if grouped.all() and (
            commas.str.contains(r",.*[,.]").any() or whole > zeros.all()
        ):
            texts = texts.str.replace(",", "")
        elif commas.str.fullmatch(DECIMAL_COMMA).all() and not grouped.all():
            texts = texts.str.replace(",", ".")
    return pd.to_numeric(texts, errors="coerce")


def _forms(text: str) -> list[str]:
    found = []
    for form in _FORMS:
        with suppress(ValueError):
            datetime.strptime(text.strip("[]").replace(", ", " "), form)
            found.append(form)
    return found
