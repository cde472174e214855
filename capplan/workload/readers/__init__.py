"""Trace formats: one file per format, detected from the content.

A reader is a module with two functions: ``sniff(head)`` returns whether the first
(decompressed) bytes of a file look like its format, ``read(path, options)`` returns
the trace. To add a format, write its file and list it in ``READERS``.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType

from capplan.errors import InputError
from capplan.workload.readers.options import ReadOptions
from capplan.workload.trace import Trace

READERS = {
    "azure": "azure",
    "burstgpt": "burstgpt",
    "mooncake": "mooncake",
    "qwen-bailian": "qwen_bailian",
    "ragpulse": "ragpulse",
    "sharegpt": "sharegpt",
    "csv": "plain_csv",
}
"""Module of each format, in the order in which they are tried."""

PLAIN = "csv"
"""The format whose columns the user may name."""

_HEAD_BYTES = 65536


def reader(name: str) -> ModuleType:
    """Return the module that reads the named format."""
    if name not in READERS:
        raise InputError(
            f"unknown trace format {name!r}; expected one of {', '.join(READERS)}"
        )
    return import_module(f"{__name__}.{READERS[name]}")


def sniffed(path: str | Path) -> str:
    """Return the name of the format of a file."""
    from capplan.input_file import read_head

    head = read_head(path, _HEAD_BYTES).removeprefix(b"\xef\xbb\xbf")
    head = head.lstrip()
    if not head:
        raise InputError(f"{path}: the file is empty; expected requests")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):  # Excel's "Unicode text"
        raise InputError(f"{path}: is text in UTF-16; expected UTF-8")
    for name in READERS:
        if reader(name).sniff(head):
            return name
    first = head.splitlines()[0][:80].decode(errors="replace")
    raise InputError(
        f"{path}:1: {first!r} begins no trace format that is known "
        f"({', '.join(READERS)}); a plain CSV has a header with "
        "arrival_s,prompt_tokens,output_tokens, or says with --columns "
        "prompt_tokens=NAME,output_tokens=NAME which they are"
    )


def read_trace(
    path: str | Path,
    *,
    reader_name: str | None = None,
    sharegpt_rule: str = "first",
    tokenizer: str | Path | None = None,
    salvage: bool = False,
    seed: int = 0,
    columns: Mapping[str, str] | None = None,
) -> Trace:
    """Return the requests of a file, plain or gzipped; see :class:`ReadOptions`.

    The format is detected unless ``reader_name`` is one of ``READERS``; ``columns``
    are of a plain CSV.
    """
    options = ReadOptions(sharegpt_rule, tokenizer, salvage, seed, columns or {})
    name = reader_name or (PLAIN if columns else sniffed(path))
    if columns and name != PLAIN:
        raise InputError(f"--columns is for a plain CSV; {path} is read as {name}")
    return reader(name).read(path, options)
