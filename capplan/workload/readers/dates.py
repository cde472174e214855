"""Dates as logs and spreadsheets write them."""

import re
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

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


def dates(cells: "pd.Series") -> tuple["pd.Series", float]:
    """Return the time of each date, NaT where it is none or its month is not sure.

    And how far the clock of the first is ahead of UTC. [s]
    """
    import pandas as pd

    texts = (
        cells.dropna().astype(str).str.replace(r"(:\d\d),(\d)", r"\1.\2", regex=True)
    )
    texts = texts.str.strip("[]").str.replace(", ", " ", regex=False)
    if not (forms := _forms(texts.iloc[0])):
        texts, forms = texts.str.replace(r" UTC$", "Z", regex=True), ["ISO8601"]
    likely = [pd.to_datetime(texts, format=f, utc=True, errors="coerce") for f in forms]
    most = max(stamps.count() for stamps in likely)
    likely = [stamps for stamps in likely if stamps.count() == most]
    first = pd.to_datetime(texts.iloc[:1], format=forms[0], errors="coerce").iloc[0]
    ahead = None if pd.isna(first) else first.utcoffset()
    sure = likely[0].where(likely[0] == likely[-1]).reindex(cells.index)
    return sure, 0.0 if ahead is None else ahead.total_seconds()


def _forms(text: str) -> list[str]:
    """Return the forms that a date may have."""
    found = []
    for form in _FORMS:
        with suppress(ValueError):
            datetime.strptime(text.strip("[]").replace(", ", " "), form)
            found.append(form)
    return found
