"""Time each iteration of a vLLM engine core, and record its batch.

Two calls bound an iteration: the scheduler's ``schedule`` decides it and its
``update_from_output`` processes the result. With asynchronous scheduling iteration
k + 1 is scheduled and launched while k runs, so its time counts from the end of k;
without, it counts from its scheduling. Both are
``end[k] - max(end[k - 1], scheduled[k])``.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from capplan.profiling.scenes import Point


@dataclass(frozen=True)
class Iteration:
    """A finished iteration."""

    seconds: float
    decode_contexts: tuple[int, ...]  # KV with new token per decoding request
    chunks: tuple[tuple[int, int], ...]  # new and already cached tokens per prompt

    @property
    def point(self) -> Point:
        """Return the iteration as a point, contexts averaged."""
        batch = len(self.decode_contexts)
        new_tokens = batch + sum(new for new, _ in self.chunks)
        if batch:
            context = round(sum(self.decode_contexts) / batch)
            return Point(
                "mixed" if self.chunks else "decode", batch, new_tokens, context
            )
        count = len(self.chunks)
        cached = round(sum(cached for _, cached in self.chunks) / max(count, 1))
        return Point("prefill", count, new_tokens, cached)


class IterationClock:
    """Watch vLLM's V1 scheduler: two methods of this instance are wrapped.

    For an engine of one thread, a timer of processor time excludes other programs on
    a shared machine.
    """

    def __init__(
        self, scheduler: Any, timer: Callable[[], float] = time.perf_counter
    ) -> None:
        self.iterations: list[Iteration] = []
        self._scheduler = scheduler
        self._pending: deque[tuple[int, float, Iteration]] = deque()
        self._last_end = 0.0
        self._timer = timer
        self._schedule = scheduler.schedule
        self._update = scheduler.update_from_output
        scheduler.schedule = self._timed_schedule
        scheduler.update_from_output = self._timed_update

    @property
    def in_flight(self) -> int:
        """Iterations scheduled but not finished."""
        return len(self._pending)

    @property
    def scheduled(self) -> int:
        """Iterations scheduled since the last reset, finished or not."""
        return len(self.iterations) + len(self._pending)

    def reset(self) -> None:
        """Forget the iterations, finished or lost by a step that failed."""
        self.iterations = []
        self._pending.clear()

    def _timed_schedule(self, *args: Any, **kwargs: Any) -> Any:
        start = self._timer()
        output = self._schedule(*args, **kwargs)
        contexts, chunks = [], []
        for request_id, new in output.num_scheduled_tokens.items():
            request = self._scheduler.requests[request_id]
            # The scheduler has already counted the new tokens as computed.
            cached = request.num_computed_tokens - new
            if new == 1 and cached >= request.num_prompt_tokens:
                contexts.append(cached + 1)
            else:
                chunks.append((new, cached))
        if contexts or chunks:
            iteration = Iteration(0.0, tuple(contexts), tuple(chunks))
            self._pending.append((id(output), start, iteration))
        return output

    def _timed_update(self, output: Any, *args: Any, **kwargs: Any) -> Any:
        result = self._update(output, *args, **kwargs)
        end = self._timer()
        if self._pending and self._pending[0][0] == id(output):
            _, start, iteration = self._pending.popleft()
            seconds = end - max(self._last_end, start)
            self.iterations.append(replace(iteration, seconds=seconds))
        self._last_end = end
        return result
