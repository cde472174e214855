"""API server processes: what a request passes before it reaches the router."""

import numpy as np
from numba import types

from capplan.simulator.drivers.open_loop import read_only
from capplan.simulator.jit import compiled


@compiled(
    types.void(
        types.Array(types.float64, 1, "C", readonly=True),
        types.Array(types.float64, 1, "C"),
        types.Array(types.float64, 1, "C"),
        types.int64,
        types.float64,
    )
)
def _begin(arrival_s, begins_s, free_s, first, api_request_s):
    """Let processes take requests in turn, each the next when it is free."""
    for row in range(arrival_s.shape[0]):
        process = (first + row) % free_s.shape[0]
        begins_s[row] = max(arrival_s[row], free_s[process])
        free_s[process] = begins_s[row] + api_request_s


class FrontEnd:
    """Processes that take requests in order of arrival, one after the other in turn.

    A request waits for its process, which takes one each ``api_request_s``, and
    reaches the router ``request_s`` after its turn. No request overtakes another.
    """

    def __init__(self, processes: int, request_s: float, api_request_s: float) -> None:
        self.request_s = request_s
        self._api_request_s = api_request_s
        self._free_s = np.full(processes, -np.inf)
        self._taken = 0

    def reaches_s(self, arrival_s: np.ndarray) -> np.ndarray:
        """Return when the next requests reach the router, shape (n,). [s]"""
        if not self._api_request_s:
            return arrival_s + self.request_s
        begins_s = np.empty(len(arrival_s))
        arrival_s = read_only(arrival_s, np.float64)
        _begin(arrival_s, begins_s, self._free_s, self._taken, self._api_request_s)
        self._taken += len(arrival_s)
        return begins_s + self.request_s
