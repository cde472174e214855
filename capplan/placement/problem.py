"""The placement problem of one heartbeat: Aladdin, section 4.2, constraints a to h.

Nie et al., "Aladdin: Joint Placement and Scaling for SLO-Aware LLM Serving",
arXiv:2405.06856.

A request with ``generated_tokens`` 0 is new: its prefill counts in (c) and (d). A
request with ``replica`` >= 0 stays there; -1 may be placed anywhere, even while
decoding, as when a prefill pool hands it over.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from capplan.errors import InputError, check_at_least
from capplan.placement.kv_profile import kv_at
from capplan.placement.replica import PlacementReplica
from capplan.workload.trace import MAX_TOKENS

COLUMNS = {
    "prompt_tokens": (np.int64, 1, MAX_TOKENS),
    "predicted_output_tokens": (np.int64, 1, MAX_TOKENS),
    "generated_tokens": (np.int64, 0, MAX_TOKENS),
    "decode_elapsed_s": (np.float64, 0, np.inf),
    "ttft_slo_s": (np.float64, 0, np.inf),
    "tpot_slo_s": (np.float64, 0, np.inf),
    "replica": (np.int64, -1, 10_000_000),
}
"""Columns of the requests: dtype, lowest and highest value."""

DEFAULTS = {"generated_tokens": 0, "decode_elapsed_s": 0.0, "replica": -1}
"""Columns of a request that is new."""

_ROUNDING = 1e-12
"""Relative rounding error of sums in doubles that is no violation."""


@dataclass(frozen=True, eq=False)
class PlacementProblem:
    """Requests of a heartbeat and the replicas they may run on.

    Columns have shape (n,). With ``trust_ongoing``, ongoing requests may already break
    constraints, as wrong predictions make them; nothing new fits on their replicas.
    """

    template: PlacementReplica  # of every replica
    prompt_tokens: np.ndarray  # l_in, int64 [tokens]
    predicted_output_tokens: np.ndarray  # l_pred, int64 [tokens]
    ttft_slo_s: np.ndarray  # T_pre [s]
    tpot_slo_s: np.ndarray  # T_dec [s]
    # l_out so far, 0 for new requests, int64 [tokens]
    generated_tokens: np.ndarray = field(default_factory=lambda: np.empty(0))
    # t_dec, time since the first token [s]
    decode_elapsed_s: np.ndarray = field(default_factory=lambda: np.empty(0))
    # of an ongoing request, -1 for a free one, int64
    replica: np.ndarray = field(default_factory=lambda: np.empty(0))
    replica_count: int = 0  # replicas that exist: 0 to replica_count - 1
    max_replicas: int | None = None  # None for as many as needed
    gamma: float = 0.5  # share of the output that counts as context in (b), 0 to 1
    theta: float = 0.9  # share of the limits of (b) and (d) to use, 0 to 1
    names: tuple[str, ...] = ()  # of the requests; numbered when empty
    source: str = "placement problem"  # for messages
    trust_ongoing: bool = False

    def __post_init__(self) -> None:
        """Fill the columns left out, then check all."""
        n = len(self)
        if n == 0:
            raise InputError(f"{self.source}: no requests; expected at least one")
        for name, value in DEFAULTS.items():
            if len(getattr(self, name)) == 0:
                object.__setattr__(self, name, np.full(n, value))
        if not self.names:
            object.__setattr__(self, "names", tuple(str(row) for row in range(n)))
        if len(self.names) != n or len(set(self.names)) != n:
            raise InputError(
                f"{self.source}: {len(set(self.names))} different request names for "
                f"{n} requests; expected one each"
            )
        for name, (dtype, low, high) in COLUMNS.items():
            self._column(name, dtype, low, high)
        self._check_parameters()
        self._check_requests()
        self._check_fits_alone()
        for replica in [] if self.trust_ongoing else self.ongoing_replicas.tolist():
            rows = np.flatnonzero(self.replica == replica)
            for broken in replica_violations(self, rows, str(replica)):
                raise InputError(
                    f"{self.source}: the ongoing requests alone break it: {broken}"
                )

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.prompt_tokens)

    @property
    def ongoing_replicas(self) -> np.ndarray:
        """Replicas that hold ongoing requests, ascending, shape (k,)."""
        return np.unique(self.replica[self.replica >= 0])

    @property
    def held_tokens(self) -> np.ndarray:
        """Tokens in the KV of each request now, shape (n,). [tokens]"""
        return self.prompt_tokens + self.generated_tokens

    @property
    def remaining_tokens(self) -> np.ndarray:
        """Tokens that each request still generates, shape (n,). [tokens]"""
        return self.predicted_output_tokens - self.generated_tokens

    def _column(self, name: str, dtype: type, low: float, high: float) -> None:
        values = np.asarray(getattr(self, name))
        if values.shape != (len(self),):
            raise InputError(
                f"{self.source}: {name} has shape {values.shape}; "
                f"expected ({len(self)},)"
            )
        wrong = ~((values >= low) & (values <= high))
        if dtype is np.int64:
            wrong |= values != np.floor(values)
        if name.endswith("slo_s"):
            wrong |= values == 0
        expected = "more than 0" if name.endswith("slo_s") else f">= {low}"
        expected += " and a whole number" if dtype is np.int64 else ""
        self._refuse(wrong, lambda row: f"{name} is {values[row]}; expected {expected}")
        object.__setattr__(self, name, np.ascontiguousarray(values, dtype))

    def _check_parameters(self) -> None:
        for name in ("gamma", "theta"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise InputError(f"{self.source}: {name} is {value}; expected 0 to 1")
        check_at_least(0, self, "replica_count", where=f"{self.source}: ")
        used = len(self.ongoing_replicas)
        if self.max_replicas is not None and self.max_replicas < max(used, 1):
            raise InputError(
                f"{self.source}: max_replicas is {self.max_replicas}; ongoing requests "
                f"use {used}; expected at least {max(used, 1)}"
            )

    def _check_requests(self) -> None:
        new = self.generated_tokens == 0
        self._refuse(
            self.remaining_tokens <= 0,
            lambda row: (
                f"predicted_output_tokens is {self.predicted_output_tokens[row]} and "
                f"generated_tokens {self.generated_tokens[row]}; it has outlived its "
                "prediction: predict again, more than it has generated"
            ),
        )
        self._refuse(
            self.replica >= self.replica_count,
            lambda row: (
                f"runs on replica {self.replica[row]}; there are "
                f"{self.replica_count}, counted from 0"
            ),
        )
        self._refuse(
            (self.replica >= 0) & new,
            lambda row: (
                f"runs on replica {self.replica[row]} with generated_tokens 0; an "
                "ongoing request has its first token"
            ),
        )
        decode_s = float(self.template.decode_s[1:].min())
        self._refuse(
            self.tpot_slo_s < decode_s,
            lambda row: (
                f"TPOT SLO {self.tpot_slo_s[row]} s is below the fixed iteration time "
                f"{decode_s:.6g} s of the replica"
            ),
        )
        prefill_s = self.template.prefill_fixed_s
        self._refuse(
            new & (self.ttft_slo_s < prefill_s),
            lambda row: (
                f"TTFT SLO {self.ttft_slo_s[row]} s is below the fixed prefill time "
                f"{prefill_s:.6g} s of the replica"
            ),
        )

    def _check_fits_alone(self) -> None:
        # What fits on no empty replica makes any number of them infeasible.
        block = self.template.block_tokens
        kv = -(-(self.prompt_tokens + self.predicted_output_tokens) // block) * block
        capacity = self.template.kv_capacity_tokens
        self._refuse(
            kv > capacity,
            lambda row: (
                f"is larger than any replica: {kv[row]} tokens of KV at its end, "
                f"capacity {capacity}"
            ),
        )
        prefill_s = self.template.prefill_fixed_s + self.template.prefill_work_s(
            self.prompt_tokens
        )
        self._refuse(
            (self.generated_tokens == 0) & (prefill_s > self.ttft_slo_s),
            lambda row: (
                f"is larger than any replica: its prefill alone takes "
                f"{prefill_s[row]:.6g} s, TTFT SLO {self.ttft_slo_s[row]} s"
            ),
        )
        tpots_s, tpot_class = np.unique(self.tpot_slo_s, return_inverse=True)
        alone = np.array([decode_limit_tokens(self, float(t))[1] for t in tpots_s])
        limit = alone[tpot_class]
        context = context_tokens(self)
        self._refuse(
            context > limit,
            lambda row: (
                f"is larger than any replica: context {context[row]:.6g} tokens; alone,"
                f" within TPOT {self.tpot_slo_s[row]} s, {limit[row]:.6g} are allowed"
            ),
        )

    def _refuse(self, wrong: np.ndarray, reason: Callable[[int], str]) -> None:
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise InputError(f"{self.source}: request {self.names[row]}: {reason(row)}")


def context_tokens(problem: PlacementProblem) -> np.ndarray:
    """Return l_in + gamma * l_out of each request, the weights of (b). [tokens]"""
    return problem.prompt_tokens + problem.gamma * problem.predicted_output_tokens


def decode_limit_tokens(problem: PlacementProblem, tpot_s: float) -> np.ndarray:
    """Return theta * l_d(b), the right side of (b), by batch size. [tokens]"""
    # No share of an infinite limit is still none, where 0 * inf would be nan.
    if problem.theta == 0:
        return np.zeros(problem.template.max_batch + 1)
    return problem.theta * problem.template.context_limit_tokens(tpot_s)


def saved_s(problem: PlacementProblem) -> np.ndarray:
    """Return T_dec * l_out - t_dec, the time (d) leaves for a prefill. [s]"""
    generated = problem.generated_tokens
    # An infinite SLO times no token would be nan.
    earned_s = problem.tpot_slo_s * np.maximum(generated, 1)
    return np.where(generated > 0, earned_s, 0.0) - problem.decode_elapsed_s


def prefill_times_s(
    problem: PlacementProblem, rows: np.ndarray
) -> tuple[float, float, float]:
    """Return the prefill time on a replica, its limit by (c) and by (d). [s]

    Without new requests the time is 0; a limit that does not apply is infinite.
    """
    # (c), (d) of the paper: all prefills of the heartbeat run in one iteration (Eq. 2).
    new = rows[problem.generated_tokens[rows] == 0]
    if len(new) == 0:
        return 0.0, np.inf, np.inf
    work_s = problem.template.prefill_work_s(problem.prompt_tokens[new]).sum()
    saved_limit_s = np.inf
    decoding = rows[problem.generated_tokens[rows] > 0]
    if len(decoding):
        saved_limit_s = problem.theta * float(saved_s(problem)[decoding].min())
    return (
        problem.template.prefill_fixed_s + float(work_s),
        float(problem.ttft_slo_s[new].min()),
        saved_limit_s,
    )


def kv_over_iterations(
    problem: PlacementProblem, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the iterations that can bind and the KV of some requests in them.

    Both have shape (k,); the KV is the sum over the requests. [tokens]
    """
    iterations = np.unique(problem.remaining_tokens[rows])
    return iterations, kv_tokens(problem, rows, iterations).sum(axis=0)


