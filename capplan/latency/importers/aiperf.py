"""AIPerf's ``profile_export.jsonl``: one record per request."""

from pathlib import Path
from typing import Any

import numpy as np

from capplan.errors import InputError
from capplan.input_file import read_text
from capplan.latency.importers import ImportOptions
from capplan.latency.measurement_file import json_lines, need
from capplan.latency.served_run import Row, ServedRun, served_run

_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}


def recognises(head: str) -> bool:
    """Return whether a file starts like this format."""
    is_summary = '"input_config"' in head and '"time_to_first_token"' in head
    return head.lstrip().startswith("{") and (
        '"request_start_ns"' in head or is_summary
    )


def read(path: Path, options: ImportOptions) -> ServedRun:
    """Return the completed requests of the run, without those of the warm-up."""
    text = read_text(path)
    if '"request_start_ns"' not in text:
        raise InputError(
            f"{path}: is AIPerf's summary, without single requests; give the "
            "profile_export.jsonl beside it"
        )
    rows = []
    for where, record in json_lines(path, text):
        metadata, metrics = need(where, record, "metadata", "metrics")
        if metadata.get("benchmark_phase", "profiling") == "profiling":
            failed = record.get("error") or metadata.get("was_cancelled")
            rows.append(None if failed else _row(where, metadata, metrics))
    return served_run(rows, source="AIPerf", path=path)


def _row(where: Path, metadata: dict, metrics: dict[str, Any]) -> Row:
    def value(name: str, scale: dict[str, float] | None = None) -> float:
        try:
            entry = metrics[name]
            return float(entry["value"]) * (scale[entry["unit"]] if scale else 1.0)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{where}: metric {name} is missing or not a number"
            ) from error

    output = value("output_sequence_length")
    streamed = "time_to_first_token" in metrics
    ttft_s = value("time_to_first_token", _SECONDS) if streamed else np.nan
    e2e_s = value("request_latency", _SECONDS)
    start_s = metadata["request_start_ns"] * 1e-9
    return start_s, value("input_sequence_length"), output, ttft_s, e2e_s
