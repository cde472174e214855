"""The requests to plan for: read, given times, and long enough for the question."""

from dataclasses import replace

import numpy as np

from capplan.errors import InputError
from capplan.planning.settings import PlanSettings
from capplan.simulator.metrics import requests_needed
from capplan.workload.arrivals import parse_arrivals, rescale, with_arrivals
from capplan.workload.catalog import open_workload
from capplan.workload.predictors import with_predictions
from capplan.workload.readers import read_trace
from capplan.workload.slo import RequestSlo, Slo
from capplan.workload.synthesis import extend, with_shared_prefix
from capplan.workload.trace import Trace

_ALL_MUST = 1000
"""Requests that show that all attain their SLO."""
_RESIDENCES = 20
"""Times over which a request's stay should fit into a trace long enough."""
_MOST_REQUESTS = 1_000_000


def read_requests(
    request: PlanSettings, rng: np.random.Generator
) -> tuple[Trace, str | None]:
    """Return the requests that are asked for, and the law their times were drawn by.

    The law is None where the times are the source's own.

    Raises
    ------
    InputError
        When there are none, they cannot be read, or they have no times and no
        rate is given.
    """
    trace = _named(request)
    law = None
    if request.arrivals is not None or trace.arrival_s is None:
        rate_per_s = request.rate or trace.rate_per_s
        if not np.isfinite(rate_per_s):
            raise InputError(
                f"{trace.source}: no arrival times; give --rate R, with "
                "--arrivals LAW where they are not Poisson"
            )
        law = request.arrivals or "poisson"
        trace = with_arrivals(trace, rate_per_s, law, rng)
    elif request.rate is not None:
        trace = rescale(trace, request.rate)
    if request.shared_prefix is not None:
        trace = with_shared_prefix(trace, request.shared_prefix)
    if request.predictor is not None:
        trace = with_predictions(trace, request.predictor, None, rng)
    return trace, law


def _named(request: PlanSettings) -> Trace:
    name = request.workload
    if request.trace is not None:
        options: dict[str, str] = {}
        if request.sharegpt_rule is not None:
            options["sharegpt_rule"] = request.sharegpt_rule
        return read_trace(
            request.trace,
            reader_name=request.reader,
            tokenizer=request.tokenizer,
            salvage=request.salvage,
            seed=request.seed,
            **options,
        )
    if name is None:
        raise InputError("no requests; give --trace FILE or --workload NAME")
    return open_workload(name, seed=request.seed)


def requests_wanted(trace: Trace, slo: Slo) -> int:
    """Return how many requests of this traffic answer the question.

    Enough that ten miss the SLO at the target attainment, and that the arrivals
    span twenty times what a request may stay; capped at a million.
    """
    certain = slo.attainment >= 1
    for_percentile = _ALL_MUST if certain else requests_needed(slo.attainment)
    stay_s = float(np.max(_allowed_stays_s(trace, slo)))
    for_drift = trace.rate_per_s * _RESIDENCES * stay_s
    wanted = max(for_percentile, for_drift if np.isfinite(for_drift) else 0.0)
    return int(min(np.ceil(wanted), _MOST_REQUESTS))


def warmup_end_s(trace: Trace, slo: Slo) -> float:
    """Return when the fleet, empty at first, has surely filled up. [s]

    Three times what a request of mean length may take, at most a fifth of the
    trace. It is fixed before anything is simulated, so that every replica count is
    judged by the same requests, and the lower bound holds for them.
    """
    assert trace.arrival_s is not None
    stay_s = float(np.max(_allowed_stays_s(trace, slo)))
    longest_s = 0.2 * trace.duration_s
    filled_s = 3 * stay_s if stay_s > 0 else 0.5 * longest_s
    return float(trace.arrival_s[0] + min(filled_s, longest_s))


def _allowed_stays_s(trace: Trace, slo: Slo) -> np.ndarray:
    """Return for each class how long a request of mean length may take. [s]"""
    stays_s = []
    for index, name in enumerate(trace.class_names):
        rows = trace.request_class == index
        if rows.any():
            mean_tokens = float(trace.output_tokens[rows].mean())
            stays_s.append(_stay_s(slo.of_class(name), mean_tokens))
    return np.array(stays_s)


def _stay_s(slo: RequestSlo, mean_tokens: float) -> float:
    by_token_s = slo.ttft_s + slo.tpot_s * (mean_tokens - 1)
    stay_s = min(slo.e2e_s, by_token_s)
    return stay_s if np.isfinite(stay_s) else 0.0


def long_enough(
    trace: Trace,
    law: str | None,
    slo: Slo,
    rng: np.random.Generator,
    *,
    may_extend: bool = True,
) -> tuple[Trace, str]:
    """Return the trace, extended where it is too short, and what to know of it.

    The text is empty when the trace was long enough. Arrivals go on by ``law``,
    or by a replay of the trace's own gaps where it is None.
    """
    wanted = requests_wanted(trace, slo)
    if len(trace) >= wanted:
        return trace, ""
    short = (
        f"the trace has {len(trace):,} requests over {trace.duration_s:.0f} s; "
        f"{slo.attainment:.4g} of them within the SLO takes {wanted:,} to judge"
    )
    if not may_extend:
        return trace, f"{short}: read the attainment's interval"
    process = parse_arrivals(law) if law is not None else None
    longer = extend(trace, wanted, rng, process)
    return replace(longer, source=trace.source), f"{short}; extended by resampling"
