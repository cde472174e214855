"""Read the measurements of other tools: one file per format, chosen by content.

Each file has ``recognises(head)``, true when the first characters of a file are in its
format, and ``read(path, options)``, which returns measured iterations
(:class:`~capplan.latency.measurements.Points`) or, for tools that see only requests,
a :class:`~capplan.latency.served_run.ServedRun`.
"""

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
    "vllm-serve": "vllm_serve",
    "vllm-latency": "vllm_latency",
    "vllm-log": "vllm_log",
    "guidellm": "guidellm",
    "aiperf": "aiperf",
    "llmservingsim": "llmservingsim",
    "splitwise": "splitwise",
    "points": "points_csv",
}
"""Public name of each format and the file that reads it."""

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
    """Read a file of measurements, plain or gzip, in any known format.

    ``importer`` is a name in :data:`IMPORTERS`; chosen by content when None.
    """
    name = importer or recognise(path)
    if name not in IMPORTERS:
        raise InputError(f"importer {name!r} is unknown; expected {_KNOWN}")
    module = import_module(f"{__name__}.{IMPORTERS[name]}")
    with as_written(path, name):
        return module.read(path, options or ImportOptions())


def recognise(path: Path) -> str:
    """Return the name of the format of a file."""
    head = read_head(path, _HEAD_BYTES).decode("utf-8-sig", errors="replace")
    for name, file in IMPORTERS.items():
        if import_module(f"{__name__}.{file}").recognises(head):
            return name
    raise InputError(
        f"{path}: starts with {head[:40]!r}, which is no known format; expected "
        f"{_KNOWN}, named with --importer if it is one of them"
    )
