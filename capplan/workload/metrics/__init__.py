"""What a running fleet writes down: metrics of its engines, by replica."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np

from capplan.errors import InputError
from capplan.input_file import opened
from capplan.workload.metrics import aiperf, exposition, query_range
from capplan.workload.metrics.replica_metrics import (
    ReplicaMetrics,
    Series,
    replica_metrics,
)

FORMS: tuple[ModuleType, ...] = (aiperf, query_range, exposition)
"""Forms that are read, in the order in which they are tried."""
_HEAD_BYTES = 65536


def read_metrics(
    path: str | Path, model_name: str | None = None
) -> list[ReplicaMetrics]:
    """Return the metrics of each replica of a file, or of all files of a folder."""
    path = Path(path)
    files = (
        sorted(x for x in path.rglob("*") if x.is_file()) if path.is_dir() else [path]
    )
    if not files:
        raise InputError(f"{path}: is empty; expected files of metrics")
    read: list[Series] = []
    forms = set()
    for file in files:
        form = _form(file)
        forms.add(form)
        read += form.series_of(file)
    summary = forms == {aiperf}
    if aiperf in forms and len(files) > 1:
        raise InputError(
            f"{path}: {len(files)} exports of AIPerf; expected one of them"
        )
    found = replica_metrics(_joined(read), str(path), model_name, summary=summary)
    for each in found:
        if len(each.at_s) < 2:
            raise InputError(
                f"{path}: one snapshot of {each.replica}; expected two at least, since "
                "counters are told by their differences"
            )
    return found


def _form(path: Path) -> ModuleType:
    with opened(path) as file:
        head = file.read(_HEAD_BYTES).decode("utf-8", "replace")
    for form in FORMS:
        if form.knows(head):
            return form
    raise InputError(
        f"{path}: no metrics that are known; expected Prometheus' query_range JSON, "
        "the text of /metrics, or AIPerf's server_metrics_export.csv"
    )


def _joined(read: list[Series]) -> Iterator[Series]:
    """Yield each series once, of several files one after the other."""
    parts: dict[tuple[object, ...], list[Series]] = {}
    for each in read:
        key = (each.name, *sorted(each.labels.items()))
        parts.setdefault(key, []).append(each)
    for of in parts.values():
        at_s, first = np.unique(np.concatenate([x.at_s for x in of]), return_index=True)
        values = np.concatenate([x.values for x in of])[first]
        yield Series(of[0].name, of[0].labels, at_s, values)
