"""What was measured of a fleet, in windows, with what simulates the same."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from capplan.planning.backtest.by_metrics import ReplayedReplica
from capplan.planning.backtest.by_requests import ReplayedRequests
from capplan.workload.metrics.windows import Window

Replayed = ReplayedReplica | ReplayedRequests
"""A part of the fleet's time whose load is simulated again."""


@dataclass(frozen=True, eq=False)
class Observed:
    """All parts of a fleet's time that can be judged."""

    parts: Sequence[Replayed]
    by_step: bool = True  # gaps between tokens are of one token each
    waits: bool | None = None  # requests wait in all windows; None: as each one says
    model_name: str = ""  # by which it serves the LLM; empty: not known

    @property
    def windows(self) -> list[Window]:
        """The windows as measured."""
        return [window for part in self.parts for window in part.windows]

    def simulated(self, factor: float) -> list[Window]:
        """Return the windows under a factor on iteration times."""
        return [window for part in self.parts for window in part.simulated(factor)]

    @property
    def saturated(self) -> np.ndarray:
        """Which windows are saturated, (windows,), bool."""
        told = [each.is_saturated for each in self.windows]
        return np.array(told if self.waits is None else [self.waits] * len(told))

    def pace_s(self, factor: float, times: float) -> float:
        """Return the mean time between tokens at ``times`` the load. [s]"""
        spent_s, tokens = zip(
            *(part.decoded(factor, times) for part in self.parts), strict=True
        )
        return sum(spent_s) / max(sum(tokens), 1.0)

    def paces_s(self, windows: Sequence[Window]) -> np.ndarray:
        """Return what each window is judged by: its time between tokens. [s]

        Where steps give several tokens at once, that per output token; where answers
        have one token, how long requests run.
        """
        return np.array([self._pace_s(each) for each in windows])

    def _pace_s(self, window: Window) -> float:
        decode, output = window.observed("decode_s"), window.observed("output_tokens")
        if self.by_step and np.isfinite(window.itl_s) and window.itl_s > 0:
            return window.itl_s
        if decode is not None and output is not None and output.total > output.count:
            return decode.total / (output.total - output.count)
        return float(np.nanmin([window.mean("inference_s"), window.mean("e2e_s")]))
