"""Read the measurements of other tools: one file per format, chosen by content.

Each file has ``read(path, options)``, which returns measured iterations
(:class:`~capplan.latency.measurements.Points`) or, for tools that see only requests,
a :class:`~capplan.latency.served_run.ServedRun`.
"""

import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from capplan.errors import InputError
from capplan.input_file import read_head
from capplan.latency.measurement_file import as_written
from capplan.latency.measurements import Points
from capplan.latency.served_run import ServedRun

IMPORTERS = {
    "vllm-serve": ("vllm_serve", r'\A\{.*"(?:endpoint_type|request_throughput)"'),
    "vllm-latency": ("vllm_latency", r'\A\{.*"avg_latency"'),
    "vllm-log": (
        "vllm_log",
        r"Iteration\(\d+\): \d+ context requests, |\A(?=.*vLLM).*KV cache size: \d",
    ),
    "guidellm": ("guidellm", r'\A\{.*"benchmarks"'),
    "aiperf": (
        "aiperf",
        r'\A\{(?:(?=.*"input_config").*"time_to_first_token"|.*"request_start_ns")',
    ),
    "llmservingsim": ("llmservingsim", r'\A\{(?=.*"queued_ts").*"input_toks"'),
    "splitwise": ("splitwise", r"\A(?=[^\n]*prompt_size)[^\n]*token_time"),
    "points": (
        "points_csv",
        r"\A(?=[^\n]*phase)[^\n]*(?:batch|new_tokens|context|seconds)",
    ),
}
"""Public name of each format, the file that reads it, and how one of it begins."""

_KNOWN = ", ".join(IMPORTERS)
_HEAD_BYTES = 65_536


class ImportOptions(NamedTuple):
    """Facts about measurements that a file may not hold."""

    where: Mapping[str, str] = {}  # column to value: rows to read from a table
    # Shape of the batch of a ``vllm bench latency`` run.
    batch: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    kv_tokens: int | None = None  # KV capacity, for a log without it [tokens]


def read_measurements(
    path: Path, options: ImportOptions | None = None, importer: str | None = None
) -> Points | ServedRun:
    """Read measurements in a format of :data:`IMPORTERS`, by default by content."""
    name = importer or recognise(path)
    if name not in IMPORTERS:
        raise InputError(f"importer {name!r} is unknown; expected {_KNOWN}")
    module = import_module(f"{__name__}.{IMPORTERS[name][0]}")
    with as_written(path, name):
        return module.read(path, options or ImportOptions())


def recognise(path: Path) -> str:
    """Return the name of the format of a file."""
    head = read_head(path, _HEAD_BYTES).decode("utf-8-sig", errors="replace")
    for name, (_, begins) in IMPORTERS.items():
        if re.search(begins, head.lstrip(), re.DOTALL):
            return name
    raise InputError(
        f"{path}: starts with {head[:40]!r}, which is no known format; expected "
        f"{_KNOWN}, named with --importer if it is one of them"
    )
