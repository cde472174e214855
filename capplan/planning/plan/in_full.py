"""What a plan tells of its best: certificate, prices of what else, risk, placement."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from capplan.deployment.configuration import Configuration
from capplan.errors import HostFullError
from capplan.planning.configure.excluded import Excluded
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.executors import Interrupted
from capplan.planning.evaluate.inputs import PlanInputs, Progress, configuration_of
from capplan.planning.evaluate.probe import Probe
from capplan.planning.evaluate.replica_load import sustained_load
from capplan.planning.evaluate.run import run_of
from capplan.planning.load.traffic_over_time import (
    busiest_hour_of_mean,
    lengths_of,
    traffic_over_time,
)
from capplan.planning.money.cost import fitting
from capplan.planning.plan.api_bill import api_bill
from capplan.planning.plan.beyond_peak import beyond_peak
from capplan.planning.plan.last_replica import last_replica
from capplan.planning.plan.one_hour import without_window
from capplan.planning.plan.placing import peak_heartbeat
from capplan.planning.plan.purchase import purchase
from capplan.planning.plan.result import Plan
from capplan.planning.plan.spare_nodes import spares_of
from capplan.planning.plan.speculation_worth import (
    drafts_worth,
    gpus_accepting,
    gpus_with,
    with_acceptance_range,
)
from capplan.planning.plan.throughput import throughput
from capplan.planning.prove.pool_proof import pools_certificate_of
from capplan.planning.prove.proof import certificate_of
from capplan.planning.risk.risk import risk_of
from capplan.planning.size.disaggregated import pools_accepting
from capplan.planning.size.prospects import Prospect
from capplan.routing import GAMMA

PAPER_THETA = 0.9
"""Aladdin's margin where prefill and decode do not share iterations."""


def in_full(
    inputs: PlanInputs,
    tried: list[Configuration | Excluded],
    result: Plan,
    progress: Progress,
    *,
    with_load: bool,
) -> Plan:
    """Return a plan with all that is told of its best.

    ``with_load`` also measures what a replica of it sustains, as the bill of an API
    needs it, and what the fleet attains beyond its peak.
    """
    settings = inputs.settings
    best = result.best
    if best is None:
        return result
    if with_load or settings.api is not None:
        sustained = sustained_load(inputs, best.run, progress)
        beyond = beyond_peak(inputs, best.run, sustained, progress)
        result = replace(result, replica_load=sustained, beyond_peak=beyond)
    result = _described(inputs, result, progress)
    if not result.interrupted:
        alone = without_window(inputs, best, progress)
        result = replace(result, without_window=alone)
    if best.pools:
        result = replace(
            result,
            drafts_worth=drafts_worth(result, best.pools[-1].configuration),
            certificate=pools_certificate_of(inputs, best),
        )
        gpus_of_pair = partial(pools_accepting, inputs, best)
        return _with_acceptance(inputs, result, gpus_of_pair, progress)
    assert best.bound is not None
    progress("pricing the best without prefix caching")
    prospect = Prospect(configuration_of(tried, best.key), best.bound)
    result = replace(
        result,
        drafts_worth=drafts_worth(result, prospect.configuration),
        certificate=certificate_of(inputs, best, tried),
        gpu_count_without_prefix_caching=_gpus_without_caching(inputs, prospect),
    )
    gpus_of_one = partial(gpus_accepting, inputs, prospect)
    result = _with_acceptance(inputs, result, gpus_of_one, progress)
    if not result.interrupted and settings.draws:
        result = replace(result, risk=risk_of(inputs, best, progress))
    if not result.interrupted and settings.availability:
        spares = spares_of(inputs, best, progress)
        result = replace(result, n_plus_k=spares)
    if inputs.solver is None or result.interrupted:
        return result
    progress(f"placing the peak heartbeat ({inputs.solver})")
    placement = peak_heartbeat(
        prospect.configuration,
        inputs.trace,
        inputs.slo,
        solver=inputs.solver,
        gamma=GAMMA,
        theta=PAPER_THETA,
        seed=settings.seed,
    )
    return replace(result, placement=placement)


def _with_acceptance(
    inputs: PlanInputs,
    result: Plan,
    gpus_at: Callable[[float], int | None],
    progress: Progress,
) -> Plan:
    """Return a plan with the GPUs where fewer and where more drafts are accepted."""
    if result.interrupted or result.drafts_worth is None:
        return result
    progress("pricing the best with fewer and with more drafts accepted")
    worth = with_acceptance_range(result.drafts_worth, inputs, gpus_at)
    return replace(result, drafts_worth=worth)


def _gpus_without_caching(inputs: PlanInputs, prospect: Prospect) -> int | None:
    """Return the GPUs that a configuration needs with prefix caching off.

    None where it is off, where no prefix is shared, or where no count serves. The bound
    with caching holds without it.
    """
    engine = prospect.configuration.engine
    if not engine.prefix_caching or not inputs.trace.prefix_tokens.any():
        return None
    return gpus_with(inputs, prospect, replace(engine, prefix_caching=False))


def _paid_anyway(
    inputs: PlanInputs, best: Candidate, progress: Progress
) -> Probe | None:
    """Return what all replicas attain that fit the nodes paid for; None: no more do."""
    if best.run is None or best.cost is None or best.pools:
        return None
    count = fitting(best.run.deployment.pool)
    if count <= best.run.replica_count:
        return None
    progress("simulating the replicas that fit the nodes paid for")
    try:
        return Probe.of(run_of(inputs, best.run.deployment.with_replicas(count)))
    except (HostFullError, Interrupted):
        return None


def _described(inputs: PlanInputs, result: Plan, progress: Progress) -> Plan:
    """Return a plan with what it serves, what it could, and what else could be paid."""
    best = result.best
    assert best is not None
    assert best.run is not None
    trace = inputs.trace
    is_timed = inputs.load.process is None and inputs.load.is_open
    traffic = traffic_over_time(trace) if is_timed else None
    peak = busiest_hour_of_mean(trace) if is_timed else None
    beside = None if result.interrupted else _paid_anyway(inputs, best, progress)
    return replace(
        result,
        traffic=traffic,
        lengths=lengths_of(trace),
        throughput=throughput(best.run, result.replica_load, traffic),
        purchase=purchase(inputs.settings, best, result.candidates, beside),
        api=api_bill(result, inputs.settings.api, peak or 1.0),
        last_replica=last_replica(
            best.run, best.probes, inputs.slo, inputs.load.base.class_names
        ),
    )