def kv_tokens(
    problem: PlacementProblem, rows: np.ndarray, iterations: np.ndarray
) -> np.ndarray:
    """Return some requests' KV in each iteration, shape (rows, k). [tokens]"""
    held, remaining = problem.held_tokens[rows], problem.remaining_tokens[rows]
    return kv_at(held, remaining, iterations, problem.template.block_tokens)


def replica_numbers(problem: PlacementProblem, count: int) -> np.ndarray:
    """Return ``count`` replicas, those with ongoing requests first, shape (count,)."""
    ongoing = problem.ongoing_replicas
    others = np.setdiff1d(np.arange(count + len(ongoing)), ongoing)
    return np.concatenate([ongoing, others[: count - len(ongoing)]])


def violations(problem: PlacementProblem, assignment: np.ndarray) -> list[str]:
    """Return the constraints that an assignment breaks, one line each.

    The assignment is the replica of each request, shape (n,); a number from
    ``replica_count`` on is a newly opened replica.
    """
    assignment = np.asarray(assignment)
    if assignment.shape != (len(problem),):
        return [f"(a) {assignment.shape} replicas for {len(problem)} requests"]
    broken = [
        f"(a) request {problem.names[row]} is on no replica"
        for row in np.flatnonzero(assignment < 0)
    ]
    moved = (problem.replica >= 0) & (assignment != problem.replica)
    broken += [
        f"(f) ongoing request {problem.names[row]} leaves replica "
        f"{problem.replica[row]} for {assignment[row]}"
        for row in np.flatnonzero(moved)
    ]
    used = rows_by_replica(assignment)
    for replica, rows in used:
        if replica >= 0:
            broken += replica_violations(problem, rows, str(replica))
    if problem.max_replicas is not None and len(used) > problem.max_replicas:
        broken.append(f"(f) {len(used)} replicas used; at most {problem.max_replicas}")
    return broken


