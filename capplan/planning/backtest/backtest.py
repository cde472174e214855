"""Compare a fleet that runs with its simulation: by which factor it is slower."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import compress, starmap

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import Deployment
from capplan.errors import InputError, collected_warnings, warn
from capplan.input_file import content_sha256, files_of
from capplan.llm.catalog import llm as find_llm
from capplan.planning.backtest.by_metrics import (
    ReplayedReplica,
    warn_of_kv,
    with_stated_kv,
)
from capplan.planning.backtest.by_requests import replayed_requests
from capplan.planning.backtest.capacity_factor import capacity_factor
from capplan.planning.backtest.compared import figures, ratios
from capplan.planning.backtest.observed import Observed, Replayed
from capplan.planning.backtest.phi import (
    Phi,
    factors,
    of_one_window,
    pooled,
    widened,
)
from capplan.planning.backtest.result import Backtest, ComparedWindow, Fleet, Input
from capplan.planning.backtest.settings import BacktestSettings
from capplan.planning.configure.configuration import only_configuration
from capplan.planning.configure.deployments import DEFAULT_ROUTER
from capplan.planning.count_ladder import fewest_near
from capplan.planning.evaluate.judging import BUDGET_REQUESTS, Judging
from capplan.planning.evaluate.run import judged_run
from capplan.planning.evaluate.saturation import saturation
from capplan.planning.load.load import Load
from capplan.planning.load.traffic import requests_wanted
from capplan.units import parse_duration_s
from capplan.workload.metrics import read_metrics
from capplan.workload.metrics.laws import check_laws, laws
from capplan.workload.metrics.replica_metrics import ReplicaMetrics
from capplan.workload.metrics.requests import read_served_requests
from capplan.workload.metrics.windows import Window, spans, windows
from capplan.workload.synthesis import joined
from capplan.workload.trace import Trace

_TOLD = (
    ("hit_rate", "hit rate", ".2f"),
    ("queue_s_mean", "queue [s]", ".3g"),
    ("ttft_s_mean", "TTFT [s]", ".3g"),
)
_EVEN = ("jsq", "round-robin")
"""Routers whose replicas get arrivals more evenly than at random."""
_STAY_S = 60.0
_LIGHT = 0.1
"""Share of the saturation throughput below which TPOT hardly changes with the load."""
_APART = 0.10
"""Relative difference from which on it is told what iteration times do not explain."""


def backtest(
    settings: BacktestSettings, compare: Callable[[str], None] = lambda name: None
) -> Backtest:
    """Return the factor on iteration times under which a fleet is as measured.

    ``compare`` is told by which name the fleet serves the LLM, where metrics say.
    """
    with collected_warnings() as texts:
        configuration, observed, count = observed_of(settings)
        if observed.model_name:
            compare(observed.model_name)
        found = _judged(settings, configuration, observed, count)
    return replace(found, warnings=tuple(texts))


def observed_of(settings: BacktestSettings) -> tuple[Configuration, Observed, int]:
    """Return what replicas are, what was measured of them, and how many there are."""
    if settings.metrics is None and settings.requests is None:
        raise InputError("nothing measured; expected --metrics or --requests")
    configuration = only_configuration(settings)
    replicas: list[ReplicaMetrics] = []
    if settings.metrics is not None:
        replicas = read_metrics(settings.metrics, settings.model_name)
        if settings.kv_blocks is None:
            configuration = with_stated_kv(configuration, replicas[0])
    count = settings.replicas or max(len(replicas), 1)
    width_s = parse_duration_s(settings.window)
    router = settings.router or DEFAULT_ROUTER
    turns = len(replicas) if router in _EVEN else 1
    parts: list[ReplayedReplica] = []
    for each in replicas if settings.requests is None else filter(_counts, replicas):
        parts += _parts(each, configuration, width_s, settings.seed, turns)
    by_step = configuration.engine.speculation is None
    checked = [window for part in parts for window in part.windows]
    one = (settings.api_server_count or 1) == 1
    check_laws(checked, str(settings.metrics), one_front_end=one)
    if checked and settings.kv_blocks is None:
        warn_of_kv(checked[0])
    of: Sequence[Replayed] = parts
    waits = None
    if settings.requests is not None:
        served = read_served_requests(settings.requests)
        fleet = _of(settings, configuration, count)
        of = [replayed_requests(served, fleet, width_s, settings.seed)]
        full = [each.is_saturated for each in checked]
        if checked and 2 * sum(full) > len(checked):  # late answers bring others late
            of = parts
            warn("the fleet is saturated: its requests are not replayed, metrics are")
        elif checked:
            waits = False
    elif not parts:
        raise InputError(
            f"{settings.metrics}: no window of 200 requests and 20 scrapes; expected "
            "more of them, or --requests"
        )
    name = replicas[0].model_name if replicas else ""
    return configuration, Observed(of, by_step, waits, name), count


def _counts(metrics: ReplicaMetrics) -> bool:
    """Return whether there is more than what a log states."""
    return bool(metrics.histograms)


def _parts(
    metrics: ReplicaMetrics,
    configuration: Configuration,
    width_s: float,
    seed: int,
    turns: int,
) -> list[ReplayedReplica]:
    """Return the parts of a replica's time that have enough requests."""
    found = []
    for name in ("prompt_tokens", "output_tokens"):
        if name not in metrics.histograms:
            raise InputError(
                f"{metrics.replica}: no histogram of {name.replace('_', ' ')}, as "
                "vllm:request_prompt_tokens; expected one, or --requests"
            )
    if "ended" not in metrics.counters:
        ended = metrics.histograms["output_tokens"].counts[:, -1]
        metrics = replace(metrics, counters={**metrics.counters, "ended": ended})
    for span in spans(metrics):
        usable, lost = windows(metrics, span, width_s)
        if usable:
            of = (metrics, span, usable, configuration, seed, turns)
            found.append(ReplayedReplica(*of))
        for part in lost:
            lasts_s = metrics.at_s[part.last] - metrics.at_s[part.first]
            warn(
                f"{metrics.replica}: {lasts_s:,.0f} s have fewer than 200 requests or "
                "20 scrapes and are left out"
            )
    return found


