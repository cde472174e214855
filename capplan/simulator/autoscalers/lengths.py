"""Mean lengths of the requests of the last five minutes."""

from collections import deque
from typing import NamedTuple

from capplan.simulator.autoscalers.view import View

WINDOW_S = 300.0


class Lengths(NamedTuple):
    """Mean lengths of requests, 0 where there were none. [tokens]"""

    prompt: float
    output: float


class MeanLengths:
    """Means over the arrivals of a window, kept up tick by tick."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, int, int]] = deque()
        self._sums = [0, 0, 0]

    def add(self, view: View) -> None:
        """Take the arrivals of a tick in, and those before the window out."""
        if view.arrived:
            new = (view.arrived, view.arrived_prompt_tokens, view.arrived_output_tokens)
            self._seen.append((view.now_s, *new))
            self._sums = [a + b for a, b in zip(self._sums, new, strict=True)]
        while self._seen and self._seen[0][0] <= view.now_s - WINDOW_S:
            _, *old = self._seen.popleft()
            self._sums = [a - b for a, b in zip(self._sums, old, strict=True)]

    def now(self) -> Lengths:
        """Return the means."""
        count, prompt, output = self._sums
        return Lengths(prompt / count, output / count) if count else Lengths(0.0, 0.0)
