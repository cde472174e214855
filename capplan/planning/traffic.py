"""The requests to serve: read, given arrival times, long enough, with a warm-up."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from capplan.deployment import EngineSettings
from capplan.errors import CapplanWarning, HorizonWarning, InputError
from capplan.input_file import has_more_than, read_head
from capplan.planning.configuration import Configuration
from capplan.planning.settings import PlanSettings, SimulateSettings
from capplan.planning.unbatched import unbatched
from capplan.simulator.checks import oversized, refusal, unserved
from capplan.simulator.metrics import requests_needed
from capplan.units import parse_duration_s
from capplan.workload.arrivals import no_times, rescale, with_arrivals
from capplan.workload.catalog import open_workload
from capplan.workload.predictors import with_error, with_predictions
from capplan.workload.readers import plain_csv, read_trace
from capplan.workload.readers.chunks import iterate_trace
from capplan.workload.slo import Slo, base_classes
from capplan.workload.synthesis import extend, resample, with_shared_prefix
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
_REQUESTS_FOR_ALL = 1000
"""Requests that show that all meet their SLO."""
_RESIDENCES = 20
"""Stays of a request that a sample should span, so that drift shows."""
_MOST_FOR_DRIFT = 200_000
"""Requests of a sample at most, where its length is for drift to show."""
_BATCHED = 5.0
"""Stay of a request in a full batch over its stay alone, where no SLO limits it."""


@dataclass(frozen=True, eq=False)
class Traffic:
    """Requests with arrival times: one trace, or a process to draw samples of."""

    base: Trace  # as read
    # of drawn times; None where they are the trace's own, which are then one sample of
    # what the user serves, and all count
    process: str | None
    rate_per_s: float = float("nan")  # of the process [requests/s]
    request_count: int = 0  # of a drawn sample; 0 where the base is taken as it is
    warmup_s: float = 0.0  # arrivals in this first part of a sample do not count [s]
    has_given_warmup: bool = False  # the user's own, the same however long a sample
    seed: int = 0  # of all samples
    _samples: dict[tuple[int, int], Trace] = field(default_factory=dict, repr=False)

    @property
    def trace(self) -> Trace:
        """The first sample."""
        return self.sample(0)

    def counted(self, index: int = 0) -> np.ndarray:
        """Return which requests of a sample count, shape (n,), bool."""
        arrival_s = self.sample(index).arrival_s
        assert arrival_s is not None
        return np.asarray(arrival_s >= arrival_s[0] + self.warmup_s)

    def warmup_of(self, length: int) -> float:
        """Return the warm-up of a sample ``length`` times as long. [s]"""
        return self.warmup_s * (1 if self.has_given_warmup else length)

    @property
    def is_resampled(self) -> bool:
        """Whether there are more samples than one."""
        return self.process is not None and self.request_count > 0

    def sample(self, index: int, length: int = 1) -> Trace:
        """Return a sample, the same for every replica count.

        Lengths are drawn from the base with replacement, arrivals from the process and
        scaled to its rate: a sample that happens to be slower would need less. It has
        ``length`` times ``request_count`` requests.
        """
        if not self.is_resampled:
            return self.base
        key = (index, length)
        if key not in self._samples:
            rng = np.random.default_rng((self.seed, index, length))
            drawn = resample(self.base, length * self.request_count, rng)
            assert self.process is not None
            drawn = _timed(drawn, self.process, self.rate_per_s, rng)
            self._samples[key] = replace(
                drawn, source=self.base.source, notes=self.base.notes
            )
        return self._samples[key]


def read_traffic(settings: PlanSettings, rng: np.random.Generator) -> Traffic:
    """Return the requests that the settings name, as they are."""
    trace = _named(settings)
    process, rate_per_s = None, float("nan")
    if settings.arrivals is not None or trace.arrival_s is None:
        rate_per_s = settings.rate or trace.rate_per_s
        if not np.isfinite(rate_per_s):
            raise InputError(no_times(trace))
        process = settings.arrivals or "poisson"
        trace = _timed(trace, process, rate_per_s, rng)
    elif settings.rate is not None:
        trace = rescale(trace, settings.rate)
    if settings.shared_prefix is not None:
        trace = with_shared_prefix(trace, settings.shared_prefix)
    if trace.predicted_output_tokens is not None:
        if settings.predictor is not None:
            raise InputError(
                f"{trace.source}: has predicted_output_tokens; "
                "expected no --predictor beside them"
            )
        trace = with_error(trace, "the trace")
    elif settings.predictor is not None:
        trace = with_predictions(trace, settings.predictor, None, rng)
    return Traffic(trace, process, rate_per_s, seed=settings.seed)


def at_rate(traffic: Traffic, times: float) -> Traffic:
    """Return requests as read, their arrivals scaled in time to ``times`` the rate."""
    base = traffic.base
    if base.duration_s > 0:
        base = rescale(base, times * base.rate_per_s)
    return replace(
        traffic, base=base, rate_per_s=times * traffic.rate_per_s, _samples={}
    )


def _timed(
    trace: Trace, process: str, rate_per_s: float, rng: np.random.Generator
) -> Trace:
    """Return the trace with drawn arrivals, scaled to their exact rate."""
    timed = with_arrivals(trace, rate_per_s, process, rng)
    return rescale(timed, rate_per_s) if timed.duration_s > 0 else timed


def _named(settings: PlanSettings) -> Trace:
    options = {
        "reader_name": settings.reader,
        "sharegpt_rule": settings.sharegpt_rule,
        "tokenizer": settings.tokenizer,
        "salvage": settings.salvage or None,
        "columns": settings.columns or None,
    }
    given: dict[str, Any] = {k: v for k, v in options.items() if v is not None}
    if settings.trace is not None:
        return read_trace(settings.trace, seed=settings.seed, **given)
    if settings.workload is None:
        raise InputError("no requests; give --trace FILE or --workload NAME")
    return open_workload(settings.workload, seed=settings.seed, **given)


def judged_traffic(
    settings: PlanSettings,
    slo: Slo | None,
    rng: np.random.Generator,
    configurations: Sequence[Configuration],
) -> Traffic:
    """Return the requests that a fleet is judged by, the same for every command.

    Oversized requests are dropped where the settings say so. Drawn arrivals are
    resampled, as many requests as can show the attainment, and leave out a warm-up.
    Without an SLO the requests are taken as they are.
    """
    return judged(read_traffic(settings, rng), settings, slo, rng, configurations)


def judged(
    traffic: Traffic,
    settings: PlanSettings,
    slo: Slo | None,
    rng: np.random.Generator,
    configurations: Sequence[Configuration],
) -> Traffic:
    """Return requests as a fleet is judged by them; see :func:`judged_traffic`."""
    engines = [configuration.engine for configuration in configurations]
    base = without_oversized(traffic.base, engines, drop=settings.drop_oversized)
    traffic = replace(traffic, base=base)
    stay_s = _longest_stay_s(base, slo, configurations)
    if slo is not None:
        slo.columns(base.request_class, base.class_names)
        slo.groups(base.class_names)
        traffic = _long_enough(traffic, slo, rng, stay_s, settings.extend)
    elif base_classes(base.class_names)[0] != base.class_names:
        warnings.warn(
            f"{base.source}: the requests' own limits are not judged without an SLO; "
            "give --slo trace, or with limits for the others --slo ttft=1s",
            CapplanWarning,
            stacklevel=2,
        )
    if settings.warm_up is not None:
        given_s = parse_duration_s(settings.warm_up)
        return replace(traffic, warmup_s=given_s, has_given_warmup=True)
    if traffic.process is None:
        return traffic
    return replace(traffic, warmup_s=_warmup_s(traffic.trace, stay_s))


def without_oversized(
    trace: Trace, engines: list[EngineSettings], *, drop: bool
) -> Trace:
    """Return the trace without the requests that none of the engines serves."""
    if not engines:
        return trace
    no_one = np.logical_and.reduce([unserved(trace, engine) for engine in engines])
    if not no_one.any():
        return trace
    problem = f"{trace.source}: {_why_unserved(trace, engines)}"
    if not drop:
        raise InputError(f"{problem}; drop them with --drop-oversized")
    if no_one.all():
        raise InputError(f"{problem}; none is left")
    warnings.warn(f"{problem}; dropped", CapplanWarning, stacklevel=2)
    return trace.select(np.flatnonzero(~no_one))


def _why_unserved(trace: Trace, engines: list[EngineSettings]) -> str:
    """Return which requests fit no replica, and which their scheduler refuses."""
    too_large = np.logical_and.reduce([oversized(trace, engine) for engine in engines])
    texts = [refusal(trace, engine, engine.scheduler) for engine in engines]
    refused = next(filter(None, texts), "")
    if not too_large.any():
        return refused
    row = int(np.flatnonzero(too_large)[0])
    largest = max(engine.longest_request_tokens for engine in engines)
    longest = max(engine.max_model_len for engine in engines)
    return (
        f"{int(too_large.sum()):,} of {len(trace):,} requests fit no "
        f"replica; the first is row {row + 1} with {trace.prompt_tokens[row]:,} prompt "
        f"and {trace.output_tokens[row]:,} output tokens, where the largest replica "
        f"holds {largest:,} and takes {longest:,}" + (f"; {refused}" if refused else "")
    )


def _long_enough(
    traffic: Traffic,
    slo: Slo,
    rng: np.random.Generator,
    stay_s: float,
    may_extend: bool | None,
) -> Traffic:
    """Return the traffic with as many requests as show whether the SLO is met.

    Drawn arrivals are drawn in samples of that many. A trace with its own times is
    left as it is unless ``may_extend`` is True: then its own gaps are repeated.
    """
    base = traffic.base
    wanted = requests_wanted(base, slo, stay_s)
    if traffic.process is not None and may_extend is not False:
        return replace(traffic, request_count=wanted)
    if len(base) >= wanted:
        return traffic
    short = (
        f"the trace has {len(base):,} requests over {base.duration_s:.0f} s; "
        f"{slo.attainment:.4g} of them within the SLO takes {wanted:,} to judge"
    )
    if not may_extend:
        warnings.warn(
            f"{short}: read the attainment's interval", HorizonWarning, stacklevel=2
        )
        return traffic
    longer = extend(base, wanted, rng)
    warnings.warn(f"{short}; extended by resampling", HorizonWarning, stacklevel=2)
    return replace(traffic, base=replace(longer, source=base.source))


def requests_wanted(trace: Trace, slo: Slo, stay_s: float) -> int:
    """Return how many requests of this traffic show whether the SLO is met.

    Enough that ten miss the SLO at the highest target, and that the arrivals span
    twenty times the longest stay of a request.
    """
    highest = max(group.target for group in slo.groups(trace.class_names))
    for_percentile = _REQUESTS_FOR_ALL if highest >= 1 else requests_needed(highest)
    for_drift = trace.rate_per_s * _RESIDENCES * stay_s
    if not np.isfinite(for_drift):
        return int(for_percentile)
    return int(max(for_percentile, min(np.ceil(for_drift), _MOST_FOR_DRIFT)))


def _warmup_s(trace: Trace, stay_s: float) -> float:
    """Return the time in which a fleet that begins empty has surely filled. [s]

    Three times the longest stay, at most a fifth of the trace. It is fixed before the
    simulation, so that every replica count and the lower bound are about the same
    requests.
    """
    return float(min(3 * stay_s, 0.2 * trace.duration_s))


def _longest_stay_s(
    trace: Trace, slo: Slo | None, configurations: Sequence[Configuration]
) -> float:
    """Return the longest stay that a request of mean length may have. [s]

    The stay that its SLO allows; where that is any, several times the stay alone on a
    replica, as in a full batch. Of the classes the longest.
    """
    alone_s = [
        float(unbatched(trace, configuration.tables, configuration.engine).e2e_s.mean())
        for configuration in configurations
    ]
    batched_s = _BATCHED * float(np.median(alone_s)) if alone_s else 0.0
    if slo is None:
        return batched_s
    classes, of_request = np.unique(trace.request_class, return_inverse=True)
    limits_s = slo.table(tuple(trace.class_names[k] for k in classes))
    ttft_s, tpot_s, tbt_s, e2e_s = limits_s.T
    steps = np.bincount(of_request, trace.output_tokens - 1) / np.bincount(of_request)
    gap_s = np.where(steps > 0, np.minimum(tpot_s, tbt_s), 0.0)
    stay_s = np.minimum(e2e_s, ttft_s + gap_s * steps)
    return float(np.where(np.isfinite(stay_s), stay_s, batched_s).max())


def is_streamed(settings: SimulateSettings) -> bool:
    """Return whether the trace is read in chunks: when set, or for a large CSV."""
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
    if path is None or not path.is_file() or not has_more_than(path, STREAMED_BYTES):
        return False
    return (
        settings.reader in (None, "csv")
        and (settings.columns or plain_csv.sniff(read_head(path, _HEAD_BYTES)))
        and not plain_csv.limit_columns(plain_csv.columns_of(path, settings.columns))
    )


def chunks(settings: SimulateSettings, engine: EngineSettings) -> Iterator[Trace]:
    """Yield the requests, without the oversized ones where they are to be dropped."""
    dropped = 0
    for trace in iterate_trace(str(settings.trace), _CHUNK_REQUESTS, settings.columns):
        if settings.shared_prefix is not None:
            trace = with_shared_prefix(trace, settings.shared_prefix)
        if settings.drop_oversized:
            too_large = unserved(trace, engine)
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


def about_how_many(path: str) -> int | None:
    """Estimate the requests of a file by the length of its first lines.

    None for a compressed file.
    """
    with open(path, "rb") as raw:
        head = raw.read(_HEAD_BYTES)
    lines = head.count(b"\n")
    if head.startswith(b"\x1f\x8b") or not lines:
        return None
    return max(1, int(Path(path).stat().st_size / len(head) * lines))