def _judged(
    settings: BacktestSettings,
    configuration: Configuration,
    observed: Observed,
    replica_count: int,
) -> Backtest:
    measured, under = observed.windows, cache(observed.simulated)
    of_windows, phi = _phi(observed, under)
    if phi is not None and settings.requests is None:
        phi = widened(phi)
    value = 1.0 if phi is None else phi.value
    assumed, simulated = under(1.0), under(value)
    rows = zip(measured, assumed, of_windows, observed.saturated, strict=True)
    compared = tuple(starmap(_compared, rows))
    first = observed.parts[0]
    rho = first.correlation if isinstance(first, ReplayedReplica) else (None, False)
    factor = None if phi is None else capacity_factor(observed.pace_s, value)
    fleet = _fleet(settings, observed, configuration.slowed(value), replica_count)
    if factor is not None and (fleet.utilisation or 1.0) < _LIGHT:
        used = 100 * (fleet.utilisation or 0)
        warn(
            f"the fleet runs at {used:.1f} % of its saturation throughput, where TPOT "
            "hardly changes with the load: what a replica carries is sure only at more"
        )
    return Backtest(
        inputs=tuple(_inputs(settings)),
        llm="" if settings.llm is None else find_llm(settings.llm).name,
        configuration=configuration,
        windows=compared,
        phi=phi,
        phi_prefill=_prefill(measured, simulated, value),
        front_end_s=_front_end_s(measured),
        capacity_factor=factor,
        rho=rho[0],
        rho_identified=rho[1],
        throughput_ratio=_throughput_ratio(observed, assumed, configuration),
        unexplained=tuple(_unexplained(observed, simulated)),
        fleet=fleet,
    )


def _phi(
    observed: Observed, under: Callable[[float], list[Window]]
) -> tuple[list[float | None], Phi | None]:
    """Return the factor of each window, and of all; None of saturated ones.

    ``under`` returns the windows under a factor.
    """
    usable = ~observed.saturated
    of_windows: list[float | None] = [None] * len(usable)
    if not usable.any():
        return of_windows, None
    measured_s = observed.paces_s(observed.windows)[usable]
    found = factors(measured_s, lambda factor: observed.paces_s(under(factor))[usable])
    for at, value in zip(np.flatnonzero(usable), found, strict=True):
        of_windows[at] = float(value)
    phi = pooled(found)
    if phi.windows == 1:
        phi = of_one_window(phi.value, observed.parts[0].log_error(phi.value))
    return of_windows, phi


def _of(
    settings: BacktestSettings, configuration: Configuration, count: int
) -> Deployment:
    """Return so many replicas behind what places their requests."""
    router, dispatcher = settings.router or DEFAULT_ROUTER, settings.dispatcher or ""
    return replace(Deployment.of(configuration, count, router), dispatcher=dispatcher)


def _compared(
    measured: Window, simulated: Window, phi: float | None, saturated: bool
) -> ComparedWindow:
    shown, assumed = figures(measured), figures(simulated)
    return ComparedWindow(
        measured.of.replica,
        measured.first_s,
        measured.last_s,
        measured.count("ended"),
        laws(measured),
        shown,
        assumed,
        ratios(shown, assumed),
        phi,
        bool(saturated),
    )


