"""What a running fleet writes down: metrics of its engines, by replica."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np

from capplan.errors import InputError
from capplan.input_file import files_of, opened
from capplan.workload.metrics import (
    aiperf,
    exposition,
    grafana,
    query_range,
    server_log,
)
from capplan.workload.metrics.replica_metrics import (
    ReplicaMetrics,
    Series,
    replica_metrics,
)

FORMS: tuple[ModuleType, ...] = (server_log, aiperf, query_range, grafana, exposition)
"""Forms that are read, in the order in which they are tried."""
_HEAD_BYTES = 65536


def read_metrics(
    path: str | Path, model_name: str | None = None
) -> list[ReplicaMetrics]:
    """Return the metrics of each replica of a file, or of all files of a folder."""
    path = Path(path)
    files = files_of(path)
    if not files:
        raise InputError(f"{path}: is empty; expected files of metrics")
    read: list[Series] = []
    forms = {file: _form(file) for file in files}
    logs = [file for file, form in forms.items() if form is server_log]
    if len(logs) < len(files):
        files = [file for file in files if file not in logs]
    for file in files:
        read += forms[file].series_of(file)
    used = {forms[file] for file in files}
    summary = used == {aiperf}
    if aiperf in used and len(files) > 1:
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
    return found if server_log in used else [_with_kv(each, logs) for each in found]


def _with_kv(of: ReplicaMetrics, logs: list[Path]) -> ReplicaMetrics:
    """Return the metrics of a replica with the KV tokens that a log states."""
    series = (each for log in logs for each in server_log.series_of(log))
    stated = [each.values[:1] for each in series if each.name == "log:kv_tokens"]
    if not stated:
        return of
    return replace(of, gauges={**of.gauges, "kv_tokens": stated[0]})


def _form(path: Path) -> ModuleType:
    with opened(path) as file:
        head = file.read(_HEAD_BYTES).decode("utf-8", "replace")
    for form in FORMS:
        if form.knows(head):
            return form
    raise InputError(
        f"{path}: no metrics that are known; expected Prometheus' query_range JSON, "
        "the text of /metrics, Grafana's CSV, AIPerf's server_metrics_export.csv or an "
        "engine's log"
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
