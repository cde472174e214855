"""A trace: what was asked of the service, one row per request, as columns."""

from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from capplan.errors import InputError

MAX_TOKENS = 100_000_000
"""More tokens than this in one request is a mistake in the file."""

_LEFT_OUT = cast(np.ndarray, None)
"""Stands for a column that ``__post_init__`` fills, so that it is never None."""

_COLUMNS: tuple[str, ...] = ("prompt_tokens", "output_tokens", "arrival_s")
_COLUMNS += (
    "request_class",
    "prefix_group",
    "prefix_tokens",
    "predicted_output_tokens",
)


@dataclass(frozen=True, eq=False)
class Trace:
    """Requests in order of arrival.

    Parameters
    ----------
    prompt_tokens
        Prompt length of each request, >= 1, shape (n,), int64. [tokens]
    output_tokens
        Answer length of each request, >= 1, shape (n,), int64. [tokens]
    arrival_s
        Arrival of each request, never falling, shape (n,), float64; None when
        the source has no times. [s]
    request_class
        Index into ``class_names`` of each request, shape (n,), int16; all are
        of the first class when it is left out.
    class_names
        Names of the classes; an SLO may be given for each.
    prefix_group
        Requests with the same group >= 0 begin with the same tokens; -1 shares
        with nobody. Shape (n,), int64.
    prefix_tokens
        How many tokens at the start of the prompt are those of the group,
        shape (n,), int64. [tokens]
    source
        Where the requests come from, for reports.
    notes
        What was mended or estimated on the way in, for reports.
    predicted_output_tokens
        Answer length that a scheduler would expect of each request, >= 1,
        shape (n,), int64; None when nobody predicts. [tokens]
    """

    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    arrival_s: np.ndarray | None = None
    request_class: np.ndarray = _LEFT_OUT
    class_names: tuple[str, ...] = ("all",)
    prefix_group: np.ndarray = _LEFT_OUT
    prefix_tokens: np.ndarray = _LEFT_OUT
    source: str = "given in Python"
    notes: tuple[str, ...] = field(default=())
    predicted_output_tokens: np.ndarray | None = None

    def __post_init__(self) -> None:
        """Refuse what no request can be; fill the columns left out."""
        n = len(self.prompt_tokens)
        if n == 0:
            raise InputError(f"{self.source}: no requests; expected at least one")
        self._column("prompt_tokens", np.int64, n, 1, MAX_TOKENS)
        self._column("output_tokens", np.int64, n, 1, MAX_TOKENS)
        if self.arrival_s is not None:
            self._column("arrival_s", np.float64, n, -np.inf, np.inf)
            if n > 1 and float(np.diff(self.arrival_s).min()) < 0:
                raise InputError(f"{self.source}: arrival_s falls; sort it first")
        if self.request_class is None:
            object.__setattr__(self, "request_class", np.zeros(n, np.int16))
        last = len(self.class_names) - 1
        self._column("request_class", np.int16, n, 0, last)
        if self.prefix_group is None:
            object.__setattr__(self, "prefix_group", np.full(n, -1, np.int64))
        if self.prefix_tokens is None:
            object.__setattr__(self, "prefix_tokens", np.zeros(n, np.int64))
        self._column("prefix_group", np.int64, n, -1, np.iinfo(np.int64).max)
        self._column("prefix_tokens", np.int64, n, 0, MAX_TOKENS)
        if self.predicted_output_tokens is not None:
            self._column("predicted_output_tokens", np.int64, n, 1, MAX_TOKENS)

    def _column(self, name: str, dtype: type, n: int, low: float, high: float) -> None:
        values = np.asarray(getattr(self, name))
        if values.shape != (n,):
            raise InputError(
                f"{self.source}: {name} has shape {values.shape}; expected ({n},)"
            )
        wrong = ~((values >= low) & (values <= high)) | ~np.isfinite(values)
        if np.issubdtype(dtype, np.integer) and values.dtype.kind == "f":
            wrong |= values != np.floor(values)
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise InputError(
                f"{self.source}: row {row + 1}: {name} is {values[row]}; "
                f"expected {low} to {high}"
            )
        object.__setattr__(self, name, np.ascontiguousarray(values, dtype))

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.prompt_tokens)

    @property
    def duration_s(self) -> float:
        """Time from the first to the last arrival; 0 without times. [s]"""
        if self.arrival_s is None:
            return 0.0
        return float(self.arrival_s[-1] - self.arrival_s[0])

    @property
    def rate_per_s(self) -> float:
        """Mean arrival rate; NaN without times or with one request. [requests/s]"""
        if self.duration_s <= 0:
            return float("nan")
        return (len(self) - 1) / self.duration_s

    def select(self, rows: np.ndarray | slice) -> "Trace":
        """Return the requests at ``rows``, which must be in order of arrival.

        Examples
        --------
        >>> Trace([5, 6, 7], [1, 2, 3]).select(slice(1, None)).prompt_tokens.tolist()
        [6, 7]
        """
        taken = {
            name: column[rows]
            for name in _COLUMNS
            if (column := getattr(self, name)) is not None
        }
        return replace(self, **taken)