def _inputs(settings: BacktestSettings) -> Iterator[Input]:
    for kind in ("metrics", "requests"):
        path = getattr(settings, kind)
        if path is not None:
            files = files_of(path)
            yield from (Input(str(x), content_sha256(x), kind) for x in files)


def _prefill(
    measured: Sequence[Window], simulated: Sequence[Window], phi: float
) -> float | None:
    """Return the factor on the time from the first chunk to the first token."""
    sums = [
        sum(of.total for each in side if (of := each.observed("prefill_s")) is not None)
        for side in (measured, simulated)
    ]
    return phi * sums[0] / sums[1] if min(sums) > 0 else None


def _front_end_s(measured: Sequence[Window]) -> float | None:
    """Return the median of what TTFT has beside queue and prefill. [s]"""
    found = [laws(each)["front_end_s"] for each in measured if not each.is_saturated]
    known = [value for value in found if np.isfinite(value)]
    return float(np.median(known)) if known else None


def _unexplained(observed: Observed, simulated: Sequence[Window]) -> Iterator[str]:
    """Yield what the factor does not explain, in windows that are not saturated."""
    pairs = [
        (figures(a), figures(b))
        for a, b in compress(
            zip(observed.windows, simulated, strict=True), ~observed.saturated
        )
    ]
    for name, label, form in _TOLD:
        both = [(a[name], b[name]) for a, b in pairs if name in a and name in b]
        if not both:
            continue
        left, right = np.mean(both, axis=0)
        if abs(left - right) > _APART * max(left, right) and max(left, right) > 0.01:
            yield f"{label} {left:{form}}, simulated {right:{form}}"


def _mix(observed: Observed) -> Trace:
    """Return the requests of all parts, as one mix."""
    of = [part.mix for part in observed.parts]
    if len(of) == 1:
        return of[0]
    return joined(*(each.changed(arrival_s=np.zeros(len(each))) for each in of))


def _throughput_ratio(
    observed: Observed, assumed: Sequence[Window], configuration: Configuration
) -> float | None:
    """Return tokens/s of saturated windows over the most that is assumed.

    Where prompts share, over what is simulated of as many that run, or that wait.
    """
    full = [*compress(zip(observed.windows, assumed, strict=True), observed.saturated)]
    most = _saturation_per_s(observed, configuration) if full else None
    if most is not None:
        rates = [each.count("ended") / each.lasts_s for each, _ in full]
        return float(np.mean(rates)) / most
    both = [
        (of.count("generation") / of.lasts_s, other.count("generation") / other.lasts_s)
        for of, other in full
        if of.of.is_summary or other.is_saturated
    ]
    return float(np.divide(*np.sum(both, axis=0))) if both else None


def _saturation_per_s(observed: Observed, configuration: Configuration) -> float | None:
    """Return what a replica completes at most; None where prompts share. [requests/s]

    KV that prompts share is of one of them there, and of each in the fleet.
    """
    mix = _mix(observed)
    if mix.prefix_tokens.any():
        return None
    engine = replace(configuration.engine, prefix_caching=False)
    load = Load(mix, None, mix.rate_per_s)
    found = saturation(load, replace(configuration, engine=engine), None)
    return None if found is None else found.rate_per_s


def _fleet(
    settings: BacktestSettings,
    observed: Observed,
    slowed: Configuration,
    replica_count: int,
) -> Fleet:
    """Return how much the replicas carry; for limits how many would do."""
    peak_per_s = _peak_per_s(observed)
    most, slo = _saturation_per_s(observed, slowed), settings.objective()
    fleet = Fleet(replica_count, peak_per_s, most)
    if slo is None or most is None:
        return fleet
    engine = replace(slowed.engine, prefix_caching=False)
    configuration = replace(slowed, engine=engine)
    mix = _mix(observed).changed(arrival_s=None)
    wanted = requests_wanted(
        mix.changed(arrival_s=np.arange(len(mix)) / peak_per_s), slo, _STAY_S
    )
    load = Load(mix, "poisson", peak_per_s, wanted, seed=settings.seed)
    how = Judging(settings.seed, budget_requests=BUDGET_REQUESTS, only_whether=True)

    def holds(count: int) -> bool:
        fleet = _of(settings, configuration, count)
        return judged_run(load, slo, fleet, how).judgement.meets is True

    least = int(peak_per_s / most) + 1
    enough = fewest_near(holds, least, max(4 * replica_count, 2 * least + 8))
    return fleet._replace(enough=enough, slo_text=slo.describe(("all",)))


def _peak_per_s(observed: Observed) -> float:
    """Return the most requests that ended in a second, of all replicas at once."""
    found = observed.windows
    return max(
        sum(
            other.count("ended") / other.lasts_s
            for other in found
            if other.first_s <= (each.first_s + each.last_s) / 2 < other.last_s
        )
        for each in found
    )
