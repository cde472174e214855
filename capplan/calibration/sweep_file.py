"""Read load tests that state means per concurrency, from a file or a folder of files.

CSV with the columns ``isl,osl,concurrency``, any of ``tpot_ms``, ``ttft_ms`` and
``output_tokens_per_s``, and where they are known ``range_ratio`` and ``requests``; or
the JSON that a load generator writes of each test: vLLM's ``bench serve
--save-result``, InferenceMAX and InferenceX, GuideLLM's benchmarks.json, AIPerf's and
genai-perf's summaries.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from capplan.calibration.load_test import SweepPoint
from capplan.calibration.target import Target
from capplan.csv_file import cell_number, refuse_outliers
from capplan.errors import InputError
from capplan.input_file import parse_json, read_text
from capplan.latency.importers.identity import stated_in
from capplan.latency.measurement_file import as_written, need, table_rows

SHAPE = ("isl", "osl", "concurrency")
SEEN = ("tpot_ms", "ttft_ms", "output_tokens_per_s")
"""Columns of a sweep; at least one of ``SEEN`` must be there."""

_OPTIONAL = ("range_ratio", "requests")

_LARGEST = 1e15
"""Number of a sweep in its own unit."""

_MOST = {"isl": 10_000_000, "osl": 10_000_000, "concurrency": 8192}
_MOST["requests"] = 1_000_000

Row = dict[str, float | None]


def read_sweep(
    path: Path, tp: int, where: dict[str, str], target: Target | None = None
) -> list[SweepPoint]:
    """Return the load tests of a file or folder, by lengths and concurrency.

    Throughput that a format states per GPU is taken times ``tp``; ``where`` chooses
    rows of a CSV. Tests that say they are of another system than ``target`` are
    refused.
    """
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path}: holds no .json file; expected one of each load test")
    tests = [
        (place, row, _point(place, row))
        for file in files
        for place, row in _rows(file, tp, where, target)
    ]
    for name in SEEN:
        seen = [(place, row.get(name)) for place, row, _ in tests]
        refuse_outliers(name, [(place, x) for place, x in seen if x is not None])
    points = [point for *_, point in tests]
    by_key = {(p.isl, p.osl, p.concurrency): p for p in points}
    if len(by_key) < len(points):
        raise InputError(
            f"{path}: two load tests have the same isl, osl and concurrency; expected "
            "one of each"
        )
    if len({p.concurrency for p in points}) < 2:
        raise InputError(
            f"{path}: holds one concurrency; expected at least 2, since one does not "
            "separate a factor from an iteration's own time"
        )
    return [by_key[key] for key in sorted(by_key)]


def _rows(
    path: Path, tp: int, where: dict[str, str], target: Target | None
) -> Iterator[tuple[str, Row]]:
    text = read_text(path)
    if not text.lstrip().startswith(("{", "[")):
        yield from _csv(path, where, target)
        return
    content = parse_json(path, text)
    for number, test in enumerate(_tests(content)):
        place = f"{path}" if number == 0 else f"{path}: test {number + 1}"
        keys = [key for key in _FORMATS if isinstance(test, dict) and key in test]
        if not keys:
            raise InputError(
                f"{place}: is no load test of a known format; expected the JSON of "
                "vLLM's bench serve, InferenceMAX, GuideLLM, AIPerf or genai-perf"
            )
        if target is not None:
            around = {} if isinstance(content, list) else content
            target.compare(place, stated_in(test, around))
        with as_written(Path(place), "its tool"):
            row = _FORMATS[keys[0]](Path(place), test, tp)
        yield place, row


def _tests(content: Any) -> list[Any]:
    """Return the tests of a file: those of GuideLLM, of a list, or the one it is."""
    if isinstance(content, dict) and "benchmarks" in content:
        content = content["benchmarks"]
    return content if isinstance(content, list) else [content]


def _csv(
    path: Path, where: dict[str, str], target: Target | None
) -> Iterator[tuple[str, Row]]:
    for line, cells in table_rows(path, SHAPE, where):
        if target is not None:
            target.compare(f"{path}:{line}", stated_in(cells))
        given = [name for name in (*SEEN, *_OPTIONAL) if cells.get(name)]
        names = (*SHAPE, *given)
        row: Row = {name: cell_number(path, line, name, cells[name]) for name in names}
        yield f"{path}:{line}", row


def _vllm(path: Path, test: dict[str, Any], tp: int) -> Row:
    counts = ("max_concurrency", "completed", "total_input_tokens")
    users, done, prompt, output = need(path, test, *counts, "total_output_tokens")
    if not users or test.get("request_rate") not in (None, "inf", math.inf):
        raise InputError(
            f"{path}: has no max_concurrency or a rate; a closed loop needs "
            "--max-concurrency and no --request-rate"
        )
    return {
        "isl": prompt / done,
        "osl": output / done,
        "concurrency": users,
        "requests": done,
        "tpot_ms": test.get("mean_tpot_ms"),
        "ttft_ms": test.get("mean_ttft_ms"),
        "output_tokens_per_s": test.get("output_throughput"),
    }


def _inferencemax(path: Path, test: dict[str, Any], tp: int) -> Row:
    """Times in seconds and throughput per GPU; lengths from 80 % of the longest."""
    isl, osl, users = need(path, test, "isl", "osl", "conc")
    per_gpu = test.get("output_tput_per_gpu")
    return {
        "isl": isl,
        "osl": osl,
        "concurrency": users,
        "tpot_ms": _times(test.get("mean_tpot"), 1e3),
        "ttft_ms": _times(test.get("mean_ttft"), 1e3),
        "output_tokens_per_s": _times(per_gpu, int(test.get("tp") or tp)),
        "range_ratio": 0.8,
    }


def _guidellm(path: Path, test: dict[str, Any], tp: int) -> Row:
    metrics, users = test["metrics"], _within(test, "streams")
    if users is None:
        raise InputError(
            f"{path}: names no streams; a closed loop is of the concurrent strategy"
        )

    def mean(name: str) -> float | None:
        found = metrics.get(name) or {}
        return (found.get("successful") or {}).get("mean")

    return {
        "isl": mean("prompt_token_count"),
        "osl": mean("output_token_count"),
        "concurrency": users,
        "tpot_ms": mean("inter_token_latency_ms"),
        "ttft_ms": mean("time_to_first_token_ms"),
        "output_tokens_per_s": mean("output_tokens_per_second"),
    }


def _perf(path: Path, test: dict[str, Any], tp: int) -> Row:
    """AIPerf's profile_export_aiperf.json and genai-perf's summary."""

    def average(name: str) -> float | None:
        return (test.get(name) or {}).get("avg")

    return {
        "isl": average("input_sequence_length"),
        "osl": average("output_sequence_length"),
        "concurrency": _within(test["input_config"], "concurrency"),
        "tpot_ms": average("inter_token_latency"),
        "ttft_ms": average("time_to_first_token"),
        "output_tokens_per_s": average("output_token_throughput"),
    }


_FORMATS: dict[str, Callable[[Path, dict[str, Any], int], Row]] = {
    "metrics": _guidellm,
    "input_config": _perf,
    "conc": _inferencemax,
    "total_input_tokens": _vllm,
}
"""A key that only this format has, and what reads it."""


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _within(content: Any, name: str) -> float | None:
    """Return the first number of a name anywhere in nested objects, or None."""
    if not isinstance(content, dict):
        return None
    value = content.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    found = (_within(part, name) for part in content.values())
    return next((value for value in found if value is not None), None)


def _point(place: str, row: Row) -> SweepPoint:
    def number(name: str) -> float | None:
        value = row.get(name)
        if value is None:
            return None
        right = isinstance(value, int | float) and abs(value) <= _LARGEST
        if not right:
            shown = repr(value)[:40]
            raise InputError(f"{place}: {name} is {shown}; expected a number")
        if value <= 0:
            raise InputError(f"{place}: {name} is {value:g}; expected more than 0")
        return float(value)

    def needed(name: str) -> int:
        value = number(name)
        if value is None:
            raise InputError(f"{place}: {name} is missing")
        if not 1 <= value <= _MOST[name]:
            raise InputError(
                f"{place}: {name} is {value:g}; expected 1 to {_MOST[name]:,}"
            )
        return round(value)

    tpot_ms, ttft_ms, per_s = (number(name) for name in SEEN)
    if tpot_ms is None and ttft_ms is None and per_s is None:
        raise InputError(f"{place}: none of {', '.join(SEEN)} is there")
    if tpot_ms is not None and needed("osl") == 1:
        raise InputError(f"{place}: osl is 1, which has no TPOT; expected more")
    share = number("range_ratio") or 1.0
    if share > 1:
        raise InputError(f"{place}: range_ratio is {share:g}; expected at most 1")
    return SweepPoint(
        isl=needed("isl"),
        osl=needed("osl"),
        concurrency=needed("concurrency"),
        tpot_s=_times(tpot_ms, 1e-3),
        ttft_s=_times(ttft_ms, 1e-3),
        output_tokens_per_s=per_s,
        least_share=share,
        requests=None if row.get("requests") is None else needed("requests"),
    )
