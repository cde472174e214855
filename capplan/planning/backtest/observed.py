"""What was measured of a fleet, in windows, with what simulates the same."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from capplan.simulator.results.request_times import RequestTimes
from capplan.workload.metrics.windows import Window
from capplan.workload.trace import Trace


class Replayed(Protocol):
    """A part of the fleet's time whose load is simulated again."""

    @property
    def windows(self) -> Sequence[Window]:
        """The windows as measured."""

    @property
    def mix(self) -> Trace:
        """Requests that arrive, with what their prompts share."""

    def simulated(self, factor: float) -> list[Window]:
        """Return the windows, simulated with a factor on iteration times."""

    def decoded(self, factor: float, times: float) -> tuple[float, float]:
        """Return how long answers took after their first tokens, and later tokens.

        At ``times`` the measured load. [s, tokens]
        """

    def log_error(self, factor: float) -> float:
        """Return the standard error of a factor's logarithm, found in one window."""


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


def decoded(times: RequestTimes) -> tuple[float, float]:
    """Return how long answers took after first tokens, and later tokens. [s, tokens]"""
    spent_s = (times.finish_s - times.first_token_s).sum()
    return float(spent_s), float((times.output_tokens - 1).sum())


def faster(trace: Trace, times: float) -> Trace:
    """Return requests that arrive at ``times`` the rate."""
    assert trace.arrival_s is not None
    return trace if times == 1 else trace.changed(arrival_s=trace.arrival_s / times)
