"""A judgement in windows of time, in each of which the target is to be attained."""

from dataclasses import replace

import numpy as np

from capplan.planning.evaluate.judgement import Judgement
from capplan.planning.load.load import Load
from capplan.planning.load.worst_windows import FROM_THE_FIRST, InWindows, in_windows
from capplan.simulator.results.times import Simulation
from capplan.workload.slo import Slo, base_classes


def with_windows(
    judgement: Judgement, simulation: Simulation, slo: Slo, load: Load
) -> Judgement:
    """Return a judgement of one sample in windows of its time.

    The SLO is missed where a window is below the target that is judged.
    """
    times, names = simulation.table, simulation.class_names
    met = times.met(slo.columns(times.request_class, names))
    found = windows_of(
        load,
        slo,
        times.arrival_s,
        times.request_class,
        np.logical_and.reduce(met),
        warmup_s=judgement.warmup_s,
    )
    missing = {*judgement.missing, *found.missing}
    return replace(
        judgement,
        in_windows=found,
        meets=False if found.missing else judgement.meets,
        missing=tuple(name for name in base_classes(names)[0] if name in missing),
    )


def windows_of(
    load: Load,
    slo: Slo,
    arrival_s: np.ndarray,
    request_class: np.ndarray,
    attained: np.ndarray,
    *,
    warmup_s: float = 0.0,
) -> InWindows:
    """Return what windows show of requests of a load; see :func:`in_windows`."""
    clock = load.clock
    return in_windows(
        arrival_s,
        request_class,
        attained,
        slo,
        load.base.class_names,
        warmup_s,
        None if clock is None else clock.judged_s(slo, load.base.duration_s),
        clock or FROM_THE_FIRST,
    )
