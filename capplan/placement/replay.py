"""Place a trace heartbeat by heartbeat, opening and draining replicas.

A model of Aladdin's serving loop with the heartbeat as its time step; it shows how many
replicas a placement rule needs over time, and the simulator models the iterations. In
each heartbeat the requests that arrived in the last one are placed. Each replica then
runs their prefill in one iteration, and decode iterations of a(b) + s(b) * L for the
rest of the heartbeat, in closed form between completions.
"""

from collections.abc import Iterator

import numpy as np

from capplan.errors import InputError
from capplan.placement.heuristics.packing import best_fit
from capplan.placement.problem import PlacementProblem, rows_by_replica
from capplan.placement.replica import PlacementReplica
from capplan.workload.trace import Trace


class Replay:
    """State of every request of a trace, in columns, and the limits of placement."""

    def __init__(
        self,
        template: PlacementReplica,
        trace: Trace,
        slo_s: tuple[float, float],
        gamma: float = 0.5,
        theta: float = 0.9,
    ) -> None:
        """Start with no request on a replica.

        ``slo_s`` is that of TTFT, from the heartbeat on, and of TPOT. Placement knows
        the lengths that the trace predicts, the true ones where it predicts none.
        """
        assert trace.arrival_s is not None
        predicted, n = trace.predicted_output_tokens, len(trace)
        self.template = template
        self.arrival_s = trace.arrival_s - trace.arrival_s[0]
        self.prompt, self.output = trace.prompt_tokens, trace.output_tokens
        self.predicted = trace.output_tokens if predicted is None else predicted
        self._slo_s, self._gamma, self._theta = slo_s, gamma, theta
        self._ready_s: dict[int, float] = {}
        self.generated = np.zeros(n, np.int64)
        self.replica = np.full(n, -1)
        self.first_s, self.end_s = np.full(n, np.nan), np.full(n, np.nan)

    def heartbeats(self, span_s: float) -> Iterator[tuple[float, np.ndarray]]:
        """Yield each heartbeat's time since the first arrival, and the rows that came.

        The caller places the rows, and advances by the span, until all are served.
        """
        if not span_s > 0:
            raise InputError(f"heartbeat is {span_s} s; expected more than 0")
        now_s, arrived = 0.0, 0
        while arrived < len(self.arrival_s) or np.isnan(self.end_s).any():
            now_s += span_s
            upto = int(np.searchsorted(self.arrival_s, now_s, side="right"))
            yield now_s, np.arange(arrived, upto)
            arrived = upto

    def place(self, new: np.ndarray, now_s: float) -> PlacementProblem | None:
        """Place new requests by best fit; return the problem, None without any."""
        problem = self.problem(new, now_s) if len(new) else None
        if problem is not None:  # its last rows are the new requests
            self.replica[new] = best_fit(problem)[len(problem) - len(new) :]
        return problem

    def running(self) -> np.ndarray:
        """Return the rows of the requests on replicas."""
        return np.flatnonzero((self.replica >= 0) & np.isnan(self.end_s))

    def problem(self, new: np.ndarray, now_s: float) -> PlacementProblem | None:
        """Return the problem of placing new requests; None without any request."""
        running = self.running()
        rows = np.concatenate([running, new])
        if len(rows) == 0:
            return None
        generated, predicted = self.lengths(rows)
        elapsed_s = np.nan_to_num(now_s - self.first_s[rows], nan=0.0)
        replica = self.replica[rows]
        return PlacementProblem(
            self.template,
            self.prompt[rows],
            predicted,
            np.full(len(rows), self._slo_s[0]),
            np.full(len(rows), self._slo_s[1]),
            generated,
            np.maximum(elapsed_s, 0.0),
            replica,
            replica_count=int(replica.max()) + 1 if len(running) else 0,
            gamma=self._gamma,
            theta=self._theta,
            names=tuple(str(row) for row in rows.tolist()),
            source="replay",
            trust_ongoing=True,
        )

    def lengths(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens that requests have, and are taken to end with."""
        generated = self.generated[rows]
        # One that has outlived its prediction is taken to end with its next token.
        return generated, np.maximum(self.predicted[rows], generated + 1)

    def advance(self, now_s: float, span_s: float) -> int:
        """Run every replica for one heartbeat; return how many have requests."""
        running = self.running()
        used = rows_by_replica(self.replica[running])
        for replica, rows in used:
            # An iteration that began in the last heartbeat may end in this one.
            clock_s = max(now_s, self._ready_s.get(replica, now_s))
            until_s = now_s + span_s
            self._ready_s[replica] = self._work(running[rows], clock_s, until_s)
        return len(used)

    def _work(self, rows: np.ndarray, clock_s: float, until_s: float) -> float:
        """Run one replica until a time; return the end of its last iteration. [s]"""
        fresh = rows[self.generated[rows] == 0]
        if len(fresh):
            clock_s += self.prefill_s(fresh)
            self.first_s[fresh] = clock_s
            self.generated[fresh] = 1
            self.end_s[fresh[self.output[fresh] == 1]] = clock_s
            rows = rows[np.isnan(self.end_s[rows])]
        # From one completion to the next the batch stays, context grows by its size.
        while len(rows) and clock_s < until_s:
            context = float((self.prompt[rows] + self.generated[rows]).sum())
            decode_s, slope_s = self.decode_s(len(rows), context)
            first_s = decode_s + slope_s * (context + len(rows))
            growth_s = slope_s * len(rows)
            left = int((self.output[rows] - self.generated[rows]).min())
            fits = _iterations(first_s, growth_s, until_s - clock_s)
            n = min(left, max(fits, 1))
            # Eq. 3 over n iterations, each longer by the tokens of the one before.
            clock_s += n * first_s + growth_s * n * (n - 1) / 2
            self.generated[rows] += n
            done = self.generated[rows] >= self.output[rows]
            self.end_s[rows[done]] = clock_s
            rows = rows[~done]
        return clock_s

    def prefill_s(self, rows: np.ndarray) -> float:
        """Return the time of one prefill of some requests. [s]"""
        work_s = self.template.prefill_work_s(self.prompt[rows]).sum()
        return self.template.prefill_fixed_s + float(work_s)

    def decode_s(self, batch: int, context: float) -> tuple[float, float]:
        """Return an iteration's time and that per token, of a padded batch if less."""
        template, start = self.template, min(batch, self.template.max_batch)
        slopes_s = template.decode_context_s[start:]
        size = start + int((template.decode_s[start:] + slopes_s * context).argmin())
        return float(template.decode_s[size]), float(template.decode_context_s[size])


def _iterations(first_s: float, growth_s: float, span_s: float) -> int:
    """Return the most n with n * first + growth * n * (n - 1) / 2 <= span."""
    if growth_s <= 0:
        return int(span_s / first_s)
    half = first_s - growth_s / 2
    return int((-half + np.sqrt(half * half + 2 * growth_s * span_s)) / growth_s)
