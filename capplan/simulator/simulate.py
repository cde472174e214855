"""Serve a trace on a deployment: the door to the compiled core.

Names, dataclasses and checks stop here; the core sees arrays.
"""

import math
from typing import NamedTuple

import numpy as np

from capplan.deployment import EngineSettings
from capplan.errors import InputError
from capplan.latency.contract import LatencyTables
from capplan.simulator.fleet import (
    BINS,
    UNBOUNDED_JUMP,
    Fleet,
    PolicySettings,
    Progress,
    Stopped,
)
from capplan.simulator.times import RequestTimes, Series, Simulation
from capplan.workload.slo import Slo
from capplan.workload.trace import Trace

__all__ = ["PolicySettings", "check_engine", "oversized", "simulate"]


def oversized(trace: Trace, engine: EngineSettings) -> np.ndarray:
    """Return which requests no replica can ever hold, shape (n,), bool.

    The last token's KV is never written, so prompt + output - 1 tokens must fit.
    """
    tokens = trace.prompt_tokens + trace.output_tokens
    return (tokens - 1 > engine.kv_capacity_tokens) | (tokens > engine.max_model_len)


def simulate(
    trace: Trace,
    tables: LatencyTables,
    engine: EngineSettings,
    replica_count: int,
    *,
    router: str = "jsq",
    scheduler: str = "vllm-v1",
    slo: Slo | None = None,
    seed: int = 0,
    record_iterations: bool = False,
    longest_jump: int = UNBOUNDED_JUMP,
    progress: Progress | None = None,
    stopped: Stopped | None = None,
) -> Simulation:
    """Return what happens to each request of a trace.

    Parameters
    ----------
    trace
        The requests, with arrival times.
    tables
        Iteration time of a replica.
    engine
        Settings of each engine.
    replica_count
        Replicas, all alike.
    router, scheduler
        Names of the policies; ``best-fit:theta=0.5,gamma=0.5`` sets its margin for
        prediction error and the share of the output that counts as context.
    slo
        What a policy that looks at SLOs is to keep: the strictest of the classes.
    seed
        Seeds the random choices of the router.
    record_iterations
        Whether to return every iteration; they are then run one by one.
    longest_jump
        Most decode iterations run at once. The result does not depend on it.
    progress
        Called with the number of requests that have arrived.
    stopped
        Asked whether to stop; requests not finished by then have NaN times.

    Raises
    ------
    InputError
        When the trace has no times, a request fits no replica, or the limits
        contradict each other.
    ProfileError
        When the tables do not reach the limits.
    """
    if trace.arrival_s is None:
        raise InputError(
            f"{trace.source}: no arrival times; give a rate or an arrival process"
        )
    check_engine(engine)
    refuse_oversized(trace, engine)
    span_s = max(float(trace.arrival_s[-1] - trace.arrival_s[0]), 1e-9)
    fleet = Fleet(
        tables,
        engine,
        replica_count,
        router=router,
        scheduler=scheduler,
        settings=policy_settings(router, slo, trace.class_names),
        seed=seed,
        bins=(float(trace.arrival_s[0]), span_s / BINS * 1.02),
        largest_share_tokens=int(trace.prefix_tokens.max()),
        record_iterations=record_iterations,
        longest_jump=longest_jump,
    )
    found = _Columns.empty(len(trace))
    for done in fleet.serve_all(trace, progress, stopped):
        found.put(done)
    return _simulation(trace, found, fleet)


def refuse_oversized(trace: Trace, engine: EngineSettings, first_row: int = 0) -> None:
    """Refuse requests that no replica can ever hold.

    Parameters
    ----------
    trace, engine
        The requests and the engine.
    first_row
        Requests before this trace, when it is a chunk.

    Raises
    ------
    InputError
        When there are some.
    """
    too_large = oversized(trace, engine)
    if too_large.any():
        row = int(np.flatnonzero(too_large)[0])
        raise InputError(
            f"{trace.source}: {int(too_large.sum())} requests fit no replica; the "
            f"first is row {first_row + row + 1} with {trace.prompt_tokens[row]} "
            f"prompt and {trace.output_tokens[row]} output tokens; a replica holds "
            f"{engine.kv_capacity_tokens} and takes {engine.max_model_len}"
        )


def check_engine(engine: EngineSettings) -> None:
    """Refuse limits that vLLM refuses.

    Raises
    ------
    InputError
        When a full batch could not decode within the token budget.
    """
    if engine.max_num_batched_tokens < engine.max_num_seqs:
        raise InputError(
            f"max_num_batched_tokens is {engine.max_num_batched_tokens}; expected "
            f"at least max_num_seqs, {engine.max_num_seqs}"
        )


