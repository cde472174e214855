"""One given deployment, simulated with a trace that is read as it is served."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from capplan.deployment import EngineSettings
from capplan.errors import CapplanWarning, InputError
from capplan.fleet.price import Price
from capplan.planning.configuration import only_configuration
from capplan.planning.deployment_run import PERCENTILES, RequestProgress
from capplan.planning.settings import SimulateSettings
from capplan.simulator.fleet import Stopped
from capplan.simulator.histogram import RELATIVE_ERROR
from capplan.simulator.simulate import oversized
from capplan.simulator.stream import Finished, simulate_stream
from capplan.simulator.stream_summary import StreamAttainment, StreamSummary
from capplan.workload.readers import plain_csv
from capplan.workload.readers.chunks import iterate_trace
from capplan.workload.readers.opening import read_head
from capplan.workload.slo import Slo, parse_slo
from capplan.workload.synthesis import with_shared_prefix
from capplan.workload.trace import Trace

STREAMED_BYTES = 256 * 2**20
"""A plain CSV larger than this is streamed without being told."""

_CHUNK_REQUESTS = 200_000
_HEAD_BYTES = 2**20
_NEEDS_ALL = {
    "workload": "a workload is generated whole",
    "rate": "rescaling needs the rate of the whole trace",
    "arrivals": "arrivals are drawn for the whole trace",
    "record_iterations": "every iteration would be kept",
    "trace_events": "every iteration would be kept",
}


@dataclass(frozen=True, eq=False)
class StreamRun:
    """What one deployment does with traffic that is not kept.

    Parameters
    ----------
    gpu, tp, replica_count
        The deployment; ``gpu`` is empty where the cost was given outright.
    engine, profile_note, price
        Engine settings, where the iteration time is from, price of one GPU.
    trace_source
        Where the requests come from.
    slo
        The objective; None when none was given.
    summary
        What happened.
    warnings
        What to know of it.
    """

    gpu: str
    tp: int
    replica_count: int
    engine: EngineSettings
    profile_note: str
    price: Price | None
    trace_source: str
    slo: Slo | None
    summary: StreamSummary
    warnings: tuple[str, ...] = ()

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes of the trace."""
        return self.summary.class_names

    @property
    def interrupted_of(self) -> int | None:
        """Requests that had arrived when it was stopped; None when all were served."""
        return self.summary.arrived_count if self.summary.interrupted else None

    @property
    def stable(self) -> bool:
        """Whether the backlog does not grow."""
        return self.summary.stable

    @property
    def warmup_s(self) -> float:
        """When the fleet had filled up; requests before do not count. [s]"""
        return self.summary.warmup_s

    @property
    def attainment(self) -> StreamAttainment | None:
        """Of the SLO; None when none was given."""
        return self.summary.attainment

    @property
    def percentiles(self) -> dict[str, tuple[float, ...]]:
        """By metric: mean, then PERCENTILES. [s]"""
        levels = np.array(PERCENTILES) / 100
        return {
            name: (one.mean_s, *one.quantiles_s(levels).tolist())
            for name, one in self.summary.histograms.items()
        }

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
        span_s = self.summary.makespan_s
        return self.summary.output_tokens / span_s if span_s > 0 else 0.0

    @property
    def goodput_per_s(self) -> float | None:
        """Requests within their SLO over the time of arrivals. [requests/s]"""
        if self.attainment is None or not self.summary.duration_s > 0:
            return None
        return self.attainment.attained_count / self.summary.duration_s


def is_streamed(request: SimulateSettings) -> bool:
    """Return whether the trace is to be read as it is served.

    It is when asked, and for a large plain CSV unless something asked for needs
    all of it.

    Raises
    ------
    InputError
        When it is asked beside something that needs the whole trace.
    """
    if request.stream is False:
        return False
    for name, reason in _NEEDS_ALL.items():
        if getattr(request, name) is not None:
            if request.stream:
                dashed = name.replace("_", "-")
                raise InputError(f"--stream does not go with --{dashed}: {reason}")
            return False
    if request.stream:
        if request.trace is None:
            raise InputError("--stream needs --trace FILE, a plain CSV")
        return True
    path = None if request.trace is None else Path(request.trace)
    if path is None or not path.is_file() or path.stat().st_size <= STREAMED_BYTES:
        return False
    return request.reader in (None, "csv") and plain_csv.sniff(
        read_head(path, _HEAD_BYTES)
    )


def simulate_streamed(
    request: SimulateSettings,
    progress: RequestProgress | None = None,
    stopped: Stopped | None = None,
    on_finished: Finished | None = None,
) -> StreamRun:
    """Simulate one deployment with a trace of any size.

    Parameters
    ----------
    request
        What is asked; the trace is a plain CSV in order of arrival.
    progress
        Called with the requests that arrived, and about how many there are.
    stopped
        Asked whether to stop with what there is.
    on_finished
        Called with requests that have finished.

    Raises
    ------
    InputError
        When something asked for is wrong or missing, or the trace is not in order.
    ProfileError
        When a profile is malformed or of something else.
    KeyboardInterrupt
        When it was stopped before there was an answer.
    """
    assert request.trace is not None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CapplanWarning)
        run = _run(request, progress, stopped, on_finished)
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
    on_finished: Finished | None,
) -> StreamRun:
    path = str(request.trace)
    slo = parse_slo(list(request.slo), request.attainment) if request.slo else None
    one = only_configuration(request)
    plain_csv.columns_of(path)
    if request.stream is None:
        warnings.warn(
            f"{path}: {Path(path).stat().st_size / 2**20:,.0f} MiB, read as it is "
            f"served: percentiles within {RELATIVE_ERROR:.1%}; --no-stream reads it "
            "whole",
            CapplanWarning,
            stacklevel=2,
        )
    about = _about_how_many(path)
    summary = simulate_stream(
        _chunks(request, one.engine),
        one.tables,
        one.engine,
        request.replicas,
        router=request.router or "jsq",
        slo=slo,
        seed=request.seed,
        progress=None if progress is None else lambda n: progress(n, about),
        stopped=stopped,
        on_finished=on_finished,
    )
    if not summary.request_count:
        raise KeyboardInterrupt
    return StreamRun(
        gpu=one.gpu,
        tp=one.tp,
        replica_count=request.replicas,
        engine=one.engine,
        profile_note=one.note,
        price=one.price,
        trace_source=path,
        slo=slo,
        summary=summary,
    )


def _chunks(request: SimulateSettings, engine: EngineSettings) -> Iterator[Trace]:
    """Yield the requests, without those that fit no replica where that is asked."""
    dropped = 0
    for trace in iterate_trace(str(request.trace), _CHUNK_REQUESTS):
        if request.shared_prefix is not None:
            trace = with_shared_prefix(trace, request.shared_prefix)
        if request.drop_oversized:
            too_large = oversized(trace, engine)
            dropped += int(too_large.sum())
            if too_large.all():
                continue
            trace = trace.select(np.flatnonzero(~too_large))
        yield trace
    if dropped:
        warnings.warn(
            f"{request.trace}: {dropped:,} requests fit no replica; dropped",
            CapplanWarning,
            stacklevel=2,
        )


def _about_how_many(path: str) -> int | None:
    """Return about how many requests a file has, by the length of its first lines.

    None for a compressed file.
    """
    with open(path, "rb") as raw:
        head = raw.read(_HEAD_BYTES)
    lines = head.count(b"\n")
    if head.startswith(b"\x1f\x8b") or not lines:
        return None
    return max(1, int(Path(path).stat().st_size / len(head) * lines))
