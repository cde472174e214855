"""One deployment, simulated and judged: what every command reports of it."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from capplan.deployment import Deployment, EngineSettings
from capplan.errors import CapplanWarning, InputError, collected_warnings
from capplan.fleet.price import Price
from capplan.planning.configuration import Configuration, only_configuration
from capplan.planning.inputs import DEFAULT_ROUTER
from capplan.planning.judgement import Judgement, judge
from capplan.planning.settings import SimulateSettings
from capplan.planning.traffic import Traffic, judged_traffic
from capplan.simulator.checks import oversized
from capplan.simulator.fleet import Stopped
from capplan.simulator.histogram import RELATIVE_ERROR
from capplan.simulator.simulate import finished_part, simulate
from capplan.simulator.stream import Finished, simulate_stream
from capplan.simulator.times import Simulation
from capplan.workload.readers import plain_csv
from capplan.workload.readers.chunks import iterate_trace
from capplan.workload.readers.opening import read_head
from capplan.workload.slo import Slo, parse_slo
from capplan.workload.synthesis import with_shared_prefix
from capplan.workload.trace import Trace

STREAMED_BYTES = 256 * 2**20
"""A plain CSV larger than this is streamed by default."""

_CHUNK_REQUESTS = 200_000
_HEAD_BYTES = 2**20
_NEEDS_ALL = {
    "workload": "a workload is generated whole",
    "rate": "rescaling needs the rate of the whole trace",
    "arrivals": "arrivals are drawn for the whole trace",
    "predictor": "predictions are made for the whole trace",
    "record_iterations": "every iteration would be kept",
    "trace_events": "every iteration would be kept",
}

RequestProgress = Callable[[int, int | None], None]
"""Called with the number of requests that have arrived, and of all where known."""


@dataclass(frozen=True, eq=False)
class Run:
    """One deployment, simulated and judged.

    Parameters
    ----------
    configuration
        GPU type, TP degree, engine settings, iteration time and price.
    replica_count
        Replicas, all alike.
    router
        Router with its settings.
    trace_source, trace_notes
        Source of the requests, and what the reader says of them.
    slo
        The objective; None when none was given.
    simulation
        Its table of requests may be absent.
    judgement
        What counts of it, and what it shows.
    warnings
        Texts for the reader.
    """

    configuration: Configuration
    replica_count: int
    router: str
    trace_source: str
    trace_notes: tuple[str, ...]
    slo: Slo | None
    simulation: Simulation
    judgement: Judgement
    warnings: tuple[str, ...] = ()

    @property
    def deployment(self) -> Deployment:
        """GPU type, TP degree and replicas."""
        return Deployment(
            self.configuration.gpu, self.configuration.tp, self.replica_count
        )

    @property
    def gpu(self) -> str:
        """GPU type; empty where the user gave the iteration time."""
        return self.configuration.gpu

    @property
    def tp(self) -> int:
        """Tensor-parallel degree."""
        return self.configuration.tp

    @property
    def gpu_count(self) -> int:
        """GPUs of all replicas."""
        return self.deployment.gpu_count

    @property
    def engine(self) -> EngineSettings:
        """Settings of each engine."""
        return self.configuration.engine

    @property
    def price(self) -> Price | None:
        """Price of one GPU; None where no source names one."""
        return self.configuration.price

    @property
    def profile_note(self) -> str:
        """One sentence on the source of the iteration time."""
        return self.configuration.note

    @property
    def usd_per_h(self) -> float | None:
        """Price of all GPUs; None without a price. [$/h]"""
        return self.configuration.usd_per_h(self.replica_count)

    @property
    def interrupted_of(self) -> int | None:
        """Requests of the trace, where it was stopped before all had finished."""
        return self.simulation.arrived_count if self.simulation.interrupted else None

    @property
    def output_tokens_per_s(self) -> float:
        """Output tokens of all requests over the time to the last. [tokens/s]"""
        totals = self.simulation.totals
        return totals.output_tokens / totals.makespan_s if totals.makespan_s > 0 else 0

    @property
    def goodput_per_s(self) -> float | None:
        """Counted requests within their SLO per second of arrivals. [requests/s]"""
        span_s = self.simulation.totals.duration_s - self.judgement.warmup_s
        attainment = self.judgement.attainment
        if attainment is None or not span_s > 0:
            return None
        return attainment.request_count / span_s

    def without_requests(self) -> "Run":
        """Return the run without its table of requests."""
        return replace(self, simulation=replace(self.simulation, times=None))


def judged_run(
    traffic: Traffic,
    slo: Slo,
    configuration: Configuration,
    replica_count: int,
    *,
    router: str,
    seed: int,
) -> Run:
    """Simulate one replica count of a configuration and judge it."""
    simulation = simulate(
        traffic.trace,
        configuration.tables,
        configuration.engine,
        replica_count,
        router=router,
        slo=slo,
        seed=seed,
    )
    return Run(
        configuration,
        replica_count,
        router,
        traffic.trace.source,
        traffic.trace.notes,
        slo,
        simulation,
        judge(simulation, slo, traffic.warmup_s, ("ttft_s", "tpot_s", "e2e_s")),
    )


def simulate_deployment(
    settings: SimulateSettings,
    progress: RequestProgress | None = None,
    stopped: Stopped | None = None,
    on_finished: Finished | None = None,
) -> Run:
    """Simulate one deployment and judge it; a large CSV is streamed.

    Parameters
    ----------
    settings
        They name the deployment and the requests.
    progress
        Called with the requests that have arrived, and all there are where known.
    stopped
        Asked whether to stop; the run is then that of the first requests.
    on_finished
        Called with the finished requests of a streamed run, which keeps no table.

    Raises
    ------
    KeyboardInterrupt
        When it was stopped before the first request had finished.
    """
    with collected_warnings() as texts:
        slo = (
            parse_slo(list(settings.slo), settings.attainment) if settings.slo else None
        )
        configuration = only_configuration(settings)
        if is_streamed(settings):
            run = _streamed(
                settings, configuration, slo, progress, stopped, on_finished
            )
        else:
            run = _kept(settings, configuration, slo, progress, stopped)
    return replace(run, warnings=tuple(texts))


def _kept(
    settings: SimulateSettings,
    configuration: Configuration,
    slo: Slo | None,
    progress: RequestProgress | None,
    stopped: Stopped | None,
) -> Run:
    rng = np.random.default_rng(settings.seed)
    traffic = judged_traffic(settings, slo, rng, [configuration.engine])
    router = settings.router or DEFAULT_ROUTER
    request_count = len(traffic.trace)
    simulation = simulate(
        traffic.trace,
        configuration.tables,
        configuration.engine,
        settings.replicas,
        router=router,
        slo=slo,
        seed=settings.seed,
        record_iterations=bool(settings.record_iterations or settings.trace_events),
        progress=None if progress is None else lambda n: progress(n, request_count),
        stopped=stopped,
    )
    simulation = finished_part(simulation)
    return Run(
        configuration,
        settings.replicas,
        router,
        traffic.trace.source,
        traffic.trace.notes,
        slo,
        simulation,
        judge(simulation, slo, traffic.warmup_s),
    )


def is_streamed(settings: SimulateSettings) -> bool:
    """Return whether the trace is read in chunks: when set, or for a large CSV.

    Raises
    ------
    InputError
        When streaming is set beside a setting that needs the whole trace.
    """
    if settings.stream is False:
        return False
    needs = {name: why for name, why in _NEEDS_ALL.items() if getattr(settings, name)}
    if settings.extend:
        needs["extend"] = "resampling needs the whole trace"
    for name, reason in needs.items():
        if settings.stream:
            dashed = name.replace("_", "-")
            raise InputError(f"--stream does not go with --{dashed}: {reason}")
        return False
    if settings.stream:
        if settings.trace is None:
            raise InputError("--stream needs --trace FILE, a plain CSV")
        return True
    path = None if settings.trace is None else Path(settings.trace)
    if path is None or not path.is_file() or path.stat().st_size <= STREAMED_BYTES:
        return False
    return settings.reader in (None, "csv") and plain_csv.sniff(
        read_head(path, _HEAD_BYTES)
    )


def _streamed(
    settings: SimulateSettings,
    configuration: Configuration,
    slo: Slo | None,
    progress: RequestProgress | None,
    stopped: Stopped | None,
    on_finished: Finished | None,
) -> Run:
    path = str(settings.trace)
    plain_csv.columns_of(path)
    if settings.stream is None:
        warnings.warn(
            f"{path}: {Path(path).stat().st_size / 2**20:,.0f} MiB, read in chunks: "
            f"percentiles within {RELATIVE_ERROR:.1%}; --no-stream reads it whole",
            CapplanWarning,
            stacklevel=2,
        )
    about = _about_how_many(path)
    router = settings.router or DEFAULT_ROUTER
    simulation = simulate_stream(
        _chunks(settings, configuration.engine),
        configuration.tables,
        configuration.engine,
        settings.replicas,
        router=router,
        slo=slo,
        seed=settings.seed,
        progress=None if progress is None else lambda n: progress(n, about),
        stopped=stopped,
        on_finished=on_finished,
    )
    if not simulation.totals.request_count:
        raise KeyboardInterrupt
    return Run(
        configuration,
        settings.replicas,
        router,
        path,
        (),
        slo,
        simulation,
        judge(simulation, slo),
    )


def _chunks(settings: SimulateSettings, engine: EngineSettings) -> Iterator[Trace]:
    """Yield the requests, without the oversized ones where they are to be dropped."""
    dropped = 0
    for trace in iterate_trace(str(settings.trace), _CHUNK_REQUESTS):
        if settings.shared_prefix is not None:
            trace = with_shared_prefix(trace, settings.shared_prefix)
        if settings.drop_oversized:
            too_large = oversized(trace, engine)
            dropped += int(too_large.sum())
            if too_large.all():
                continue
            trace = trace.select(np.flatnonzero(~too_large))
        yield trace
    if dropped:
        warnings.warn(
            f"{settings.trace}: {dropped:,} requests fit no replica; dropped",
            CapplanWarning,
            stacklevel=2,
        )


def _about_how_many(path: str) -> int | None:
    """Estimate the requests of a file by the length of its first lines.

    None for a compressed file.
    """
    with open(path, "rb") as raw:
        head = raw.read(_HEAD_BYTES)
    lines = head.count(b"\n")
    if head.startswith(b"\x1f\x8b") or not lines:
        return None
    return max(1, int(Path(path).stat().st_size / len(head) * lines))
