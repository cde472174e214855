"""What a bound is asked: requests with their limits, and how many may miss them."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from capplan.bounds.work import Requests
from capplan.errors import InputError


class Asked(NamedTuple):
    """Requests, and how many of each group of them may miss their SLO."""

    requests: Requests
    group: np.ndarray  # of each request, shape (n,)
    droppable: np.ndarray  # of each group, shape (groups,)

    @classmethod
    def of(
        cls,
        columns: Mapping[str, np.ndarray],
        attainment: float | Sequence[float],
        request_s: float,
    ) -> "Asked":
        """Return checked requests, with times and limits from release.

        Columns are those of :data:`capplan.bounds.bound_check.COLUMNS`, shape (n,):
        limits are infinite where there is none [s]. By default no prefix cache saves
        tokens, and all are one group. ``handed`` is 1 where other replicas compute the
        prompt (default 0). The engine sees a request after ``request_s``.
        """
        none = np.zeros(len(columns["prompt_tokens"]))
        columns = {"cached_tokens": none, "group": none, "handed": none, **columns}
        requests = _checked(columns, request_s)
        targets = np.atleast_1d(np.asarray(attainment, np.float64))
        group = np.asarray(columns["group"], np.int64)
        counts = np.bincount(group, minlength=len(targets)).tolist()
        droppable = [*map(droppable_requests, counts, targets.tolist())]
        return cls(requests, group, np.array(droppable))

    def by_group(self, chosen: np.ndarray) -> np.ndarray:
        """Return how many requests of each group are chosen, shape (groups,)."""
        return np.bincount(self.group[chosen], minlength=len(self.droppable))


def droppable_requests(request_count: int, attainment: float) -> int:
    """Return how many requests may miss their SLO.

    Examples
    --------
    >>> droppable_requests(100, 0.99), droppable_requests(150, 0.99)
    (1, 1)
    """
    # In doubles the product may be just above the whole number that it is.
    return request_count - math.ceil(attainment * request_count * (1 - 1e-12))


def _checked(columns: Mapping[str, np.ndarray], request_s: float) -> Requests:
    names = ("arrival_s", *Requests._fields[1:])
    asked = Requests(*(np.asarray(columns[name], np.float64) for name in names))
    if not len(asked.release_s):
        raise InputError("no requests; expected at least one")
    # The time before the engine sees a request counts in TTFT and e2e, not in TPOT. A
    # hit of the whole prompt still computes its last token.
    return asked._replace(
        release_s=asked.release_s + request_s,
        cached_tokens=np.clip(asked.cached_tokens, 0, asked.prompt_tokens - 1),
        ttft_s=asked.ttft_s - request_s,
        e2e_s=asked.e2e_s - request_s,
    )
