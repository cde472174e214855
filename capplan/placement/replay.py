"""Place a trace heartbeat by heartbeat, opening and draining replicas.

A model of Aladdin's serving loop with the heartbeat as its time step; it shows how many
replicas a placement rule needs over time, and the simulator models the iterations. In
each heartbeat the requests that arrived in the last one are placed. Each replica then
runs their prefill in one iteration, and decode iterations of a(b) + s(b) * L for the
rest of the heartbeat, in closed form between completions.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from capplan.errors import InputError
from capplan.placement.heuristics.packing import best_fit
from capplan.placement.problem import PlacementProblem, rows_by_replica
from capplan.placement.replica import PlacementReplica

Route = Callable[[np.ndarray, int], np.ndarray]
"""``route(requests per replica, new requests) -> replica of each``, fixed fleet."""


@dataclass(frozen=True, eq=False)
class Replay:
    """Latencies and replica counts of a trace under a placement rule."""

    replicas: np.ndarray  # replicas with requests in each heartbeat
    ttft_s: np.ndarray  # of each request [s]
    tpot_s: np.ndarray  # of each request, nan for one-token outputs [s]
    attained: np.ndarray  # whether each request meets TTFT and TPOT
    kv_overflows: int  # runs of iterations with more KV on a replica than fits
    placing_s: np.ndarray  # time to place the requests of each heartbeat [s]
    placed: np.ndarray  # requests placed in each heartbeat

    @property
    def peak_replicas(self) -> int:
        """Most replicas in use at once."""
        return int(self.replicas.max())

    @property
    def peak_heartbeat(self) -> int:
        """Heartbeat with most replicas, then most new requests, then the last."""
        return int(np.lexsort((self.placed, self.replicas))[-1])

    @property
    def attainment(self) -> float:
        """Share of requests within the SLO."""
        return float(self.attained.mean())


@dataclass
class _Fleet:
    """State of every request, in columns, and the limits of placement."""

    template: PlacementReplica
    prompt: np.ndarray
    output: np.ndarray
    predicted: np.ndarray
    slo_s: tuple[float, float]
    gamma: float
    theta: float
    decode_only: bool
    ready_s: dict[int, float] = field(default_factory=dict)
    overflows: int = 0

    def __post_init__(self) -> None:
        """Start with no request on a replica."""
        n = len(self.prompt)
        self.generated = np.zeros(n, np.int64)
        self.replica = np.full(n, -1)
        self.first_s, self.end_s = np.full(n, np.nan), np.full(n, np.nan)

    def running(self) -> np.ndarray:
        """Return the rows of the requests on replicas."""
        return np.flatnonzero((self.replica >= 0) & np.isnan(self.end_s))


def replay(
    template: PlacementReplica,
    *,
    arrival_s: np.ndarray,
    prompt_tokens: np.ndarray,
    output_tokens: np.ndarray,
    ttft_slo_s: float,
    tpot_slo_s: float,
    predicted_output_tokens: np.ndarray | None = None,
    heartbeat_s: float = 1.0,
    gamma: float = 0.5,
    theta: float = 0.9,
    route: Route | None = None,
    replicas: int | None = None,
    decode_only: bool = False,
    until_s: float | None = None,
    wait_s: float = 0.0,
) -> tuple[Replay, PlacementProblem | None]:
    """Place a trace heartbeat by heartbeat, by best fit or on a fixed fleet.

    Parameters
    ----------
    template
        Every replica.
    arrival_s, prompt_tokens, output_tokens
        The trace, in order of arrival, shape (n,) each.
    predicted_output_tokens
        Output lengths known to placement; ``output_tokens`` when None.
    heartbeat_s
        Time between placements. [s]
    route, replicas
        Router of a fixed fleet, blind to the constraints, and its size; best fit on an
        elastic fleet when None.
    decode_only
        Prefill is done elsewhere: the decode pool of split-phase serving.
    until_s
        Time of the heartbeat at which to stop; None to serve the whole trace. [s]
    wait_s
        Part of the TTFT SLO reserved for the wait until the heartbeat. [s]

    Returns
    -------
    tuple
        The replay, and the problem of the heartbeat at ``until_s``, None without
        requests; with ``until_s`` None, the problem of the peak heartbeat of best fit.
    """
    if not heartbeat_s > 0:
        raise InputError(f"heartbeat is {heartbeat_s} s; expected more than 0")
    if (route is None) != (replicas is None):
        raise InputError("a fixed fleet needs both a router and a number of replicas")
    n = len(arrival_s)
    if predicted_output_tokens is None:
        predicted_output_tokens = output_tokens
    fleet = _Fleet(
        template,
        np.asarray(prompt_tokens, np.int64),
        np.asarray(output_tokens, np.int64),
        np.asarray(predicted_output_tokens, np.int64),
        (ttft_slo_s - wait_s, tpot_slo_s),
        gamma,
        theta,
        decode_only,
    )
    heartbeats: list[tuple[int, float, int]] = []
    peak, problem, wanted = (0, 0), None, None
    now_s = float(arrival_s[0])
    arrived = 0
    while arrived < n or np.isnan(fleet.end_s).any():
        now_s += heartbeat_s
        upto = int(np.searchsorted(arrival_s, now_s, side="right"))
        new = np.arange(arrived, upto)
        arrived = upto
        if until_s is not None and now_s >= until_s:
            wanted = _problem(fleet, new, now_s)
            break
        start = time.perf_counter()
        if route is not None and replicas is not None:
            counts = np.bincount(fleet.replica[fleet.running()], minlength=replicas)
            fleet.replica[new] = route(counts, len(new))
        else:
            problem = _problem(fleet, new, now_s) if len(new) else None
            if problem is not None:  # its last rows are the new requests
                fleet.replica[new] = best_fit(problem)[len(problem) - len(new) :]
        placing_s = time.perf_counter() - start
        used = _advance(fleet, now_s, heartbeat_s)
        heartbeats.append((used, placing_s, len(new)))
        # Only new requests open replicas: a heartbeat without any is no peak.
        if len(new) and until_s is None and (used, len(new)) >= peak:
            peak, wanted = (used, len(new)), problem
    return _result(fleet, heartbeats, arrival_s, (ttft_slo_s, tpot_slo_s)), wanted


def _problem(fleet: _Fleet, new: np.ndarray, now_s: float) -> PlacementProblem | None:
    running = fleet.running()
    rows = np.concatenate([running, new])
    if len(rows) == 0:
        return None
    generated = fleet.generated[rows]
    # One that has outlived its prediction is taken to end with its next token.
    predicted = np.maximum(fleet.predicted[rows], generated + 1)
    if fleet.decode_only:
        # With its prefill done elsewhere it has its first token, but no replica yet.
        generated = np.maximum(generated, 1)
        predicted = np.maximum(predicted, 2)
    elapsed_s = np.nan_to_num(now_s - fleet.first_s[rows], nan=0.0)
    replica = fleet.replica[rows]
    return PlacementProblem(
        fleet.template,
        fleet.prompt[rows],
        predicted,
        np.full(len(rows), fleet.slo_s[0]),
        np.full(len(rows), fleet.slo_s[1]),
        generated,
        np.maximum(elapsed_s, 0.0),
        replica,
        replica_count=int(replica.max()) + 1 if len(running) else 0,
        gamma=fleet.gamma,
        theta=fleet.theta,
        names=tuple(str(row) for row in rows.tolist()),
        source="replay",
        trust_ongoing=True,
    )


def _advance(fleet: _Fleet, now_s: float, span_s: float) -> int:
    """Run every replica for one heartbeat; return how many have requests."""
    running = fleet.running()
    used = rows_by_replica(fleet.replica[running])
    for replica, rows in used:
        # An iteration that began in the last heartbeat may end in this one.
        clock_s = max(now_s, fleet.ready_s.get(replica, now_s))
        until_s = now_s + span_s
        fleet.ready_s[replica] = _work(fleet, running[rows], clock_s, until_s)
    return len(used)


def _work(fleet: _Fleet, rows: np.ndarray, clock_s: float, until_s: float) -> float:
    """Run one replica until a time; return the end of its last iteration. [s]"""
    template = fleet.template
    fresh = rows[fleet.generated[rows] == 0]
    if len(fresh):
        if not fleet.decode_only:
            work_s = template.prefill_work_s(fleet.prompt[fresh]).sum()
            clock_s += template.prefill_fixed_s + float(work_s)
        fleet.first_s[fresh] = clock_s
        fleet.generated[fresh] = 1
        fleet.end_s[fresh[fleet.output[fresh] == 1]] = clock_s
        rows = rows[np.isnan(fleet.end_s[rows])]
    # From one completion to the next the batch stays, and context grows by its size.
    while len(rows) and clock_s < until_s:
        context = float((fleet.prompt[rows] + fleet.generated[rows]).sum())
        if context > template.kv_capacity_tokens:
            fleet.overflows += 1
        b = _padded(template, len(rows), context)
        slope_s = float(template.decode_context_s[b])
        first_s = float(template.decode_s[b]) + slope_s * (context + len(rows))
        growth_s = slope_s * len(rows)
        left = int((fleet.output[rows] - fleet.generated[rows]).min())
        fits = _iterations(first_s, growth_s, until_s - clock_s)
        n = min(left, max(fits, 1))
        # Eq. 3 summed over n iterations, each longer by the tokens of the one before.
        clock_s += n * first_s + growth_s * n * (n - 1) / 2
        fleet.generated[rows] += n
        done = fleet.generated[rows] >= fleet.output[rows]
        fleet.end_s[rows[done]] = clock_s
        rows = rows[~done]
    return clock_s


def _padded(template: PlacementReplica, batch: int, context: float) -> int:
    """Return the batch size, padded where a larger one is faster."""
    start = min(batch, template.max_batch)
    times_s = template.decode_s[start:] + template.decode_context_s[start:] * context
    return start + int(times_s.argmin())


def _iterations(first_s: float, growth_s: float, span_s: float) -> int:
    """Return the most n with n * first + growth * n * (n - 1) / 2 <= span."""
    if growth_s <= 0:
        return int(span_s / first_s)
    half = first_s - growth_s / 2
    return int((-half + np.sqrt(half * half + 2 * growth_s * span_s)) / growth_s)


def _result(
    fleet: _Fleet,
    heartbeats: list[tuple[int, float, int]],
    arrival_s: np.ndarray,
    slo_s: tuple[float, float],
) -> Replay:
    ttft_s = fleet.first_s - arrival_s
    # ATGT: a one-token output has no time between tokens, and attains it.
    tokens = np.where(fleet.output > 1, fleet.output - 1, np.nan)
    tpot_s = (fleet.end_s - fleet.first_s) / tokens
    attained = fleet.decode_only | (ttft_s <= slo_s[0])
    attained &= np.isnan(tpot_s) | (tpot_s <= slo_s[1] * (1 + 1e-9))
    columns = np.array(heartbeats, dtype=float).reshape(-1, 3)
    return Replay(
        replicas=columns[:, 0].astype(np.int64),
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        attained=attained,
        kv_overflows=fleet.overflows,
        placing_s=columns[:, 1],
        placed=columns[:, 2].astype(np.int64),
    )
