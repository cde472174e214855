"""Requests as JSON lines: what the formats with hashed prompt blocks share."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from capplan.errors import InputError
from capplan.workload.readers.opening import opened
from capplan.workload.readers.ordering import Notes
from capplan.workload.readers.prefix_paths import prefix_paths
from capplan.workload.trace import MAX_TOKENS


class Line(NamedTuple):
    """An object on a line of a file.

    Parameters
    ----------
    path
        The file, for messages.
    number
        The line, from 1.
    fields
        The object.
    """

    path: str | Path
    number: int
    fields: dict[str, Any]

    def tokens(self, name: str) -> int:
        """Return a field that counts tokens. [tokens]"""
        value = self.fields.get(name)
        if type(value) is not int or not 1 <= value <= MAX_TOKENS:
            self.refuse(name, f"a whole number from 1 to {MAX_TOKENS}")
        return value

    def stamp(self, name: str) -> float:
        """Return a field that holds a time, as a number or as text."""
        value: Any = self.fields.get(name)
        try:
            number = float(value) if type(value) in (int, float, str) else np.nan
        except ValueError:
            number = np.nan
        if not np.isfinite(number):
            self.refuse(name, "a finite number")
        return number

    def blocks(self, name: str) -> list[int | str]:
        """Return a field that lists block hashes; nothing when it is left out."""
        value = self.fields.get(name, [])
        if not isinstance(value, list) or not all(
            type(block) in (int, str) for block in value
        ):
            self.refuse(name, "a list of block hashes")
        return value

    def refuse(self, name: str, expected: str) -> NoReturn:
        """Raise for a field, as it stands in the file."""
        shown = repr(self.fields[name])[:60] if name in self.fields else "missing"
        raise InputError(
            f"{self.path}:{self.number}: {name} is {shown}; expected {expected}"
        )


def first_object(head: bytes) -> dict[str, Any]:
    """Return the object on the first line, empty when there is none."""
    try:
        first = json.loads(head.lstrip().splitlines()[0])
    except (ValueError, IndexError):
        return {}
    return first if isinstance(first, dict) else {}


def iterate_lines(path: str | Path) -> Iterator[Line]:
    """Yield the object on each line that is not blank.

    Raises
    ------
    InputError
        When a line is no JSON object, or the file cannot be read or has none.
    """
    some = False
    with opened(path) as file:
        for number, text in enumerate(file, 1):
            if not text.strip():
                continue
            try:
                fields = json.loads(text)
            except ValueError as error:
                raise InputError(f"{path}:{number}: not JSON ({error})") from None
            if not isinstance(fields, dict):
                raise InputError(f"{path}:{number}: no object; expected a request")
            some = True
            yield Line(path, number, fields)
    if not some:
        raise InputError(f"{path}: no requests; expected one a line")


def shared_prefixes(
    notes: Notes,
    stamp: np.ndarray,
    prompt_tokens: np.ndarray,
    blocks: Sequence[Sequence[int | str]],
    block_tokens: int,
) -> dict[str, Any]:
    """Return the prefix columns of prompts given as block hashes.

    Parameters
    ----------
    notes
        Gets a note of what the columns cannot say.
    stamp
        Time of each request, shape (n,): a block is shared with what came before.
    prompt_tokens
        Prompt lengths, shape (n,). [tokens]
    blocks
        Block hashes of each prompt.
    block_tokens
        Tokens in a block. [tokens]
    """
    order = np.argsort(stamp, kind="stable")
    paths = prefix_paths([blocks[row] for row in order])
    group, shared_blocks = np.empty_like(order), np.empty_like(order)
    group[order], shared_blocks[order] = paths.group, paths.shared_blocks
    if group.max() >= 0:
        notes.add(
            f"prefix groups keep {paths.kept:.1%} of the blocks that an endless "
            "prefix cache would find",
            warn=False,
        )
    return {
        "prefix_group": group,
        "prefix_tokens": np.minimum(shared_blocks * block_tokens, prompt_tokens),
    }