def rows_by_replica(assignment: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Return each replica in use and the rows of its requests, by number."""
    order = np.argsort(assignment, kind="stable")
    used, starts = np.unique(assignment[order], return_index=True)
    return list(zip(used.tolist(), np.split(order, starts)[1:], strict=True))


def replica_violations(
    problem: PlacementProblem, rows: np.ndarray, replica: str
) -> list[str]:
    """Return which of (b) to (e) the requests of one replica break together."""
    if len(rows) == 0:
        return []
    broken = []
    batch, max_batch = len(rows), problem.template.max_batch
    if batch > max_batch:
        return [f"(b) replica {replica}: batch {batch}; largest {max_batch}"]
    # An iteration serves the whole batch: the strictest TPOT holds for all.
    tpot_s = float(problem.tpot_slo_s[rows].min())
    limit = float(decode_limit_tokens(problem, tpot_s)[batch])
    context = float(context_tokens(problem)[rows].sum())
    # Also where the limit is negative, since a context never is.
    if context > limit * (1 + _ROUNDING):
        broken.append(
            f"(b) replica {replica}: context {context:.6g} tokens at batch {batch}; "
            f"limit {limit:.6g} for TPOT {tpot_s:g} s"
        )
    prefill_s, ttft_s, saved_limit_s = prefill_times_s(problem, rows)
    if prefill_s > ttft_s * (1 + _ROUNDING):
        broken.append(
            f"(c) replica {replica}: prefill takes {prefill_s:.6g} s; "
            f"TTFT SLO {ttft_s:g} s"
        )
    if prefill_s > saved_limit_s + _ROUNDING * abs(saved_limit_s):
        broken.append(
            f"(d) replica {replica}: prefill takes {prefill_s:.6g} s; ongoing "
            f"requests have {saved_limit_s:.6g} s to spare"
        )
    iterations, total = kv_over_iterations(problem, rows)
    peak = int(np.argmax(total))
    if total[peak] > problem.template.kv_capacity_tokens:
        broken.append(
            f"(e) replica {replica}: {total[peak]} tokens of KV "
            f"{iterations[peak]} iterations ahead; "
            f"capacity {problem.template.kv_capacity_tokens}"
        )
    return broken
