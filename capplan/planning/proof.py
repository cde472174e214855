"""What proves a plan: the lower bound, its inputs, and the certificate of the best."""

from dataclasses import asdict
from typing import Any

from capplan.bounds.certificate import COLUMNS, Inputs, certificate
from capplan.bounds.lower_bound import Bound, lower_bound
from capplan.planning.configuration import Configuration, Excluded
from capplan.planning.inputs import PlanInputs, configuration_of
from capplan.planning.result import Candidate


def bound_inputs(question: PlanInputs, one: Configuration) -> Inputs:
    """Return all that the lower bound of a configuration rests on.

    Requests of the warm-up are left out, as they are where attainment is counted.
    """
    trace = question.trace
    assert trace.arrival_s is not None
    counted = trace.arrival_s >= question.warmup_s
    limits_s = question.slo.columns(trace.request_class, trace.class_names)
    cached = trace.prefix_tokens * int(one.engine.prefix_caching)
    columns = (
        trace.arrival_s,
        trace.prompt_tokens,
        trace.output_tokens,
        cached,
        *limits_s,
    )
    return Inputs(
        {name: column[counted] for name, column in zip(COLUMNS, columns, strict=True)},
        one.tables._asdict(),
        asdict(one.engine),
    )


def bound_of(question: PlanInputs, one: Configuration) -> Bound:
    """Return the fewest replicas with which any scheduler could do."""
    columns: dict[str, Any] = dict(bound_inputs(question, one).columns)
    return lower_bound(
        **columns,
        attainment=question.slo.attainment,
        tables=one.tables,
        engine=one.engine,
    )


def certificate_of(
    question: PlanInputs, best: Candidate, tried: list[Configuration | Excluded]
) -> dict[str, Any]:
    """Return what proves the best candidate."""
    one = configuration_of(tried, best.gpu, best.tp)
    shares = {each.replica_count: each.slo_attainment for each in best.probes}
    assert best.bound is not None
    assert best.engine is not None
    assert best.replica_count is not None
    return certificate(
        asdict(best.bound),
        bound_inputs(question, one),
        question.slo.attainment,
        replica_count=best.replica_count,
        passing=shares[best.replica_count],
        failing=shares.get(best.replica_count - 1),
        gpu=best.gpu,
        tp=best.tp,
        router=best.router,
        limits=asdict(best.engine),
    )
