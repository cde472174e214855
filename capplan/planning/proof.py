"""The proof of a plan: lower bound, certificate, and both made again to verify it."""

import warnings
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from capplan.bounds.certificate import COLUMNS, Inputs, Reproduction, certificate
from capplan.bounds.lower_bound import Bound, lower_bound
from capplan.deployment import EngineSettings
from capplan.errors import CapplanWarning
from capplan.planning.candidates import run_of
from capplan.planning.configuration import Configuration, Excluded
from capplan.planning.inputs import PlanInputs, configuration_of, plan_inputs
from capplan.planning.result import Candidate
from capplan.planning.settings import PlanSettings


def bound_inputs(inputs: PlanInputs, configuration: Configuration) -> Inputs:
    """Return the inputs of a configuration's lower bound.

    Requests of the warm-up are left out, as they are where attainment is counted.
    """
    trace = inputs.trace
    assert trace.arrival_s is not None
    counted = trace.arrival_s >= trace.arrival_s[0] + inputs.traffic.warmup_s
    limits_s = inputs.slo.columns(trace.request_class, trace.class_names)
    cached = trace.prefix_tokens * int(configuration.engine.prefix_caching)
    columns = (
        trace.arrival_s,
        trace.prompt_tokens,
        trace.output_tokens,
        cached,
        *limits_s,
    )
    return Inputs(
        {name: column[counted] for name, column in zip(COLUMNS, columns, strict=True)},
        configuration.tables._asdict(),
        asdict(configuration.engine),
    )


def bound_of(inputs: PlanInputs, configuration: Configuration) -> Bound:
    """Return the lower bound of a configuration's replicas, for any scheduler."""
    columns: dict[str, Any] = dict(bound_inputs(inputs, configuration).columns)
    return lower_bound(
        **columns,
        attainment=inputs.slo.attainment,
        tables=configuration.tables,
        engine=configuration.engine,
    )


def certificate_of(
    inputs: PlanInputs, best: Candidate, tried: list[Configuration | Excluded]
) -> dict[str, Any]:
    """Return the certificate of the best candidate."""
    configuration = configuration_of(tried, best.gpu, best.tp)
    shares = {probe.replica_count: probe.slo_attainment for probe in best.probes}
    assert best.bound is not None
    assert best.engine is not None
    assert best.replica_count is not None
    return certificate(
        asdict(best.bound),
        bound_inputs(inputs, configuration),
        inputs.slo.attainment,
        replica_count=best.replica_count,
        passing=shares[best.replica_count],
        failing=shares.get(best.replica_count - 1),
        gpu=best.gpu,
        tp=best.tp,
        router=best.router,
        limits=asdict(best.engine),
    )


def reproduce(document: Mapping[str, Any]) -> Reproduction:
    """Return the inputs of a plan, and its replica count simulated again.

    Files that the plan names are read again; the digest of the inputs tells when
    they, or the profiles, have changed.
    """
    block = document["certificate"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CapplanWarning)
        inputs, tried = plan_inputs(PlanSettings(**document["request"]))
        configuration = configuration_of(tried, block["gpu"], block["tp"])
        bounded = bound_inputs(inputs, configuration)
    configuration = replace(configuration, engine=EngineSettings(**block["limits"]))
    count = block["replica_count"]
    shares = {}
    for replicas in (count, count - 1):
        if replicas > 0:
            run = run_of(inputs, configuration, block["router"], replicas)
            assert run.judgement.attainment is not None
            shares[replicas] = run.judgement.attainment.share
    return Reproduction(bounded, shares)
