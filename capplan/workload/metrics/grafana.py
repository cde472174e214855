"""CSV that Grafana writes of a panel or a query: Inspect, Data, Download CSV.

A column for each series, named as its legend is, or rows with a series' labels beside
its value. Only series as they are can be read: of ``rate()`` or a quantile nothing
tells the counters behind.

References
----------
grafana/grafana: ``packages/grafana-data/src/utils/csv.ts`` (``toCSV``),
``public/app/features/inspector/InspectDataTab.tsx``.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from capplan.csv_file import read_cells, too_long
from capplan.errors import InputError
from capplan.input_file import read_head
from capplan.workload.metrics.exposition import LABEL
from capplan.workload.metrics.replica_metrics import Series

_KNOWN = re.compile(r'(sep=.\s+)?"?(time|series)"?[,;\t]', re.IGNORECASE)
_LEGEND = re.compile(r"([a-zA-Z_:][\w:]*)? ?(?:\{(.*)\})?")
_VALUE = re.compile(r"value( #\w+)?", re.IGNORECASE)
_NONE = ("", "null", "undefined", "nan")
_LEAST_MS = 1e11
"""From which on a number of a time has milliseconds, and no seconds."""
_RAW = (
    'expected series as they are, {__name__=~"vllm:.*"} with Legend Verbose or Format '
    "Table"
)

Cells = tuple[int, list[str]]
"""Line of a row, and its cells."""


def knows(head: str) -> bool:
    """Return whether a text begins as such a CSV."""
    return bool(_KNOWN.match(head.replace("\0", "").lstrip("\ufeff\ufffd")))


def series_of(path: Path) -> Iterator[Series]:
    """Yield the series of a file."""
    if b"\0" in read_head(path, 8):
        raise InputError(
            f"{path}: is UTF-16, of Grafana's “Download for Excel”; expected that "
            "switched off"
        )
    rows = [row for row in read_cells(path) if not row[1][0].startswith("sep=")]
    (_, names), rows = rows[0], rows[1:]
    for line, cells in rows:
        if len(cells) > len(names):
            raise InputError(too_long(path, line, cells, names))
        cells += [""] * (len(names) - len(cells))
    lower = [name.lower() for name in names]
    if "time" not in lower:
        raise InputError(f"{path}:1: has no column Time; expected Grafana's CSV")
    at = lower.index("time")
    values = [k for k, name in enumerate(names) if _VALUE.fullmatch(name)]
    if {"__name__", "series", "metric"}.isdisjoint(lower):
        for column in (k for k in range(len(names)) if k != at):
            yield _series(path, names[column], rows, at, column)
        return
    if len(values) != 1:
        raise InputError(f"{path}:1: {len(values)} columns of values; expected one")
    labels = [k for k in range(len(names)) if k not in (at, *values)]
    found: dict[str, list[Cells]] = {}
    for row in rows:
        of = {lower[k]: row[1][k] for k in labels}
        legend = of.get("series") or of.get("metric") or ""
        texts = (f'{names[k]}="{row[1][k]}"' for k in labels if row[1][k])
        found.setdefault(legend or f"{{{', '.join(texts)}}}", []).append(row)
    for legend, own in found.items():
        yield _series(path, legend, own, at, values[0])


def _series(
    path: Path, legend: str, rows: Sequence[Cells], at: int, column: int
) -> Series:
    """Return the series of a legend, whose values a column of rows has."""
    found = _LEGEND.fullmatch(legend)
    labels = dict(LABEL.findall(found[2] or "")) if found else {}
    name = labels.pop("__name__", "") or (found[1] if found else None) or ""
    if not name or _VALUE.fullmatch(name):
        raise InputError(
            f"{path}:1: column {legend[:60]!r} names no metric, as rate() and quantiles"
            f" leave none, which tell no counters; {_RAW}"
        )
    at_s = np.array([_seconds(path, line, cells[at]) for line, cells in rows])
    back = np.flatnonzero(np.diff(at_s) <= 0)  # as a clock does after summer time
    if len(back):
        raise InputError(
            f"{path}:{rows[int(back[0]) + 1][0]}: its time is not after that before; "
            "expected times that grow, each once"
        )
    values = np.array([_number(path, row, column, legend) for row in rows])
    known = np.isfinite(values)
    return Series(name, labels, at_s[known], values[known])


def _number(path: Path, row: Cells, column: int, name: str) -> float:
    line, text = row[0], row[1][column]
    try:
        return np.nan if text.lower() in _NONE else float(text)
    except ValueError:
        raise InputError(
            f"{path}:{line}: {name[:60]} is {text[:40]!r}; expected a number: "
            "switch off “Formatted data” under Data options in Grafana"
        ) from None


def _seconds(path: Path, line: int, text: str) -> float:
    """Return a time: milliseconds since 1970, ISO, or a clock without its zone. [s]"""
    try:
        number = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise InputError(
                f"{path}:{line}: Time is {text[:40]!r}; expected milliseconds since "
                "1970, or 2026-11-20 10:00:00"
            ) from None
        return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    return number / 1e3 if abs(number) > _LEAST_MS else number