def policy_settings(
    router: str, slo: Slo | None, class_names: tuple[str, ...] | None = None
) -> PolicySettings:
    """Return the settings of ``NAME`` or ``NAME:theta=0.5,gamma=0.5``.

    Parameters
    ----------
    router
        Name and settings.
    slo
        The strictest limit of the classes is what policies keep.
    class_names
        Classes that there are; None for all that the SLO knows.

    Raises
    ------
    InputError
        When a setting is unknown or out of range, or a class has no SLO.
    """
    settings = PolicySettings()
    if slo is not None:
        slos = list(slo.by_class.values())
        if slo.default is not None:
            slos.append(slo.default)
        if class_names is not None:
            slos = [slo.of_class(name) for name in class_names]
        settings = settings._replace(
            ttft_s=min(one.ttft_s for one in slos),
            tpot_s=min(one.tpot_s for one in slos),
        )
    _, colon, given = router.partition(":")
    for part in given.split(",") if colon else ():
        name, _, text = part.partition("=")
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if name not in ("theta", "gamma") or not 0 <= value <= 1:
            raise InputError(
                f"router {router!r}: {part!r} is not a setting; expected theta or "
                "gamma from 0 to 1, as in best-fit:theta=0.5"
            )
        settings = settings._replace(**{name: value})
    return settings


class _Columns(NamedTuple):
    """What is kept of the finished requests, one row per request of the trace."""

    scheduled_s: np.ndarray
    first_token_s: np.ndarray
    finish_s: np.ndarray
    longest_gap_s: np.ndarray
    replica: np.ndarray
    preemptions: np.ndarray
    cached_tokens: np.ndarray

    @classmethod
    def empty(cls, n: int) -> "_Columns":
        """Return rows of requests that did not finish."""
        return cls(
            scheduled_s=np.full(n, np.nan),
            first_token_s=np.full(n, np.nan),
            finish_s=np.full(n, np.nan),
            longest_gap_s=np.zeros(n),
            replica=np.zeros(n, np.int64),
            preemptions=np.zeros(n, np.int64),
            cached_tokens=np.zeros(n, np.int64),
        )

    def put(self, done: np.ndarray) -> None:
        """Write finished requests to their rows, while they are in the cache."""
        rows = done["row"]
        for name, column in self._asdict().items():
            column[rows] = done[name]


def _simulation(trace: Trace, found: _Columns, fleet: Fleet) -> Simulation:
    assert trace.arrival_s is not None
    times = RequestTimes(
        arrival_s=trace.arrival_s,
        prompt_tokens=trace.prompt_tokens,
        output_tokens=trace.output_tokens,
        **found._asdict(),
    )
    replicas = fleet.state.replicas
    return Simulation(
        times=times,
        series=_series(fleet, times),
        replica_count=len(replicas),
        iteration_count=int(replicas["step"].sum()),
        busy_s=float(fleet.state.bins["busy_s"].sum()),
        completed=int(np.isfinite(found.finish_s).sum()),
        iterations=fleet.iterations() if fleet.log[-1][0].size else None,
    )


def _series(fleet: Fleet, times: RequestTimes) -> Series:
    bins = fleet.state.bins
    first_s, width_s = fleet.state.bin_s
    start_s = first_s + width_s * np.arange(len(bins))
    bin_s = np.full(len(bins), width_s)
    drained_s = float(np.nanmax(times.finish_s, initial=start_s[-1]))
    bin_s[-1] = max(width_s, drained_s - start_s[-1])  # what comes after the arrivals
    replica_s = bin_s * len(fleet.state.replicas)
    busy_s = np.maximum(bins["busy_s"], 1e-300)
    place = np.clip((times.finish_s - first_s) / width_s, 0, len(bins) - 1)
    place = np.nan_to_num(place).astype(np.int64)
    return Series(
        start_s=start_s,
        busy_share=np.minimum(bins["busy_s"] / replica_s, 1.0),
        batch_requests=bins["batch_s"] / busy_s,
        waiting_requests=bins["waiting_s"] / busy_s,
        kv_share=np.minimum(
            bins["kv_block_s"] / (replica_s * (fleet.engine.kv_blocks - 1)), 1.0
        ),
        preemptions=np.bincount(place, times.preemptions, len(bins)),
    )
