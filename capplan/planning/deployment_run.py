"""One given deployment, simulated: no search, all that was seen."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from capplan.deployment import EngineSettings
from capplan.errors import CapplanWarning
from capplan.fleet.price import Price
from capplan.planning.configuration import only_configuration
from capplan.planning.interrupted import first_requests
from capplan.planning.settings import SimulateSettings
from capplan.planning.traffic import read_requests
from capplan.simulator.fleet import Stopped
from capplan.simulator.metrics import Attainment, attainment, is_stable, warmup_end_s
from capplan.simulator.simulate import oversized, simulate
from capplan.simulator.times import Simulation
from capplan.workload.slo import Slo, parse_slo
from capplan.workload.trace import Trace

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)
"""Percentiles that a run reports of each latency."""

RequestProgress = Callable[[int, int | None], None]
"""Called with the number of requests that have arrived, and of all where known."""


@dataclass(frozen=True, eq=False)
class DeploymentRun:
    """What one deployment does with the traffic.

    Parameters
    ----------
    gpu, tp, replica_count
        The deployment; ``gpu`` is empty where the cost was given outright.
    engine, profile_note, price
        Engine settings, where the iteration time is from, price of one GPU.
    trace
        The requests served.
    slo
        The objective; None when none was given.
    simulation
        What happened.
    warmup_s
        When the fleet had filled up; requests before do not count. [s]
    stable
        Whether the backlog does not grow.
    attainment
        Of the SLO; None when none was given.
    percentiles
        By metric ("ttft_s", "tpot_s", "e2e_s", "wait_s", "longest_gap_s",
        "normalized_latency_s"): mean, then PERCENTILES. [s]
    warnings
        What to know of it.
    interrupted_of
        Requests of the whole trace, where it was stopped and ``trace`` has only
        the first of them; None when all were served.
    """

    gpu: str
    tp: int
    replica_count: int
    engine: EngineSettings
    profile_note: str
    price: Price | None
    trace: Trace
    slo: Slo | None
    simulation: Simulation
    warmup_s: float
    stable: bool
    attainment: Attainment | None
    percentiles: dict[str, tuple[float, ...]]
    warnings: tuple[str, ...] = ()
    interrupted_of: int | None = None

    @property
    def trace_source(self) -> str:
        """Where the requests come from."""
        return self.trace.source

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes of the trace."""
        return self.trace.class_names

    @property
    def gpu_count(self) -> int:
        """GPUs of all replicas."""
        return self.replica_count * self.tp

    @property
    def usd_per_h(self) -> float | None:
        """Price of all GPUs; None without a price. [$/h]"""
        if self.price is None:
            return None
        return self.gpu_count * self.price.usd_per_gpu_h

    @property
    def output_tokens_per_s(self) -> float:
        """Output tokens of all requests over the time to the last. [tokens/s]"""
        times = self.simulation.times
        span_s = float(np.nanmax(times.finish_s) - times.arrival_s[0])
        return float(times.output_tokens.sum()) / span_s if span_s > 0 else 0.0

    @property
    def goodput_per_s(self) -> float | None:
        """Requests within their SLO over the time of arrivals. [requests/s]"""
        if self.attainment is None or not self.trace.duration_s > 0:
            return None
        return float(self.attainment.attained.sum()) / self.trace.duration_s


def simulate_deployment(
    request: SimulateSettings,
    progress: RequestProgress | None = None,
    stopped: Stopped | None = None,
) -> DeploymentRun:
    """Simulate one deployment with the requests as they are, none resampled.

    Parameters
    ----------
    request
        What is asked.
    progress
        Called with the requests that arrived, and how many there are.
    stopped
        Asked whether to stop; the answer is then that of the first requests.

    Raises
    ------
    InputError
        When something asked for is wrong or missing, or more than one
        configuration is named.
    ProfileError
        When a profile is malformed or of something else.
    KeyboardInterrupt
        When it was stopped before there was an answer.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CapplanWarning)
        run = _run(request, progress, stopped)
    texts = dict.fromkeys(
        str(each.message)
        for each in caught
        if issubclass(each.category, CapplanWarning)
    )
    return replace(run, warnings=tuple(texts))


def _run(
    request: SimulateSettings,
    progress: RequestProgress | None,
    stopped: Stopped | None,
) -> DeploymentRun:
    rng = np.random.default_rng(request.seed)
    trace, _ = read_requests(request, rng)
    slo = parse_slo(list(request.slo), request.attainment) if request.slo else None
    one = only_configuration(request)
    too_large = oversized(trace, one.engine)
    if too_large.any() and request.drop_oversized:
        dropped = int(too_large.sum())
        warnings.warn(
            f"{trace.source}: {dropped:,} requests fit no replica; dropped",
            CapplanWarning,
            stacklevel=2,
        )
        trace = trace.select(np.flatnonzero(~too_large))
    asked = len(trace)
    simulation = simulate(
        trace,
        one.tables,
        one.engine,
        request.replicas,
        router=request.router or "jsq",
        slo=slo,
        seed=request.seed,
        record_iterations=bool(request.record_iterations or request.trace_events),
        progress=None if progress is None else lambda n: progress(n, asked),
        stopped=stopped,
    )
    simulation, trace = first_requests(simulation, trace)
    warmup_s = warmup_end_s(simulation)
    counted = simulation.times.arrival_s >= warmup_s
    return DeploymentRun(
        gpu=one.gpu,
        tp=one.tp,
        replica_count=request.replicas,
        engine=one.engine,
        profile_note=one.note,
        price=one.price,
        trace=trace,
        slo=slo,
        simulation=simulation,
        warmup_s=warmup_s,
        stable=is_stable(simulation, warmup_s),
        attainment=attainment(simulation, trace, slo, warmup_s) if slo else None,
        percentiles={
            name: _summary(getattr(simulation.times, name)[counted])
            for name in (
                "ttft_s",
                "tpot_s",
                "e2e_s",
                "wait_s",
                "longest_gap_s",
                "normalized_latency_s",
            )
        },
        interrupted_of=asked if len(trace) < asked else None,
    )


def _summary(values_s: np.ndarray) -> tuple[float, ...]:
    known = values_s[~np.isnan(values_s)]
    if not known.size:
        return (float("nan"),) * (1 + len(PERCENTILES))
    return (float(known.mean()), *map(float, np.percentile(known, PERCENTILES)))
