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
    by_row = {"__name__", "series", "metric"} & {*lower}
    if by_row:
        yield from _of_rows(path, names, rows, at)
        return
    at_s = np.array([_seconds(path, line, cells[at]) for line, cells in rows])
    _check_order(path, rows, at_s)
    for column, legend in enumerate(names):
        if column != at:
            values = _numbers(path, rows, column, legend)
            known = np.isfinite(values)
            named = _named(path, legend)
            yield Series(*named, at_s[known], values[known])


def _of_rows(
    path: Path, names: Sequence[str], rows: Sequence[Cells], at: int
) -> Iterator[Series]:
    """Yield the series of rows that have a value each, its labels beside it."""
    of_value = [k for k, name in enumerate(names) if _VALUE.fullmatch(name)]
    if len(of_value) != 1:
        raise InputError(
            f"{path}:1: {len(of_value)} columns of values; expected one, Value"
        )
    labels = [k for k in range(len(names)) if k not in (at, *of_value)]
    values = _numbers(path, rows, of_value[0], names[of_value[0]])
    found: dict[tuple[str, ...], list[int]] = {}
    for k, (_, cells) in enumerate(rows):
        found.setdefault(tuple(cells[label] for label in labels), []).append(k)
    for texts, own in found.items():
        of = {names[k]: text for k, text in zip(labels, texts, strict=True) if text}
        legend = next((of[x] for x in of if x.lower() in ("series", "metric")), None)
        name = of.pop("__name__", "")
        named = (name, of) if legend is None else _named(path, legend)
        lines = [rows[k] for k in own]
        at_s = np.array([_seconds(path, line, cells[at]) for line, cells in lines])
        _check_order(path, lines, at_s)
        known = np.isfinite(values[own])
        yield Series(*named, at_s[known], values[own][known])


def _named(path: Path, legend: str) -> tuple[str, dict[str, str]]:
    """Return the name and the labels of a series by its legend."""
    found = _LEGEND.fullmatch(legend)
    labels = dict(LABEL.findall(found[2] or "")) if found else {}
    name = labels.pop("__name__", "") or (found[1] if found else None) or ""
    if not name or _VALUE.fullmatch(name):
        raise InputError(
            f"{path}:1: column {legend[:60]!r} names no metric, as rate() and quantiles"
            f" leave none, which tell no counters; {_RAW}"
        )
    return name, labels


def _numbers(path: Path, rows: Sequence[Cells], column: int, name: str) -> np.ndarray:
    values = np.full(len(rows), np.nan)
    for k, (line, cells) in enumerate(rows):
        text = cells[column]
        try:
            values[k] = np.nan if text.lower() in _NONE else float(text)
        except ValueError:
            raise InputError(
                f"{path}:{line}: {name[:60]} is {text[:40]!r}; expected a number: "
                "switch off “Formatted data” under Data options in Grafana"
            ) from None
    return values


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


def _check_order(path: Path, rows: Sequence[Cells], at_s: np.ndarray) -> None:
    """Refuse times that go back, as a clock does that leaves summer time."""
    back = np.flatnonzero(np.diff(at_s) <= 0)
    if len(back):
        line = rows[int(back[0]) + 1][0]
        raise InputError(
            f"{path}:{line}: its time is not after that before; expected times that "
            "grow, each once"
        )
