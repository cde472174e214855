"""Write what a simulated fleet would show to Prometheus: a file for each replica."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from capplan.errors import InputError
from capplan.files import check_folder, new_file
from capplan.planning.evaluate.run import Run
from capplan.simulator.results.scraped import lives, scraped
from capplan.units import check_duration, parse_duration_s
from capplan.workload.metrics.names import CONFIGURATION, vllm_bounds, vllm_names
from capplan.workload.metrics.replica_metrics import ReplicaMetrics
from capplan.workload.readers.columns import EPOCH_S

EVERY_S = 15.0
BEGIN_S = 1_767_225_600
"""When a trace without a clock begins: 2026-01-01. [s since 1970]"""
_MOST_SCRAPES = 200_000
_SOURCES = {
    "computed": "local_compute",
    "hit": "local_cache_hit",
    "external_hit": "external_kv_transfer",
}


def parse_export(text: str) -> tuple[Path, float]:
    """Return the folder and the time between scrapes of ``DIR`` or ``DIR:30s``.

    Examples
    --------
    >>> parse_export("out:30s")
    (PosixPath('out'), 30.0)
    """
    folder, _, every = text.rpartition(":")
    if not folder:
        return Path(text), EVERY_S
    check_duration(every)
    every_s = parse_duration_s(every)
    if not every_s > 0:
        raise InputError(f"{text!r}: scrapes every {every}; expected more than 0 s")
    return Path(folder), every_s


def write_metrics(run: Run, text: str) -> Iterator[Path]:
    """Write query_range JSON of each replica that ever served; yield the paths."""
    folder, every_s = parse_export(text)
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, shown in _replicas(run, every_s).items():
        path = folder / f"{name}.json.gz"
        with new_file(path) as stream:
            stream.write('{"status":"success","data":{"resultType":"matrix","result":[')
            rows = _rows(shown, name, run)
            stream.write(",\n".join(rows))
            stream.write("]}}\n")
        yield path


def _replicas(run: Run, every_s: float) -> dict[str, list[ReplicaMetrics]]:
    """Return the metrics of each replica by its name, one for each of its lives."""
    times, deployment = run.simulation.table, run.deployment
    start_s, end_s = float(np.nanmin(times.arrival_s)), float(np.nanmax(times.finish_s))
    count = int((end_s - start_s) / every_s) + 2
    if count > _MOST_SCRAPES:
        raise InputError(
            f"--export-metrics: {count:,} scrapes; expected at most {_MOST_SCRAPES:,}"
        )
    at_s = start_s + every_s * np.arange(count)
    engine = run.configuration.engine
    longest = int((times.prompt_tokens + times.output_tokens).max())
    bounds = vllm_bounds(min(engine.max_model_len, 2 * longest))
    found: dict[str, list[ReplicaMetrics]] = {}
    for row, since_s, until_s in lives(deployment):
        there = (at_s >= since_s) & (at_s < until_s)
        served = (times.replica == row) & (times.finish_s <= until_s)
        served &= times.scheduled_s >= since_s
        if served.any() and there.any():
            own = times.select(np.flatnonzero(served))
            shown = scraped(own, run.configuration, at_s[there], bounds)
            found.setdefault(f"replica-{row}", []).append(shown)
    return found


def _rows(of: list[ReplicaMetrics], name: str, run: Run) -> Iterator[str]:
    """Yield the series of a replica as JSON, its lives one after the other."""
    names, first = vllm_names(), of[0]
    where = {"instance": name, "model_name": _llm(run), "engine": "0"}
    at_s = np.concatenate([each.at_s for each in of]) + _offset_s(run)
    stamps = [f"{moment:.3f}".rstrip("0").rstrip(".") for moment in at_s.tolist()]

    def row(of_name: str, values: np.ndarray, **labels: str) -> str:
        metric = json.dumps({"__name__": of_name, **where, **labels})
        pairs = ",".join(
            f'[{at},"{value:.12g}"]'
            for at, value in zip(stamps, values.tolist(), strict=True)
        )
        return f'{{"metric":{metric},"values":[{pairs}]}}'

    def over(part: str, what: str) -> np.ndarray:
        return np.concatenate([getattr(each, part)[what] for each in of])

    yield row(CONFIGURATION, np.ones(len(at_s)), **first.configuration)
    for what in first.gauges:
        yield row(names[what], over("gauges", what))
    for what in first.counters:
        values = over("counters", what)
        if what in _SOURCES:
            name_of = "vllm:prompt_tokens_by_source_total"
            yield row(name_of, values, source=_SOURCES[what])
        else:
            ends = {"finished_reason": "stop"} if what == "ended" else {}
            yield row(f"{names[what]}_total", values, **ends)
    for what, histogram in first.histograms.items():
        counts = np.concatenate([each.histograms[what].counts for each in of])
        sums = np.concatenate([each.histograms[what].sums for each in of])
        for k, bound in enumerate(histogram.bounds.tolist()):
            le = (
                "+Inf" if np.isinf(bound) else f"{bound:g}" if bound < 1 else str(bound)
            )
            yield row(f"{names[what]}_bucket", counts[:, k], le=le)
        yield row(f"{names[what]}_sum", sums)
        yield row(f"{names[what]}_count", counts[:, -1])


def _llm(run: Run) -> str:
    profile = run.configuration.profile
    return profile.llm if profile is not None else "simulated"


def _offset_s(run: Run) -> float:
    return 0.0 if run.simulation.table.arrival_s[0] > EPOCH_S else BEGIN_S
