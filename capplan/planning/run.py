"""One deployment, simulated and judged: what every command reports of it."""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from capplan.deployment import Deployment, EngineSettings
from capplan.errors import CapplanWarning, collected_warnings
from capplan.fleet.price import Price
from capplan.planning.configuration import (
    Configuration,
    only_configuration,
)
from capplan.planning.executors import side_by_side
from capplan.planning.inputs import DEFAULT_ROUTER
from capplan.planning.judgement import (
    Judgement,
    is_drifting,
    is_hopeless,
    judge,
    largest_scatter,
    verdict,
)
from capplan.planning.launch import Launch, launch
from capplan.planning.predictions import predictions_matter
from capplan.planning.prefix_caching import with_caching_as_used
from capplan.planning.settings import SimulateSettings
from capplan.planning.traffic import (
    STREAMED_BYTES,
    Traffic,
    about_how_many,
    chunks,
    is_streamed,
    judged_traffic,
)
from capplan.simulator.fleet import Stopped
from capplan.simulator.histogram import RELATIVE_ERROR
from capplan.simulator.sample import Sample, sample_of
from capplan.simulator.simulate import finished_part, simulate
from capplan.simulator.stream import Finished, simulate_stream
from capplan.simulator.times import METRICS, Simulation
from capplan.units import parse_duration_s
from capplan.workload.readers import plain_csv
from capplan.workload.slo import Slo
from capplan.workload.trace import Trace

_FEWEST_SAMPLES = 3
_ENOUGH_SAMPLES = 8
MOST_SAMPLES = 200
BUDGET_REQUESTS = 200_000
"""Requests simulated for one replica count of several configurations."""
_LONGEST = 8
"""Times that a sample is made longer at most, because it drifts."""
_LONGER = 4
"""Times that a sample is made longer where its misses scatter."""
_SCATTER = 0.5
"""Standard deviation of a sample's misses, over their mean, of one long enough."""
_MOST_REQUESTS = 1_000_000
"""Requests at most of the samples made longer for it."""

RequestProgress = Callable[[int, int | None], None]
"""Called with the number of requests that have arrived, and of all where known."""


class Interrupted(Exception):
    """A simulation was stopped before anything was known."""


@dataclass(frozen=True, eq=False)
class Run:
    """One deployment, simulated and judged."""

    configuration: Configuration
    replica_count: int  # all alike
    router: str  # with its settings
    trace_source: str
    trace_notes: tuple[str, ...]  # what the reader says of the requests
    slo: Slo | None  # None when none was given
    simulation: Simulation  # its table of requests may be absent
    judgement: Judgement  # what counts of it, and what it shows
    warnings: tuple[str, ...] = ()  # for the reader
    launch: Launch | None = None  # how to start a replica

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
    def span_output_tokens_per_s(self) -> float | None:
        """Output tokens from the first arrival to the last, over that time. [tokens/s]

        None where requests were not kept, or arrive at one moment.
        """
        times, span_s = self.simulation.times, self.simulation.totals.duration_s
        if times is None or not span_s > 0:
            return None
        return times.output_tokens_by(float(times.arrival_s[-1])) / span_s

    @property
    def completed_per_s(self) -> float:
        """Rate of finished requests: that of arrivals, unless the queue grows.

        [requests/s]
        """
        totals = self.simulation.totals
        if self.judgement.stable or not totals.makespan_s > 0:
            return totals.rate_per_s
        return min(totals.rate_per_s, totals.request_count / totals.makespan_s)

    @property
    def goodput_per_s(self) -> float | None:
        """Rate of requests that meet their SLO. [requests/s]"""
        attainment = self.judgement.attainment
        if attainment is None or not self.completed_per_s > 0:
            return None
        return attainment.share * self.completed_per_s

    def without_requests(self) -> "Run":
        """Return the run without its table of requests."""
        return replace(self, simulation=replace(self.simulation, times=None))


def judged_run(
    traffic: Traffic,
    slo: Slo | None,
    configuration: Configuration,
    replica_count: int,
    *,
    router: str,
    seed: int,
    metrics: tuple[str, ...] = METRICS,
    first: Simulation | None = None,
    budget_requests: int = 5 * BUDGET_REQUESTS,
    most_samples: int = MOST_SAMPLES,
    stopped: Stopped | None = None,
) -> Run:
    """Simulate one replica count of a configuration and judge it.

    Of drawn arrivals, independent samples are added until the interval of the
    attainment is on one side of the target, or a stated budget of requests is spent;
    longer ones are taken where their misses scatter, or where the attainment still
    falls from their first half to their second; none where the first attains less than
    half of the target. The samples are the same for every
    replica count. ``first`` is the first sample where it was simulated already; after
    ``budget_requests`` simulated requests the count is too close to call; with
    ``most_samples`` samples it is judged as it is. When ``stopped`` says so, the
    samples simulated by then are judged; before there is one, Interrupted is raised.
    """

    def simulated(index: int, length: int) -> Simulation:
        return simulate(
            traffic.sample(index, length),
            configuration.tables,
            configuration.engine,
            replica_count,
            router=router,
            slo=slo,
            seed=seed + index,
            stopped=stopped,
        )

    def sampled(index: int, length: int) -> Sample:
        simulation = simulated(index, length)
        return sample_of(simulation, slo, traffic.warmup_of(length), metrics)

    if first is None:
        first = simulated(0, 1)
        if first.interrupted:
            raise Interrupted
    length, spent = 1, traffic.request_count
    samples = [sample_of(first, slo, traffic.warmup_s, metrics)]
    hopeless = slo is not None and is_hopeless(samples[0], slo, first.class_names)
    while slo is not None and traffic.is_resampled and not hopeless:
        if len(samples) >= most_samples:
            break
        kept, longer = samples, length
        if len(samples) >= _FEWEST_SAMPLES:
            met = verdict(samples, slo, first.class_names)
            drifting = length < _LONGEST and is_drifting(samples, slo.attainment)
            if met is False or (met and not drifting):
                break
            if drifting or (length < _LONGER and _too_short(samples, traffic)):
                kept, longer = [], 2 * length if drifting else _LONGER
            elif len(samples) >= _ENOUGH_SAMPLES and (
                spent >= budget_requests or len(samples) >= MOST_SAMPLES
            ):
                break
        # The next look does not depend on the budget: a decided count is judged by
        # the same samples whatever the budget was.
        more = range(len(kept), _more(len(kept), longer))
        spent += len(more) * longer * traffic.request_count
        drawn = side_by_side(partial(sampled, length=longer), more)
        if stopped is not None and stopped():
            break
        samples, length = kept + drawn, longer
    return Run(
        configuration,
        replica_count,
        router,
        traffic.base.source,
        traffic.base.notes,
        slo,
        first,
        judge(samples, slo, first.class_names, traffic.warmup_of(length), length),
    )


