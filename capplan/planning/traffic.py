"""The requests to serve: read, given arrival times, long enough, with a warm-up."""

import warnings
from dataclasses import dataclass, replace

import numpy as np

from capplan.deployment import EngineSettings
from capplan.errors import CapplanWarning, HorizonWarning, InputError
from capplan.planning.settings import PlanSettings
from capplan.simulator.checks import oversized
from capplan.simulator.metrics import requests_needed
from capplan.workload.arrivals import parse_arrivals, rescale, with_arrivals
from capplan.workload.catalog import open_workload
from capplan.workload.predictors import with_predictions
from capplan.workload.readers import read_trace
from capplan.workload.slo import RequestSlo, Slo
from capplan.workload.synthesis import extend, with_shared_prefix
from capplan.workload.trace import Trace

_REQUESTS_FOR_ALL = 1000
"""Requests that show that all meet their SLO."""
_RESIDENCES = 20
"""Stays of a request that a trace should span, so that drift shows."""
_MOST_REQUESTS = 1_000_000


@dataclass(frozen=True, eq=False)
class Traffic:
    """Requests with arrival times.

    Parameters
    ----------
    trace
        The requests.
    process
        Arrival process that the times were drawn by; None where they are the trace's
        own, which are then one sample of what the user serves and all count.
    warmup_s
        Requests that arrive in this first part do not count. [s]
    """

    trace: Trace
    process: str | None
    warmup_s: float = 0.0


def read_traffic(settings: PlanSettings, rng: np.random.Generator) -> Traffic:
    """Return the requests that the settings name, as they are.

    Raises
    ------
    InputError
        When no requests are named, or they have no times and no rate is given.
    """
    trace = _named(settings)
    process = None
    if settings.arrivals is not None or trace.arrival_s is None:
        rate_per_s = settings.rate or trace.rate_per_s
        if not np.isfinite(rate_per_s):
            raise InputError(
                f"{trace.source}: no arrival times; give --rate R, with "
                "--arrivals PROCESS where they are not Poisson"
            )
        process = settings.arrivals or "poisson"
        trace = with_arrivals(trace, rate_per_s, process, rng)
    elif settings.rate is not None:
        trace = rescale(trace, settings.rate)
    if settings.shared_prefix is not None:
        trace = with_shared_prefix(trace, settings.shared_prefix)
    if settings.predictor is not None:
        trace = with_predictions(trace, settings.predictor, None, rng)
    return Traffic(trace, process)


def _named(settings: PlanSettings) -> Trace:
    if settings.trace is not None:
        options: dict[str, str] = {}
        if settings.sharegpt_rule is not None:
            options["sharegpt_rule"] = settings.sharegpt_rule
        return read_trace(
            settings.trace,
            reader_name=settings.reader,
            tokenizer=settings.tokenizer,
            salvage=settings.salvage,
            seed=settings.seed,
            **options,
        )
    if settings.workload is None:
        raise InputError("no requests; give --trace FILE or --workload NAME")
    return open_workload(settings.workload, seed=settings.seed)


def judged_traffic(
    settings: PlanSettings,
    slo: Slo | None,
    rng: np.random.Generator,
    engines: list[EngineSettings],
) -> Traffic:
    """Return the requests that a fleet is judged by, the same for every command.

    Oversized requests are dropped where the settings say so, drawn arrivals go on
    until they can show the attainment, and leave out a warm-up.

    Parameters
    ----------
    settings
        They name the requests.
    slo
        Target of the judgement; without one the requests are taken as they are.
    rng
        Source of all random draws.
    engines
        Settings of the engines that may serve them.
    """
    traffic = read_traffic(settings, rng)
    trace = without_oversized(traffic.trace, engines, drop=settings.drop_oversized)
    traffic = replace(traffic, trace=trace)
    if slo is not None:
        for name in trace.class_names:
            slo.of_class(name)
        traffic = _long_enough(traffic, slo, rng, settings.extend)
    if traffic.process is None:
        return traffic
    return replace(traffic, warmup_s=_warmup_s(traffic.trace, slo))


