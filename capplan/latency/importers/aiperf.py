"""AIPerf's ``profile_export.jsonl``: one record per request."""

from pathlib import Path
from typing import Any

import numpy as np

from capplan.errors import InputError
from capplan.latency.importers import ImportOptions
from capplan.latency.measurement_file import need
from capplan.latency.served_run import Row, ServedRun, served_run
from capplan.records import records

SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}


def read(path: Path, options: ImportOptions) -> ServedRun:
    """Return the completed requests of the run, without those of the warm-up."""
    rows = []
    for at, fields in records(path, wrappers=()):
        if any(name.startswith("input_config") for name in fields):
            raise InputError(
                f"{path}: is AIPerf's summary, without single requests; give the "
                "profile_export.jsonl beside it"
            )
        if fields.get("metadata.benchmark_phase", "profiling") == "profiling":
            failed = fields.get("metadata.was_cancelled") or any(
                name.partition(".")[0] == "error" and fields[name] for name in fields
            )
            rows.append(None if failed else _row(Path(f"{path}{at}"), fields))
    return served_run(rows, source="AIPerf", path=path)


def _row(where: Path, fields: dict[str, Any]) -> Row:
    def value(name: str, scale: dict[str, float] | None = None) -> float:
        try:
            number = float(fields[f"metrics.{name}.value"])
            return number * (scale[fields[f"metrics.{name}.unit"]] if scale else 1.0)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{where}: metric {name} is missing or not a number"
            ) from error

    output = value("output_sequence_length")
    streamed = "metrics.time_to_first_token.value" in fields
    ttft_s = value("time_to_first_token", SECONDS) if streamed else np.nan
    e2e_s = value("request_latency", SECONDS)
    [start_ns] = need(where, fields, "metadata.request_start_ns")
    return start_ns * 1e-9, value("input_sequence_length"), output, ttft_s, e2e_s
