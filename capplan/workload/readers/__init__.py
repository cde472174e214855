"""Trace formats, detected from what a file holds.

Those with columns of token counts stand in ``data/formats.yaml``. One that
holds texts is a module with ``knows(first)``, whether the first row of a file is of
its format, and ``read(path, options)``, which returns the trace.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

from capplan.errors import InputError
from capplan.workload.readers.options import ReadOptions
from capplan.workload.readers.wrong_header import refuse_folder
from capplan.workload.trace import Trace

READERS = (
    {name: name for name in ("weka", "dynamo")}
    | {"mooncake-sessions": "mooncake", "aiperf": "aiperf"}
    | {"agentic-mooncake": "mooncake"}
    | dict.fromkeys(
        (
            *("azure", "burstgpt", "qwen-bailian", "ragpulse", "mooncake"),
            *("langfuse", "langsmith", "litellm", "bedrock", "opentelemetry"),
            *("claude-code", "csv"),
        ),
        "formats",
    )
    | {"sharegpt": "conversations"}
)
"""Module of each format, in the order in which they are tried."""

PLAIN = "csv"
"""The format of columns that are known by their names."""


def reader(name: str) -> Any:
    """Return the format, or the module, that reads the named format."""
    if name not in READERS:
        raise InputError(
            f"unknown trace format {name!r}; expected one of {', '.join(READERS)}"
        )
    module = import_module(f"{__name__}.{READERS[name]}")
    return getattr(module, "FORMATS", {}).get(name, module)


def sniffed(path: str | Path) -> str:
    """Return the name of the format of a file."""
    first = first_row(path)
    return next((name for name in READERS if reader(name).knows(first)), PLAIN)


def first_row(path: str | Path) -> dict[str, Any]:
    """Return the columns of a file, of JSON and Parquet with the first row's values."""
    from capplan.csv_file import header
    from capplan.records import form, records

    if form(path) == "csv":
        if not (names := header(path)):
            raise InputError(f"{path}: the file is empty; expected requests")
        return dict.fromkeys(names)
    return next((row.fields for row in records(path)), {})


def read_trace(
    path: str | Path, *, reader_name: str | None = None, **given: Any
) -> Trace:
    """Return the requests of a file, plain or gzipped.

    The format is detected unless ``reader_name`` is one of ``READERS``; the others
    given are fields of :class:`ReadOptions`.
    """
    refuse_folder(Path(path))
    options = ReadOptions(**given)
    name = reader_name or sniffed(path)
    counted = {"prompt_tokens", "output_tokens"} & options.columns.keys()
    has_texts = not hasattr(reader(name), "columns")
    if not reader_name and options.columns and (counted or not has_texts):
        name = PLAIN
    elif counted and has_texts:
        raise InputError(
            f"--columns names token counts; {path} is read as {name}, which has texts"
        )
    trace: Trace = reader(name).read(path, options)
    return trace