def _more(samples: int, length: int) -> int:
    """Return how many samples come after some: half more, so that few looks decide."""
    fewest = _FEWEST_SAMPLES if length == 1 else _ENOUGH_SAMPLES
    return max(fewest, math.ceil(1.6 * samples))


def _too_short(samples: Sequence[Sample], traffic: Traffic) -> bool:
    """Return whether longer samples tell more than further ones.

    Where few moments decide how many requests of a sample miss, that number differs
    much from one to the next, is skewed, and is smaller than in the long run, since a
    sample begins with an empty fleet.
    """
    request_count = _LONGER * _ENOUGH_SAMPLES * traffic.request_count
    return (
        len(samples) > _FEWEST_SAMPLES
        and request_count <= _MOST_REQUESTS
        and largest_scatter(samples) > _SCATTER
    )


def simulate_deployment(
    settings: SimulateSettings,
    progress: RequestProgress | None = None,
    stopped: Stopped | None = None,
    on_finished: Finished | None = None,
) -> Run:
    """Simulate one deployment and judge it; a large CSV is streamed.

    ``progress`` gets the requests that have arrived, and all there are where known.
    When ``stopped`` says so, the run is that of the first requests; before any has
    finished, KeyboardInterrupt is raised. ``on_finished`` gets the requests of a
    streamed run, which keeps no table.
    """
    with collected_warnings() as texts:
        slo = settings.objective()
        configuration = only_configuration(settings)
        if is_streamed(settings):
            run = _streamed(
                settings, configuration, slo, progress, stopped, on_finished
            )
        else:
            run = _kept(settings, configuration, slo, progress, stopped)
    started = launch(run.configuration, settings)
    return replace(run, warnings=tuple(texts), launch=started)


def _kept(
    settings: SimulateSettings,
    configuration: Configuration,
    slo: Slo | None,
    progress: RequestProgress | None,
    stopped: Stopped | None,
) -> Run:
    rng = np.random.default_rng(settings.seed)
    traffic = judged_traffic(settings, slo, rng, [configuration])
    shares = bool(traffic.base.prefix_tokens.any())
    configuration = with_caching_as_used(configuration, settings, shares)
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
    if not simulation.interrupted:
        _warn_of_idle_predictions(
            traffic.trace, configuration, router, slo, settings, simulation, stopped
        )
    if simulation.interrupted:  # then the first sample alone is judged
        simulation = finished_part(simulation)
        traffic = replace(traffic, base=traffic.trace, request_count=0)
    return judged_run(
        traffic,
        slo,
        configuration,
        settings.replicas,
        router=router,
        seed=settings.seed,
        first=simulation,
        stopped=stopped,
    )


def _warn_of_idle_predictions(
    trace: Trace,
    configuration: Configuration,
    router: str,
    slo: Slo | None,
    settings: SimulateSettings,
    simulation: Simulation,
    stopped: Stopped | None,
) -> None:
    matter = predictions_matter(
        trace,
        configuration,
        settings.replicas,
        router,
        slo,
        settings.seed,
        stopped,
        simulation,
    )
    if matter is False:
        warnings.warn(
            "the predicted answer lengths change nothing: with true ones every request "
            f"finishes at the same time (scheduler {configuration.engine.scheduler}, "
            f"router {router})",
            CapplanWarning,
            stacklevel=2,
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
    columns = plain_csv.columns_of(path, settings.columns).names
    if settings.stream is None:
        warnings.warn(
            f"{path}: more than {STREAMED_BYTES / 2**20:.0f} MiB, read in chunks: "
            f"percentiles within {RELATIVE_ERROR:.1%}; --no-stream reads it whole",
            CapplanWarning,
            stacklevel=2,
        )
    about = about_how_many(path)
    shares = bool(settings.shared_prefix) or "prefix_tokens" in columns
    configuration = with_caching_as_used(configuration, settings, shares)
    warmup_s = parse_duration_s(settings.warm_up) if settings.warm_up else 0.0
    router = settings.router or DEFAULT_ROUTER
    simulation = simulate_stream(
        chunks(settings, configuration.engine),
        configuration.tables,
        configuration.engine,
        settings.replicas,
        router=router,
        slo=slo,
        seed=settings.seed,
        progress=None if progress is None else lambda n: progress(n, about),
        stopped=stopped,
        on_finished=on_finished,
        warmup_s=warmup_s,
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
        judge([sample_of(simulation, slo)], slo, simulation.class_names, warmup_s),
    )
