"""What more samples decide of a candidate that was found with few."""

import math
from collections.abc import Sequence
from dataclasses import replace

from capplan.deployment.pools import Counts, Deployment, one_fewer
from capplan.errors import HostFullError
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.executors import Interrupted
from capplan.planning.evaluate.inputs import PlanInputs
from capplan.planning.evaluate.probe import Probe
from capplan.planning.evaluate.run import Run, run_of
from capplan.planning.size.counts import BAND_ABOVE, Price, attained
from capplan.planning.size.fewest_replicas import binding_limit
from capplan.planning.size.prospects import price_of_pools


def insisted(
    inputs: PlanInputs, candidate: Candidate, of: Deployment | None = None
) -> Candidate:
    """Return a candidate with what more samples decide of it.

    ``of`` is its deployment with any counts, where it has no run that says it.
    Each count of the search got fewer samples. Those of its own counts are added where
    more were wanted, those of one replica fewer, and of two pools those of cheaper
    counts that are too close to call.
    """
    run, is_one = candidate.run, not candidate.pools
    if run is not None and (run.judgement.no_miss or _misses_above(candidate)):
        return candidate
    deployment = of or (None if run is None else run.deployment)
    assert deployment is not None
    runs: dict[Counts, Run] = {}
    probes = {probe.counts: probe for probe in candidate.probes}

    def price_of(counts: Counts) -> Price:
        return price_of_pools(*deployment.with_replicas(*counts).pools)

    def met(counts: Counts) -> bool:
        try:
            fleet = deployment.with_replicas(*counts)
            runs[counts] = run_of(inputs, fleet, thorough=True)
        except HostFullError:
            return False
        return runs[counts].judgement.meets is True

    def is_open(counts: Counts) -> bool:
        """Return whether more samples may decide; of what does not settle one is."""
        probe = probes.get(counts)
        if probe is None or counts in runs:
            return counts not in runs and not candidate.coarse
        return probe.meets is None and (probe.sample_count > 1 or not is_one)

    counts = None if run is None else run.deployment.counts
    decided = run is not None and run.judgement.meets is True
    try:
        if counts is not None and run is not None and run.judgement.spent:
            decided = met(counts)
        while decided or counts is None:
            close = () if is_one else candidate.close
            tried = sorted({*close, *one_fewer(counts or ())}, key=price_of)
            if counts is not None:
                price = price_of(counts)
                tried = [each for each in tried if price_of(each) < price]
            found = next((each for each in tried if is_open(each) and met(each)), None)
            if found is None:
                break
            counts, decided = found, True
    except Interrupted:
        return candidate
    probes |= {each: Probe.of(more) for each, more in runs.items()}
    ordered = sorted(probes, key=lambda each: (price_of(each), each))
    candidate = replace(candidate, probes=tuple(probes[each] for each in ordered))
    if counts is None:
        return candidate
    price, undecided = price_of(counts), [e for e in ordered if probes[e].meets is None]
    close = tuple(each for each in undecided if price_of(each) < price)
    if counts in runs:
        candidate = with_run(candidate, runs[counts], list(runs.values()))
    if is_one:
        decided = decided and not {*close} & {*one_fewer(counts)}
    return replace(candidate, decided=decided, close=close)


def with_run(candidate: Candidate, run: Run, runs: Sequence[Run]) -> Candidate:
    """Return a candidate that is feasible by a run; of two pools with what binds it."""
    candidate = replace(
        candidate,
        status="feasible",
        pruned_reason=None,
        run=run.without_requests(),
        cost=run.cost,
    )
    if not candidate.pools:
        return candidate
    used = zip(run.deployment.pools, run.simulation.pools, strict=True)
    pools = tuple(
        replace(
            planned,
            replica_count=pool.replica_count,
            busy_share=float(use.series.busy_share.mean()),
        )
        for planned, (pool, use) in zip(candidate.pools, used, strict=True)
    )
    below = one_fewer(run.deployment.counts)
    fewer = [each for each in runs if each.deployment.counts in below]
    fewer = [each for each in fewer if each.judgement.meets is not True]
    least = min(fewer, key=attained, default=None)
    return replace(candidate, pools=pools, binding=binding_limit(least))


def _misses_above(candidate: Candidate) -> bool:
    """Return whether somewhat larger counts miss the target that these attain."""
    if candidate.pools:
        assert candidate.run is not None
        return candidate.run.judgement.meets is True and not candidate.decided
    count = candidate.replica_count or 0
    reach = count + math.ceil(BAND_ABOVE * count)
    return any(
        probe.meets is False or (probe.meets is None and probe.missing)
        for probe in candidate.probes
        if count < probe.replica_count <= reach
    )
