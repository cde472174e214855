"""Bins of time that the core fills, widened as the simulation goes on."""

import math

import numpy as np

from capplan.simulator.results.windows import WINDOWS, joined, widening
from capplan.simulator.state import State


class Bins:
    """The time bins of a state; they begin with the first arrival."""

    def __init__(self, state: State, width_s: float) -> None:
        # The arrays outlive the state: one with more slots has the same.
        self._columns, self._engine = state.bins, state.engine
        self._engine[0].bin_width_s = width_s
        self.first_s = math.inf
        self.reached_s = -math.inf  # the newest moment that they had to reach
        self.used = WINDOWS

    def reach(self, moment_s: float) -> None:
        """Join neighbours until they reach beyond a moment. [s]"""
        self.reached_s = moment_s
        if self.first_s == math.inf:
            self.first_s = moment_s
            self._engine[0].bins_start_s = moment_s
        factor = widening(moment_s - self.first_s, self.width_s)
        if factor > 1:
            for name in self._columns.dtype.names or ():
                column = np.asarray(self._columns[name])
                self._columns[name] = joined(column, factor)
            self._engine[0].bin_width_s *= factor

    @property
    def width_s(self) -> float:
        """Width of each. [s]"""
        return float(self._engine[0].bin_width_s)

    @property
    def end_s(self) -> float:
        """Where the last one ends. [s]"""
        return self.first_s + WINDOWS * self.width_s

    @property
    def starts_s(self) -> np.ndarray:
        """Start of each of those in use, shape (bins,). [s]"""
        return self.first_s + self.width_s * np.arange(self.used)

    def use_until(self, moment_s: float) -> None:
        """Leave out those that begin after a moment. [s]"""
        self.used = int((moment_s - self.first_s) / self.width_s) + 1

    def take_back(self, start_s: float, until_s: float) -> None:
        """Take back what one that has died was to do from a moment to another. [s]"""
        start_s = max(start_s, self.first_s)
        last = len(self._columns) - 1
        while start_s < until_s:
            index = min(int((start_s - self.first_s) / self.width_s), last)
            edge_s = self.first_s + (index + 1) * self.width_s
            end_s = until_s if index == last else min(edge_s, until_s)
            end_s = max(end_s, np.nextafter(start_s, np.inf))
            self._columns["busy_s"][index] -= end_s - start_s
            start_s = end_s
