"""AIPerf's ``server_metrics_export.csv``: one window, with means of gauges."""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from capplan.errors import InputError
from capplan.input_file import read_text
from capplan.workload.metrics.replica_metrics import Series

_RUNNING = ("num_requests_running", "num_running_reqs")
_LABELS_AFTER = ("p99", "rate_std", "p99_estimate")
"""Last columns of figures; labels stand behind, before the description."""


def knows(head: str) -> bool:
    """Return whether a text begins as such an export."""
    return head.startswith("# AIPerf Server Metrics") or "\nEndpoint,Type," in head


def series_of(path: Path) -> Iterator[Series]:
    """Yield the series of a file, from 0 to the end of the benchmark."""
    rows = list(_rows(path))
    fastest = max(rows, key=_rate, default={})  # its rate has the most digits
    lasts_s = float(fastest["total"]) / _rate(fastest) if _rate(fastest) else 0.0
    if not lasts_s > 0:
        raise InputError(f"{path}: no counter that went up; expected a benchmark")
    at_s, infos = np.array([0.0, lasts_s]), dict[str, dict[str, str]]()
    for row in rows:
        labels = {"instance": row["Endpoint"], **_labels(row)}
        name = row["Metric"]
        if "Key" in row:
            infos.setdefault(f"{row['Endpoint']} {name}", {})[row["Key"]] = row["Value"]
        elif row["Type"] == "gauge":
            yield Series(name, labels, at_s, np.full(2, float(row["avg"] or "nan")))
            if (most := name.rpartition(":")[2]) in _RUNNING and row.get("max"):
                peak = np.full(2, float(row["max"]))
                yield Series(f"most:{most}", labels, at_s, peak)
        elif row["Type"] == "counter":
            yield Series(name, labels, at_s, _up_to(row["total"]))
        elif row["Type"] == "histogram":
            yield Series(f"{name}_sum", labels, at_s, _up_to(row["sum"]))
            yield Series(f"{name}_count", labels, at_s, _up_to(row["count"]))
            for bucket in filter(None, row["buckets"].split(";")):
                bound, _, count = bucket.partition("=")
                with_bound = {**labels, "le": bound}
                yield Series(f"{name}_bucket", with_bound, at_s, _up_to(count))
    for place, info in infos.items():
        endpoint, _, name = place.partition(" ")
        yield Series(name, {**info, "instance": endpoint}, at_s, np.ones(2))


def _rows(path: Path) -> Iterator[dict[str, str]]:
    names: list[str] = []
    for number, cells in enumerate(csv.reader(read_text(path).splitlines()), 1):
        if not cells or cells[0].startswith("#"):
            continue
        if cells[0] == "Endpoint":
            names = cells
        elif len(cells) != len(names):
            raise InputError(
                f"{path}:{number}: has {len(cells)} cells; expected {len(names)}"
            )
        else:
            yield dict(zip(names, cells, strict=True))


def _up_to(total: str) -> np.ndarray:
    return np.array([0.0, float(total or "nan")])


def _rate(row: Mapping[str, str]) -> float:
    """Return the rate of a counter; 0 of another row. [1/s]"""
    return float(row.get("rate") or 0)


def _labels(row: Mapping[str, str]) -> dict[str, str]:
    names = list(row)
    last = max((names.index(x) for x in _LABELS_AFTER if x in names), default=-1)
    return {name: row[name] for name in names[last + 1 :] if row[name]}
