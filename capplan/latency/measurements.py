"""Measured iterations of an engine, as columns, and the CSV they are stored in."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from capplan.csv_file import cell_number, refuse_outliers
from capplan.errors import InputError, warn
from capplan.latency.measurement_file import table_rows

PHASES = ("prefill", "decode", "mixed")
"""Names of the phases; the index is the code in :attr:`Points.phase`."""

COLUMNS = ("phase", "batch", "new_tokens", "context", "seconds")
"""Columns that a file of points must have."""

_LEAST = {"batch": 1, "new_tokens": 1, "context": 0, "prefix": 0}


class Points(NamedTuple):
    """Measured iterations, one row each.

    ``prefill``: ``batch`` prompts of ``new_tokens`` tokens together, each with
    ``context`` tokens already cached. ``decode``: ``batch`` requests whose KV,
    the new token included, is ``context`` long. ``mixed``: ``batch`` decoding
    requests of ``context`` beside one prefill chunk of ``new_tokens - batch``
    tokens, ``prefix`` of whose prompt is already cached.
    """

    phase: np.ndarray  # int8, index in PHASES
    batch: np.ndarray  # float64 [requests]
    new_tokens: np.ndarray  # float64 [tokens]
    context: np.ndarray  # float64 [tokens]
    prefix: np.ndarray  # float64 [tokens]
    seconds: np.ndarray  # float64 [s]

    @property
    def decoding(self) -> np.ndarray:
        """Requests that decode in each iteration. [requests]"""
        return np.where(self.phase == 0, 0.0, self.batch)

    @property
    def prefill_tokens(self) -> np.ndarray:
        """New prompt tokens of each iteration. [tokens]"""
        return np.where(self.phase == 1, 0.0, self.new_tokens - self.decoding)

    @property
    def decode_context(self) -> np.ndarray:
        """Summed context of the decoding requests. [tokens]"""
        return self.decoding * self.context

    @property
    def attention(self) -> np.ndarray:
        """Attention work of the prefill, sum(new * (prefix + new / 2)). [tokens²]"""
        new = self.prefill_tokens
        prompts = np.where(self.phase == 0, np.maximum(self.batch, 1), 1.0)
        prefix = np.where(self.phase == 0, self.context, self.prefix)
        return new * (prefix + new / prompts / 2)

    @property
    def kv_tokens(self) -> np.ndarray:
        """Tokens in the KV cache at the end of the iteration. [tokens]"""
        cached = np.where(self.phase == 0, self.batch * self.context, self.prefix)
        return cached + self.prefill_tokens + self.decode_context

    def of(self, *phases: str) -> "Points":
        """Return the rows of the named phases."""
        return self.where(np.isin(self.phase, [PHASES.index(name) for name in phases]))

    def where(self, rows: np.ndarray) -> "Points":
        """Return the rows selected by a mask or an index."""
        return Points(*(column[rows] for column in self))

    def phases(self) -> dict[str, np.ndarray]:
        """Return the rows of each phase that has any, as masks."""
        masks = {name: self.phase == code for code, name in enumerate(PHASES)}
        return {name: rows for name, rows in masks.items() if rows.any()}

    def counts(self) -> dict[str, int]:
        """Return the number of rows of each phase."""
        return {
            name: int((self.phase == code).sum()) for code, name in enumerate(PHASES)
        }


def points_from_rows(rows: list[tuple[str, float, float, float, float]]) -> Points:
    """Return points from rows of phase, batch, new tokens, context, seconds.

    Examples
    --------
    >>> points_from_rows([("decode", 4, 4, 100, 0.01)]).decode_context.tolist()
    [400.0]
    """
    table = np.array([row[1:] for row in rows], np.float64).reshape(-1, 4)
    phase = np.array([PHASES.index(row[0]) for row in rows], np.int8)
    batch, new_tokens, context, seconds = table.T
    prefix = np.zeros(len(rows))
    return Points(phase, batch, new_tokens, context, prefix, seconds)


def read_points(path: Path, where: Mapping[str, str] | None = None) -> Points:
    """Read a CSV (plain or gzip) of measured iterations of one configuration.

    ``prefix`` is 0 where there is no such column; only rows with the values of
    ``where``, by column, are read.
    """
    phases, numbers, placed = [], [], []
    for line, row in table_rows(path, COLUMNS, where or {}):
        phase, values = _checked_row(path, line, row)
        phases.append(phase)
        numbers.append(values)
        placed.append((f"{path}:{line}", values[-1]))
    refuse_outliers("seconds", placed)
    points = Points(np.array(phases, np.int8), *np.array(numbers).T.copy())
    return merge_duplicates(points, str(path))


def _checked_row(path: Path, line: int, row: dict[str, str]) -> tuple[int, list[float]]:
    """Return the code of the phase and the numbers of a row."""
    phase = (row["phase"] or "").strip()
    if phase not in PHASES:
        raise InputError(
            f"{path}:{line}: phase is {phase!r}; expected {', '.join(PHASES)}"
        )
    cells = {**row, "prefix": row.get("prefix") or "0"}
    numbers = {
        name: cell_number(path, line, name, cells[name]) for name in Points._fields[1:]
    }
    if numbers["seconds"] <= 0:
        raise InputError(
            f"{path}:{line}: seconds is {numbers['seconds']:g}; expected > 0"
        )
    for name, least in _LEAST.items():
        if numbers[name] < least:
            raise InputError(
                f"{path}:{line}: {name} is {numbers[name]:g}; expected >= {least}"
            )
    if phase == "mixed" and numbers["new_tokens"] <= numbers["batch"]:
        raise InputError(
            f"{path}:{line}: new_tokens is {numbers['new_tokens']:g} beside "
            f"{numbers['batch']:g} decoding requests; expected chunk + batch"
        )
    return PHASES.index(phase), list(numbers.values())


def merge_duplicates(points: Points, source: str) -> Points:
    """Return the points with rows of the same iteration averaged, with a warning."""
    keys = np.column_stack(points[:-1])
    unique, first, inverse = np.unique(
        keys, axis=0, return_index=True, return_inverse=True
    )
    if len(unique) == len(keys):
        return points
    inverse = inverse.reshape(-1)
    mean_s = np.bincount(inverse, points.seconds) / np.bincount(inverse)
    warn(
        f"{source}: {len(keys)} points are {len(unique)} different iterations; "
        "those measured more than once were averaged"
    )
    order = np.argsort(first)
    return points.where(first[order])._replace(seconds=mean_s[order])
