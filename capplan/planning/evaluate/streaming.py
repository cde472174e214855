"""Simulate a large CSV in chunks, in memory that does not grow."""

from collections.abc import Callable, Sequence

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import Deployment
from capplan.errors import warn
from capplan.planning.configure.deployments import simulated
from capplan.planning.configure.prefix_caching import with_caching_as_used
from capplan.planning.load.traffic import STREAMED_BYTES, about_how_many, chunks
from capplan.planning.load.worst_windows import FROM_THE_FIRST
from capplan.planning.settings.plan import SimulateSettings
from capplan.simulator.fleet.fleet import Stopped
from capplan.simulator.results.histogram import RELATIVE_ERROR
from capplan.simulator.results.sketches import Sketches
from capplan.simulator.results.table import Finished
from capplan.simulator.results.times import Simulation
from capplan.simulator.simulate import simulate
from capplan.units import format_duration, parse_duration_s
from capplan.workload.readers import requests
from capplan.workload.slo import Slo

RequestProgress = Callable[[int, int | None], None]
"""Called with the requests that have finished, and all there are where known."""


def watching(
    progress: RequestProgress | None, about: int | None, also: Finished | None = None
) -> Finished:
    """Return what tells ``progress`` how many have finished, and hands them on."""
    count = 0

    def watch(done: np.ndarray) -> None:
        nonlocal count
        count += len(done)
        if progress is not None:
            progress(count, about)
        if also is not None:
            also(done)

    return watch


def streamed(
    settings: SimulateSettings,
    configurations: Sequence[Configuration],
    slo: Slo | None,
    progress: RequestProgress | None,
    stopped: Stopped | None,
    on_finished: Finished | None,
) -> tuple[Deployment, Simulation, float]:
    """Return a deployment, its simulation in chunks, and its warm-up. [s]"""
    path = str(settings.trace)
    columns = requests.columns_of(path, settings.columns).names
    if settings.stream is None:
        warn(
            f"{path}: more than {STREAMED_BYTES / 2**20:.0f} MiB, read in chunks: "
            f"percentiles within {100 * RELATIVE_ERROR:.1f} %; --no-stream reads it "
            "whole"
        )
    about = about_how_many(path)
    shares = bool(settings.shared_prefix) or "prefix_tokens" in columns
    of = [with_caching_as_used(each, settings, shares) for each in configurations]
    warmup_s = parse_duration_s(settings.warm_up) if settings.warm_up else 0.0
    deployment = simulated(settings, of, None)
    simulation = simulate(
        chunks(settings, of[-1].engine),
        deployment,
        slo=slo,
        seed=settings.seed,
        stopped=stopped,
        sink=Sketches(slo, warmup_s, watching(progress, about, on_finished)),
    )
    if not simulation.totals.request_count:
        raise KeyboardInterrupt
    if slo is not None and slo.attain_in_s is None:
        lasts_s = simulation.totals.duration_s
        if FROM_THE_FIRST.judged_s(slo, lasts_s) is not None:
            warn(
                f"{path}: read in chunks, so judged over its whole "
                f"{format_duration(lasts_s)}, not in every hour; --no-stream judges "
                "every hour"
            )
    return deployment, simulation, warmup_s
