"""What a replica of each kind sustains of requests of each size."""

from dataclasses import replace
from functools import cache, partial

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.deployment.split import SizeBand
from capplan.errors import InputError, collected_warnings
from capplan.planning.configure.deployments import one_pool
from capplan.planning.count_ladder import fewest_that
from capplan.planning.evaluate.executors import Interrupted, side_by_side
from capplan.planning.evaluate.inputs import PlanInputs, Progress
from capplan.planning.evaluate.replica_load import replica_load
from capplan.planning.evaluate.run import judged_run
from capplan.planning.evaluate.saturation import saturation
from capplan.planning.load.load import Load
from capplan.planning.mix.pairs import Served
from capplan.planning.size.candidates import cannot_serve

_FEWER = 12
"""Replicas below and above those that meet the SLO alone that are looked at."""
_HOPELESS = 4
"""Times the replicas that a full load takes from which the SLO is out of reach."""
_LITTLE = 0.1
"""Part of what may miss that is little enough."""
LEAST_REQUESTS = 4_000
"""Requests by which a rate is judged: 40 may miss a target of 99 %."""


def capacities(
    inputs: PlanInputs,
    bands: tuple[SizeBand, ...],
    kinds: list[Configuration],
    replica_count: int,
    progress: Progress,
) -> np.ndarray:
    """Return the highest rate of each band on a replica of each kind.

    Shape (bands, kinds), 0 where a kind does not serve the band within its SLO; each
    by bisection on the rate of a Poisson process, simulated on ``replica_count``
    replicas. [requests/s]
    """
    found = np.zeros((len(bands), len(kinds)))
    parts = [band.holds(inputs.load.base) for band in bands]
    for column, kind in enumerate(kinds):
        progress(f"measuring what a replica of {kind} holds", column / len(kinds))
        work = partial(_capacity, inputs, kind, replica_count)
        with collected_warnings():  # not in threads: warnings are of the whole process
            found[:, column] = side_by_side(work, parts)
    return found


def _capacity(
    inputs: PlanInputs, kind: Configuration, replica_count: int, rows: np.ndarray
) -> float:
    """Return the highest rate of some requests on a replica of a kind. [requests/s]

    ``rows`` says which requests of the trace they are drawn from, shape (n,), bool.
    """
    if inputs.is_stopped():
        raise Interrupted
    part = inputs.load.base.select(rows)
    alone = replace(inputs, load=Load(part, None))
    if cannot_serve(alone, kind) is not None:
        return 0.0
    # The requests have their predicted lengths already.
    settings = inputs.settings.model_copy(update={"predictor": None})
    deployment = one_pool(inputs.settings, kind, replica_count)
    try:
        sustained = replica_load(
            settings,
            part,
            inputs.slo,
            deployment,
            inputs.stopped,
            least_requests=LEAST_REQUESTS,
        )
    except InputError:  # a policy that refuses these requests does not serve them
        return 0.0
    return 0.0 if sustained is None else sustained.rate_per_s


def served(
    inputs: PlanInputs, kind: Configuration, rows: np.ndarray, most: int
) -> list[Served]:
    """Return what replicas of a kind do with some of the requests, fewest first.

    As they arrive, judged by one sample: from the fewest of which others could make up
    for what they miss, to those that leave others nearly all that may miss. Nothing
    where ``most`` do not meet the SLO themselves.
    """
    load, share = inputs.load, float(rows.mean())
    part = replace(load, base=load.base.select(rows), _samples={}, saturations={})
    if load.process is not None:
        count = max(int(share * load.request_count), LEAST_REQUESTS)
        part = replace(
            part, rate_per_s=share * load.rate_per_s, request_count=count, warmup_s=0.0
        )
    pool = _Pool(inputs, part, kind, rows)
    with collected_warnings():
        if cannot_serve(replace(inputs, load=part), kind) is not None:
            return []
        found = saturation(part, kind, inputs.slo)
        rate_per_s, low = part.trace.rate_per_s, 0
        if found is not None and found.binds and np.isfinite(rate_per_s):
            low = min(int(0.9 * rate_per_s / found.rate_per_s), most)
            most = min(most, _HOPELESS * (low + _FEWER))
        high = fewest_that(
            lambda count: pool.at(count)[0], max(1, low), most, 1.25, low
        )
        if high is None:
            return []
        rows_found = [Served(high, pool.at(high)[1])]
        for fewer in range(high - 1, max(0, high - 1 - _FEWER), -1):
            missed = pool.at(fewer)[1]
            if not pool.may(missed):
                break
            rows_found.insert(0, Served(fewer, missed))
        for more in range(high + 1, min(high + _FEWER, most) + 1):
            if pool.may(rows_found[-1].missed, _LITTLE):
                break
            rows_found.append(Served(more, pool.at(more)[1]))
    return rows_found


class _Pool:
    """Replicas of a kind with a part of the requests, at any count."""

    def __init__(
        self, inputs: PlanInputs, part: Load, kind: Configuration, rows: np.ndarray
    ) -> None:
        self._inputs, self._part, self._kind = inputs, part, kind
        base = inputs.load.base
        self._groups = inputs.slo.groups(base.class_names)
        self._weights = [
            float(rows[np.isin(base.request_class, group.indices)].mean())
            for group in self._groups
        ]
        self.at = cache(self._at)

    def may(self, missed: tuple[float, ...], part: float = 1.0) -> bool:
        """Return whether no more is missed than a part of what may miss."""
        pairs = zip(missed, self._groups, strict=True)
        return all(share <= part * (1 - group.target) + 1e-12 for share, group in pairs)

    def _at(self, count: int) -> tuple[bool, tuple[float, ...]]:
        """Return whether the SLO is met, and the share of all requests that miss.

        Of each group; all of them where the queue grows.
        """
        inputs = self._inputs
        run = judged_run(
            self._part,
            inputs.slo,
            one_pool(inputs.settings, self._kind, count),
            inputs.judging(metrics=(), first_only=True),
        )
        judged, times = run.judgement, run.simulation.table
        if not judged.stable or judged.steadiness.utilisation >= 1:
            return False, (1.0,) * len(self._groups)
        names = run.simulation.class_names
        limits_s = inputs.slo.columns(times.request_class, names)
        met = np.logical_and.reduce(times.met(limits_s))
        missed = []
        for group, weight in zip(self._groups, self._weights, strict=True):
            of_group = met[np.isin(times.request_class, group.indices)]
            missed.append(weight * float((~of_group).mean()) if len(of_group) else 0.0)
        return judged.seems_held, tuple(missed)
