"""GuideLLM's ``benchmarks.json``: the completed requests of one of its benchmarks."""

from pathlib import Path
from typing import Any

import numpy as np

from capplan.errors import InputError
from capplan.latency.importers import ImportOptions
from capplan.latency.measurement_file import need, one_run
from capplan.latency.served_run import Row, ServedRun, served_run


def read(path: Path, options: ImportOptions) -> ServedRun:
    """Return the completed requests of the last benchmark, or of ``index=N`` from 1."""
    run = one_run(path, ("benchmarks",), options.where)
    [successful] = need(path, run, "requests.successful")
    rows: list[Row | None] = [_row(path, request) for request in successful]
    for name in ("errored", "incomplete"):
        rows += [None] * len(run.get(f"requests.{name}") or [])
    return served_run(rows, source="GuideLLM", path=path)


def _row(path: Path, request: dict[str, Any]) -> Row:
    prompt, output, ttft_ms = need(
        path, request, "prompt_tokens", "output_tokens", "time_to_first_token_ms"
    )
    # request_start_time since 0.3; start_time before.
    start_s = request.get("request_start_time", request.get("start_time"))
    if start_s is None:
        raise InputError(f"{path}: a request has no request_start_time")
    ttft_s = np.nan if ttft_ms is None else ttft_ms / 1e3
    latency_s = request.get("request_latency")
    gap_ms = request.get("inter_token_latency_ms")
    if latency_s is None:
        latency_s = ttft_s + (output - 1) * (gap_ms or 0.0) / 1e3
    return start_s, prompt or 0, output or 0, ttft_s, latency_s