def without_oversized(
    trace: Trace, engines: list[EngineSettings], *, drop: bool
) -> Trace:
    """Return the trace without the requests that fit none of the engines.

    Raises
    ------
    InputError
        When there are some and they are not to be dropped, or none is left.
    """
    if not engines:
        return trace
    too_large = np.logical_and.reduce([oversized(trace, engine) for engine in engines])
    if not too_large.any():
        return trace
    row = int(np.flatnonzero(too_large)[0])
    largest = max(engine.kv_capacity_tokens for engine in engines)
    longest = max(engine.max_model_len for engine in engines)
    problem = (
        f"{trace.source}: {int(too_large.sum()):,} of {len(trace):,} requests fit no "
        f"replica; the first is row {row + 1} with {trace.prompt_tokens[row]:,} prompt "
        f"and {trace.output_tokens[row]:,} output tokens, where the largest replica "
        f"holds {largest:,} and takes {longest:,}"
    )
    if not drop:
        raise InputError(f"{problem}; drop them with --drop-oversized")
    if too_large.all():
        raise InputError(f"{problem}; none is left")
    warnings.warn(f"{problem}; dropped", CapplanWarning, stacklevel=2)
    return trace.select(np.flatnonzero(~too_large))


def _long_enough(
    traffic: Traffic, slo: Slo, rng: np.random.Generator, may_extend: bool | None
) -> Traffic:
    """Return the traffic, extended by resampling where it is too short to judge.

    Drawn arrivals go on by their process. A trace with its own times is left as it
    is unless ``may_extend`` is True: then its own gaps are replayed.
    """
    trace = traffic.trace
    wanted = requests_wanted(trace, slo)
    if len(trace) >= wanted:
        return traffic
    short = (
        f"the trace has {len(trace):,} requests over {trace.duration_s:.0f} s; "
        f"{slo.attainment:.4g} of them within the SLO takes {wanted:,} to judge"
    )
    drawn = traffic.process is not None
    if not (drawn if may_extend is None else may_extend):
        warnings.warn(
            f"{short}: read the attainment's interval", HorizonWarning, stacklevel=2
        )
        return traffic
    process = None if traffic.process is None else parse_arrivals(traffic.process)
    longer = extend(trace, wanted, rng, process)
    warnings.warn(f"{short}; extended by resampling", HorizonWarning, stacklevel=2)
    return replace(traffic, trace=replace(longer, source=trace.source))


def requests_wanted(trace: Trace, slo: Slo) -> int:
    """Return how many requests of this traffic show whether the SLO is met.

    Enough that ten miss the SLO at the target attainment, and that the arrivals
    span twenty times the longest stay within the SLO; a million at most.
    """
    certain = slo.attainment >= 1
    for_percentile = _REQUESTS_FOR_ALL if certain else requests_needed(slo.attainment)
    for_drift = trace.rate_per_s * _RESIDENCES * _longest_stay_s(trace, slo)
    wanted = max(for_percentile, for_drift if np.isfinite(for_drift) else 0.0)
    return int(min(np.ceil(wanted), _MOST_REQUESTS))


def _warmup_s(trace: Trace, slo: Slo | None) -> float:
    """Return the time in which a fleet that begins empty has surely filled. [s]

    Three times the longest stay within the SLO, at most a fifth of the trace. It is
    fixed before the simulation, so that every replica count and the lower bound
    are about the same requests.
    """
    longest_s = 0.2 * trace.duration_s
    stay_s = 0.0 if slo is None else _longest_stay_s(trace, slo)
    filled_s = 3 * stay_s if stay_s > 0 else 0.5 * longest_s
    return float(min(filled_s, longest_s))


def _longest_stay_s(trace: Trace, slo: Slo) -> float:
    """Return the longest stay that the SLO allows a request of mean length. [s]

    Of the classes the longest; 0 for one whose SLO allows any stay.
    """
    stays_s = [0.0]
    for index, name in enumerate(trace.class_names):
        rows = trace.request_class == index
        if rows.any():
            mean_tokens = float(trace.output_tokens[rows].mean())
            stays_s.append(_stay_s(slo.of_class(name), mean_tokens))
    return max(stays_s)


def _stay_s(slo: RequestSlo, mean_tokens: float) -> float:
    by_token_s = slo.ttft_s + slo.tpot_s * (mean_tokens - 1)
    stay_s = min(slo.e2e_s, by_token_s)
    return stay_s if np.isfinite(stay_s) else 0.0
