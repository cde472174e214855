"""Prometheus' answer to ``/api/v1/query_range``: counters as they are."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from capplan.errors import InputError
from capplan.input_file import parse_json, read_text
from capplan.workload.metrics.replica_metrics import Series

MOST_BYTES = 2**31


def knows(head: str) -> bool:
    """Return whether a text begins as such an answer."""
    return head.lstrip().startswith("{") and '"resultType"' in head


def series_of(path: Path) -> Iterator[Series]:
    """Yield the series of a file."""
    document = parse_json(path, read_text(path, MOST_BYTES))
    data = document.get("data", document) if isinstance(document, Mapping) else {}
    kind, rows = data.get("resultType"), data.get("result")
    if kind == "vector":
        raise InputError(
            f"{path}: one instant of Prometheus; expected /api/v1/query_range, which "
            "has values over time"
        )
    if kind != "matrix" or not isinstance(rows, list):
        raise InputError(f"{path}: resultType is {kind}; expected matrix")
    for at, row in enumerate(rows, 1):
        yield _series(path, at, row)


def _series(path: Path, at: int, row: Any) -> Series:
    try:
        labels = {str(k): str(v) for k, v in row["metric"].items()}
        pairs = np.array(row["values"], np.float64).reshape(-1, 2)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InputError(
            f'{path}: result {at} has no metric with values [[t, "v"], ...]'
        ) from None
    name = labels.pop("__name__", "")
    if not name:
        raise InputError(
            f"{path}: result {at} has no __name__, as rate() and sum() leave none; "
            'expected counters as they are, as {__name__=~"vllm:.*"}'
        )
    return Series(name, labels, pairs[:, 0], pairs[:, 1])
