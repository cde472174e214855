"""Make a trace of columns, sorted by arrival."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from capplan.errors import InputError, TraceWarning
from capplan.errors import warn as warn_of
from capplan.workload.trace import Trace

_YEAR_S = 365.25 * 86_400


@dataclass
class Notes:
    """What a reader corrected or estimated: warned of once and kept for reports."""

    path: str | Path  # of the file, for messages
    texts: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)  # said of the file at once

    def add(self, text: str, *, warn: bool = True) -> None:
        """Keep a note and, by default, warn of it."""
        self.texts.append(text)
        if warn:
            warn_of(f"{self.path}: {text}", TraceWarning)


def say_left_out(notes: Notes, left_out: Mapping[str, int], of: int) -> None:
    """Say how many rows were left out and why; refuse a file of no others."""
    if not left_out:
        return
    count = sum(left_out.values())
    said = ", ".join(f"{rows:,} {why}" for why, rows in sorted(left_out.items()))
    if count == of:
        raise InputError(
            f"{notes.path}: no request was answered: of {of:,} rows {said}; expected "
            "some with token counts"
        )
    notes.add(f"{count:,} of {of:,} rows left out: {said}")


def ordered_trace(
    notes: Notes,
    arrival_s: np.ndarray | None,
    class_names: tuple[str, ...] = ("all",),
    **columns: Any,
) -> Trace:
    """Return a trace of columns in any order; sorting them gives a warning.

    ``columns`` are others of ``Trace``; None leaves the default.
    """
    given: dict[str, Any] = {"arrival_s": arrival_s, **columns}
    given = {name: column for name, column in given.items() if column is not None}
    _refuse_gap(notes.path, given.get("arrival_s"))
    falls = int((np.diff(given.get("arrival_s", ())) < 0).sum())
    if falls and not (given.get("after", np.zeros(0)) >= 0).any():
        order = np.argsort(given["arrival_s"], kind="stable")
        whole = {k: given.pop(k) for k in ("joins", "text_names") if k in given}
        given = {name: column[order] for name, column in given.items()} | whole
        if "parent" in given:
            to = np.append(np.argsort(order), -1)
            given["parent"] = to[given["parent"]]
        notes.add(
            f"arrivals fall at {falls:,} of {len(order):,} requests; sorted by arrival"
        )
    return Trace(
        class_names=class_names,
        source=str(notes.path),
        notes=tuple(notes.texts),
        remarks=tuple(notes.remarks),
        **given,
    )


def _refuse_gap(path: str | Path, arrival_s: np.ndarray | None) -> None:
    """Refuse an arrival a year away from all others: a stamp must be wrong."""
    if arrival_s is None or len(arrival_s) < 2:
        return
    ordered = np.sort(arrival_s)
    gap_s = np.diff(ordered)
    if gap_s.max() > _YEAR_S:
        at = int(gap_s.argmax())
        raise InputError(
            f"{path}: no request arrives for {gap_s[at] / _YEAR_S:,.3g} years, between "
            f"{ordered[at]:.10g} s and {ordered[at + 1]:.10g} s; expected arrivals in "
            "seconds, less than a year apart"
        )
