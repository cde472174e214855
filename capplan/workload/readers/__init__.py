"""Trace formats: one file per format, chosen by what a file holds.

A reader is a module with two functions: ``sniff(head)`` says whether the first
bytes of a file (decompressed) look like its format, and ``read(path, options)``
returns the trace. Adding a format is a file and a line in ``READERS``.
"""

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
"""Name of a format to the file that reads it, in the order they are tried."""

_HEAD_BYTES = 65536


def reader(name: str) -> ModuleType:
    """Return the module that reads the named format.

    Raises
    ------
    InputError
        When there is no such format; the message lists those there are.
    """
    if name not in READERS:
        raise InputError(
            f"unknown trace format {name!r}; expected one of {', '.join(READERS)}"
        )
    return import_module(f"{__name__}.{READERS[name]}")


def sniffed(path: str | Path) -> str:
    """Return the name of the format that a file is in.

    Raises
    ------
    InputError
        When the file cannot be read, is empty, or is in none of the formats.
    """
    from capplan.workload.readers.opening import read_head

    head = read_head(path, _HEAD_BYTES).removeprefix(b"\xef\xbb\xbf")
    head = head.lstrip()
    if not head:
        raise InputError(f"{path}: the file is empty; expected requests")
    for name in READERS:
        if reader(name).sniff(head):
            return name
    first = head.splitlines()[0][:80].decode(errors="replace")
    raise InputError(
        f"{path}:1: {first!r} begins no trace format that is known "
        f"({', '.join(READERS)}); a plain CSV has a header with "
        "arrival_s,prompt_tokens,output_tokens"
    )


def read_trace(
    path: str | Path,
    *,
    reader_name: str | None = None,
    sharegpt_rule: str = "first",
    tokenizer: str | Path | None = None,
    salvage: bool = False,
    seed: int = 0,
) -> Trace:
    """Return the requests of a file, plain or gzipped.

    Parameters
    ----------
    path
        The file.
    reader_name
        Format of the file, one of ``READERS``; None looks at what it holds.
    sharegpt_rule
        Which messages of a conversation make a request: ``first``, ``vllm`` or
        ``multiturn``.
    tokenizer
        A ``tokenizer.json`` to count the tokens of text with.
    salvage
        Whether to keep the whole records of a file that is cut off.
    seed
        Of the draws that spread arrivals which a source rounds coarsely.
    """
    options = ReadOptions(sharegpt_rule, tokenizer, salvage, seed)
    return reader(reader_name or sniffed(path)).read(path, options)
