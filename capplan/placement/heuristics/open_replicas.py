"""The replicas in use while a heuristic places requests one after another."""

import numpy as np

from capplan.placement.integer_units import integer_units
from capplan.placement.problem import PlacementProblem

_CHUNK = 64


class OpenReplicas:
    """Loads of the replicas in use, as columns; mutable, owned by one heuristic.

    ``room[i, k]`` is the KV capacity, less the KV of replica i in binding iteration k,
    less the number of that iteration. A request that holds ``now`` tokens fits where
    ``room >= now`` until its end: one comparison for all iterations.
    ``room_ahead[i, c]`` is the minimum of the room over the first c + 1 chunks.
    """

    replica: np.ndarray  # (rows,) int64
    batch: np.ndarray  # (rows,) int64 [requests]
    context: np.ndarray  # (rows,) int64 [1/1000 token]
    tpot_class: np.ndarray  # (rows,) int64, tightest on the replica
    prefill: np.ndarray  # (rows,) int64 [prefill units]
    ceiling: np.ndarray  # (rows,) int64 [prefill units]
    room: np.ndarray  # (rows, iterations) int64 [tokens]
    room_ahead: np.ndarray  # (rows, chunks) int64 [tokens]

    def __init__(self, problem: PlacementProblem):
        self.problem = problem
        self.units = integer_units(problem)
        self.now = problem.held_tokens
        remaining = problem.remaining_tokens
        self.iterations, self.last = np.unique(remaining, return_inverse=True)
        block = problem.template.block_tokens
        top = int(self.now.max()) + int(self.iterations[-1]) + 1
        # Tokens rounded up to whole blocks, by tokens: a lookup for each request.
        self.ramp = -(-np.arange(top) // block) * block
        self._limit_flat = self.units.limit.ravel()
        self._width = self.units.limit.shape[1]
        self._one_class = len(self.units.limit) == 1
        self.count = 0
        self._allocate(16)
        self.assignment = np.full(len(problem), -1)
        for replica in problem.ongoing_replicas:
            row = self.open(int(replica))
            for request in np.flatnonzero(problem.replica == replica):
                self.add(row, int(request))

    def _allocate(self, size: int) -> None:
        chunks = -(-len(self.iterations) // _CHUNK)
        fresh = np.full(
            (size, chunks * _CHUNK), self.problem.template.kv_capacity_tokens
        )
        fresh[:, : len(self.iterations)] -= self.iterations
        columns = {
            "replica": np.full(size, -1),
            "batch": np.zeros(size, np.int64),
            "context": np.zeros(size, np.int64),
            "tpot_class": np.full(size, len(self.units.limit) - 1),
            "prefill": np.zeros(size, np.int64),
            "ceiling": np.full(size, np.iinfo(np.int64).max),
            "room": fresh,
            "room_ahead": np.minimum.accumulate(
                fresh.reshape(size, chunks, _CHUNK).min(axis=2), axis=1
            ),
        }
        for name, column in columns.items():
            if self.count:
                column[: self.count] = getattr(self, name)[: self.count]
            setattr(self, name, column)

    def open(self, replica: int | None = None) -> int:
        """Open a replica, by default the lowest unused number; return its row."""
        if self.count == len(self.batch):
            # Twice as many, so that opening one copies O(1) rows in the mean.
            self._allocate(2 * self.count)
        if replica is None:
            used = set(self.replica[: self.count].tolist())
            replica = next(i for i in range(self.count + 1) if i not in used)
        self.replica[self.count] = replica
        self.count += 1
        return self.count - 1

    def may_take(self, request: int) -> np.ndarray:
        """Return which rows satisfy (b), (c), (d) and nearly (e) with the request.

        (e) is checked up to the last whole chunk of iterations before the end of the
        request; :meth:`holds_kv` checks the rest.
        """
        n, units = self.count, self.units
        # (b) with the request counted, at the strictest TPOT of it and of the replica.
        index = self.batch[:n] + 1
        np.minimum(index, self._width - 1, out=index)
        if self._one_class:
            limit = self._limit_flat[index]
        else:
            tight = np.minimum(self.tpot_class[:n], units.tpot_class[request])
            limit = self._limit_flat[tight * self._width + index]
        fits = self.context[:n] + units.context[request] <= limit
        fits &= self.batch[:n] < self._width - 1
        prefill = self.prefill[:n] + units.prefill[request]
        fits &= prefill <= units.prefill_ceiling[request]
        fits &= prefill <= self.ceiling[:n]
        chunk = int(self.last[request]) // _CHUNK
        # (e) in the whole chunks before the one in which the request ends.
        column = max(chunk - 1, 0)
        if chunk:
            fits &= self.room_ahead[:n, column] >= self.now[request]
        return fits

    def holds_kv(self, row: int, request: int) -> bool:
        """Return whether a row satisfies (e) with the request."""
        stop = int(self.last[request]) + 1
        return bool((self.room[row, :stop] >= self._demand(request, stop)).all())

    def hold_kv(self, fits: np.ndarray, request: int) -> np.ndarray:
        """Return which of the rows from :meth:`may_take` satisfy (e)."""
        stop = int(self.last[request]) + 1
        start = 0
        if self.problem.template.block_tokens == 1:
            start = (stop - 1) // _CHUNK * _CHUNK  # may_take checked the chunks before
        demand = self._demand(request, stop)
        rows = np.flatnonzero(fits)
        held = np.zeros(len(fits), bool)
        room = self.room[rows, start:stop]
        held[rows] = (room >= demand).all(axis=1)
        return held

    def _demand(self, request: int, stop: int) -> np.ndarray | np.int64:
        ahead = self.iterations[:stop]
        if self.problem.template.block_tokens == 1:
            return self.now[request]
        return self.ramp[self.now[request] + ahead] - ahead

    def add(self, row: int, request: int) -> None:
        """Put the request on the row."""
        units = self.units
        self.batch[row] += 1
        self.context[row] += units.context[request]
        if units.tpot_class[request] < self.tpot_class[row]:
            self.tpot_class[row] = units.tpot_class[request]
        self.prefill[row] += units.prefill[request]
        if units.prefill_ceiling[request] < self.ceiling[row]:
            self.ceiling[row] = units.prefill_ceiling[request]
        stop = int(self.last[request]) + 1
        room = self.room[row]
        room[:stop] -= self.iterations[:stop] + self._demand(request, stop)
        chunks = room.reshape(-1, _CHUNK).min(axis=1)
        np.minimum.accumulate(chunks, out=self.room_ahead[row])
        self.assignment[request] = self.replica[row]
