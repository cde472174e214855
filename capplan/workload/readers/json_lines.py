"""Requests as JSON lines, shared by the formats with hashed prompt blocks."""

import json
from collections.abc import Iterator
from pathlib import Path
from reprlib import Repr
from typing import Any, NamedTuple, NoReturn, cast

import numpy as np

from capplan.errors import InputError
from capplan.input_file import has_more_than, opened
from capplan.workload.readers.ordering import Notes, answered
from capplan.workload.readers.prefix_paths import prefix_paths
from capplan.workload.trace import MAX_TOKENS, MOST_EPOCH_S, NOT_SECONDS

_MOST_BYTES = 2**29
"""Of a file: its values take several times as much memory."""
_FIELDS = {"timestamp", "input_length", "output_length"}
_SHOWN = Repr()  # of any depth and length
_SHOWN.maxstring = 60


class Line(NamedTuple):
    """The object on one line of a file; lines count from 1."""

    path: str | Path
    number: int
    fields: dict[str, Any]

    def tokens(self, name: str, least: int = 1) -> int:
        """Return a field that counts tokens, up to ``MAX_TOKENS``. [tokens]"""
        value = self.fields.get(name)
        if type(value) is not int or not least <= value <= MAX_TOKENS:
            self.refuse(name, f"a whole number from {least} to {MAX_TOKENS}")
        return value

    def stamp(self, name: str) -> float:
        """Return a field that holds a finite time, as a number or as text."""
        value: Any = self.fields.get(name)
        try:
            number = float(value) if type(value) in (int, float, str) else np.nan
        except (ValueError, OverflowError):
            number = np.nan
        if not np.isfinite(number):
            self.refuse(name, "a finite number")
        return number

    def blocks(self, name: str) -> list[int | str]:
        """Return a field that lists block hashes; empty when missing."""
        value = self.fields.get(name, [])
        if not isinstance(value, list) or not all(
            type(block) in (int, str) for block in value
        ):
            self.refuse(name, "a list of block hashes")
        return value

    def name(self, name: str) -> str | int | None:
        """Return a field that names something; None when missing."""
        value: Any = self.fields.get(name)
        if value is not None and type(value) not in (int, str):
            self.refuse(name, "a text or a whole number")
        return cast(str | int | None, value)

    def refuse(self, name: str, expected: str) -> NoReturn:
        """Raise an InputError that shows the line and the field."""
        shown = _SHOWN.repr(self.fields[name]) if name in self.fields else "missing"
        raise InputError(
            f"{self.path}:{self.number}: {name} is {shown}; expected {expected}"
        )


class Requests(NamedTuple):
    """Columns of a file in its order, and its lines."""

    lines: list[Line]
    stamp: np.ndarray  # ``timestamp`` in the unit of the format, shape (n,)
    prompt_tokens: np.ndarray  # shape (n,)
    output_tokens: np.ndarray  # shape (n,)


def first_request(head: bytes) -> dict[str, Any]:
    """Return the request on the first line; empty when there is none."""
    try:
        first = json.loads(head.lstrip().splitlines()[0])
    except (ValueError, IndexError, RecursionError):
        return {}
    return first if isinstance(first, dict) and first.keys() >= _FIELDS else {}


def read_requests(path: str | Path, notes: Notes) -> Requests:
    """Return the requests of a file that were answered."""
    lines = list(_lines(path))
    stamp = np.array([line.stamp("timestamp") for line in lines])
    output = np.array([line.tokens("output_length", least=0) for line in lines])
    kept = answered(notes, output)
    lines = [lines[row] for row in np.flatnonzero(kept)]
    prompt = np.array([line.tokens("input_length") for line in lines])
    return Requests(lines, stamp[kept], prompt, output[kept])


def arrivals_s(requests: Requests) -> np.ndarray:
    """Return stamps that are seconds from the first on, shape (n,). [s]"""
    late = np.abs(requests.stamp) > MOST_EPOCH_S
    if late.any():
        requests.lines[int(np.argmax(late))].refuse("timestamp", NOT_SECONDS)
    return np.asarray(requests.stamp - requests.stamp.min())


def _lines(path: str | Path) -> Iterator[Line]:
    """Yield the object on each line that is not blank."""
    if has_more_than(path, _MOST_BYTES):
        raise InputError(
            f"{path}: more than {_MOST_BYTES / 2**20:g} MiB of JSON; expected a part "
            "of it, or a CSV"
        )
    empty = True
    with opened(path) as file:
        for number, text in enumerate(file, 1):
            if not text.strip():
                continue
            try:
                fields = json.loads(text)
            except ValueError as error:
                raise InputError(f"{path}:{number}: not JSON ({error})") from None
            except RecursionError:
                raise InputError(
                    f"{path}:{number}: nested too deeply; expected a request"
                ) from None
            if not isinstance(fields, dict):
                raise InputError(f"{path}:{number}: no object; expected a request")
            empty = False
            yield Line(path, number, fields)
    if empty:
        raise InputError(f"{path}: no requests; expected one a line")


def shared_prefixes(
    notes: Notes, requests: Requests, block_tokens: int
) -> dict[str, Any]:
    """Return the prefix columns of prompts given as block hashes (``hash_ids``)."""
    # A block is shared with prompts that arrived before.
    order = np.argsort(requests.stamp, kind="stable")
    paths = prefix_paths([requests.lines[row].blocks("hash_ids") for row in order])
    group, shared_blocks = np.empty_like(order), np.empty_like(order)
    group[order], shared_blocks[order] = paths.group, paths.shared_blocks
    if group.max() >= 0:
        notes.add(
            f"prefix groups keep {paths.kept:.1%} of the blocks that an endless "
            "prefix cache would find",
            warn=False,
        )
    prefix_tokens = np.minimum(shared_blocks * block_tokens, requests.prompt_tokens)
    return {"prefix_group": group, "prefix_tokens": prefix_tokens}
