"""Completed requests of a server, as a client measured them."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from capplan.errors import InputError

Row = tuple[float, float, float, float, float]
"""Arrival [s], prompt tokens, output tokens, TTFT [s], e2e latency [s]."""


class ServedRun(NamedTuple):
    """One row per completed request, in order of arrival.

    A client sees when tokens arrive, not the iterations that made them, so a latency
    model is fitted to it by simulating the run.
    """

    arrival_s: np.ndarray  # from the first arrival [s]
    prompt_tokens: np.ndarray  # int64 [tokens]
    output_tokens: np.ndarray  # int64 [tokens]
    ttft_s: np.ndarray  # nan where not measured [s]
    e2e_s: np.ndarray  # from sending to the last token [s]
    source: str  # name of the tool
    failed: int  # requests without output, which are left out

    @property
    def tpot_s(self) -> np.ndarray:
        """Time per output token after the first; nan for one token. [s]"""
        gaps = self.output_tokens - 1
        spent = np.where(gaps > 0, self.e2e_s - self.ttft_s, np.nan)
        return spent / np.where(gaps > 0, gaps, 1)


def served_run(rows: Iterable[Row | None], *, source: str, path: object) -> ServedRun:
    """Return a run from one row per request, None for one that failed."""
    rows = list(rows)
    completed = sorted((row for row in rows if row), key=lambda row: row[0])
    if not completed:
        raise InputError(f"{path}: holds no completed request")
    arrival_s, prompt, output, ttft_s, e2e_s = np.array(completed, np.float64).T
    wrong = ~np.isfinite([arrival_s, prompt, output, e2e_s]).all(axis=0)
    wrong |= (prompt < 1) | (output < 1) | (e2e_s <= 0)
    wrong |= (ttft_s <= 0) | (ttft_s > e2e_s * 1.001)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InputError(
            f"{path}: request {row + 1} by arrival has {prompt[row]:g} prompt tokens, "
            f"{output[row]:g} output tokens, TTFT {ttft_s[row]:g} s and latency "
            f"{e2e_s[row]:g} s; expected tokens >= 1 and 0 < TTFT <= latency"
        )
    return ServedRun(
        arrival_s - arrival_s[0],
        prompt.astype(np.int64),
        output.astype(np.int64),
        ttft_s,
        e2e_s,
        source,
        failed=len(rows) - len(completed),
    )
