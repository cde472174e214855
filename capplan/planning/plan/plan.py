"""From requests, SLOs and GPUs to the fewest replicas, their cost and their proof."""

import math
import time
from dataclasses import replace
from typing import NamedTuple

from capplan.deployment.configuration import Configuration
from capplan.errors import InputError, collected_warnings, warn
from capplan.input_file import named_sha256
from capplan.planning.configure.excluded import Excluded
from capplan.planning.configure.launch import launch
from capplan.planning.configure.speculation import SEARCHED, is_searched, with_drafts
from capplan.planning.configure.tier import is_tier_searched, with_size
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.executors import executor
from capplan.planning.evaluate.inputs import PlanInputs, Progress, plan_inputs, unseen
from capplan.planning.evaluate.known_runs import KnownRuns
from capplan.planning.load.worst_windows import NO_WINDOWS
from capplan.planning.mix.mix import mix_of
from capplan.planning.plan.assumptions import assumptions
from capplan.planning.plan.result import Plan, in_full
from capplan.planning.plan.speculation_worth import best_of_drafts
from capplan.planning.plan.tier_search import (
    SIZES,
    TiersTried,
    TierTried,
    gib_of,
    tried_size,
)
from capplan.planning.plan.told import Told
from capplan.planning.prove.proof import with_bounds_held
from capplan.planning.settings.plan import PlanSettings
from capplan.planning.size.bounded import bounded, with_bounds
from capplan.planning.size.candidates import evaluate, is_tuned, pruned, tune
from capplan.planning.size.cautions import uncertainty
from capplan.planning.size.disaggregated import disaggregated, started, worth
from capplan.planning.size.insisted import insisted
from capplan.planning.size.pairs import check_pools
from capplan.planning.size.prospects import (
    NOT_BOUNDED,
    Prospect,
    cannot_win,
    feasible_of,
    most_for_less,
    most_to_compete,
    most_to_win,
    price_of,
    without_doubts,
)
from capplan.planning.size.tunings import tunings
from capplan.simulator.fleet.fleet import Stopped

_WAVE = 4
"""Candidates simulated side by side before the others are held against them."""
_KEPT_BYTES = 2**28
"""Memory of simulations kept of the search for a number of drafted tokens. [bytes]"""
NOT_IN_THE_RESULT = {"out", "xlsx", "executor", "ray_address"}
"""Settings that the result does not depend on."""


def plan(
    settings: PlanSettings,
    progress: Progress | None = None,
    stopped: Stopped | None = None,
    with_load: bool = False,
) -> Plan:
    """Return the fewest replicas of each configuration, and the best of them.

    When ``stopped`` says so, the plan is that of what was simulated by then.
    ``with_load`` also measures what a replica of the best sustains.
    """
    started_s = time.perf_counter()
    settings = settings.dated()
    progress = progress or unseen
    if is_tier_searched(settings):
        search = _with_any_tier(settings, progress, stopped)
    elif is_searched(settings):
        search = _with_any_drafts(settings, progress, stopped)
    else:
        search = _searched(*_inputs(settings, progress, stopped), progress)
    with collected_warnings() as texts:
        if (result := search.plan).best is not None:
            result = in_full(Told(*search[:3], progress, with_load))
    first = (result.risk.caution,) if result.risk and result.risk.caution else ()
    return replace(
        result,
        warnings=(*first, *dict.fromkeys((*search.texts, *texts))),
        settings=settings.document(NOT_IN_THE_RESULT),
        runtime_s=time.perf_counter() - started_s,
    )


class _Search(NamedTuple):
    """The candidates of a plan, before its best is told of in full."""

    inputs: PlanInputs
    tried: list[Configuration | Excluded]
    plan: Plan
    texts: list[str]  # warnings
    texts_of_inputs: list[str]  # those before the search


def _with_any_drafts(
    settings: PlanSettings, progress: Progress, stopped: Stopped | None
) -> _Search:
    """Return the best of no drafts and one to three; only it is told of in full."""
    plans: dict[int, Plan] = {}
    for drafts in SEARCHED:
        progress(f"planning with {drafts} drafted tokens")
        search = _priced(with_drafts(settings, drafts), progress, stopped)
        plans[drafts] = search.plan
        chosen, tried = best_of_drafts(plans, _by_cost)
        if chosen == drafts:
            best = search
    interrupted = any(each.interrupted for each in plans.values())
    best = _completed(best, interrupted, progress)
    return best._replace(plan=replace(best.plan, drafts_tried=tried))


def _with_any_tier(
    settings: PlanSettings, progress: Progress, stopped: Stopped | None
) -> _Search:
    """Return the best with the smallest tier that pays, or without any.

    All of the free memory is tried first, of each candidate with the most replicas that
    save money; less of it while that costs no more, on the best GPU type and layout.
    """
    if is_searched(settings):
        raise InputError(
            "kv_offloading_size auto and drafts without num_speculative_tokens: a plan "
            "finds one of them; give GIB, or the number of drafted tokens"
        )
    rows: list[TierTried] = []
    best, to_beat, asked = None, (math.inf, math.inf), settings
    for size in SIZES:
        of = "no tier" if size == SIZES[0] else f"{size} of the free host memory"
        progress(f"planning with {of} for KV")
        search = _priced(with_size(asked, size), progress, stopped, to_beat)
        rows.append(tried_size(size, search.plan))
        price = rows[-1].price
        if best is not None and not price < to_beat:
            break
        # All of it is to save money, and less of it to cost no more.
        best, to_beat, kept = search, (price[0], price[1] + 0.5 * bool(best)), size
        if search.plan.interrupted:
            break
        if len(rows) > 1 and search.plan.best is not None:
            asked = of_best(settings, search.plan.best)
    assert best is not None
    if kept != SIZES[0] and not search.plan.interrupted:  # all are told of
        inputs, tried, texts = _inputs(with_size(settings, kept), progress, stopped)
        inputs = replace(inputs, simulate_with=best.inputs.simulate_with)
        best = best._replace(inputs=inputs, tried=tried, texts_of_inputs=texts)
    best = _completed(best, search.plan.interrupted, progress)
    tiers = TiersTried(tuple(rows), gib_of(best.plan))
    return best._replace(plan=replace(best.plan, tiers_tried=tiers))


def of_best(settings: PlanSettings, best: Candidate) -> PlanSettings:
    """Return the settings of a plan of one GPU type and layout."""
    assert best.run is not None
    only = settings.of(best.run.configuration.layout)
    return settings.model_copy(update={"gpu": (best.gpu,), **only})


def _priced(
    settings: PlanSettings,
    progress: Progress,
    stopped: Stopped | None,
    to_beat: tuple[float, float] = (math.inf, math.inf),
) -> _Search:
    """Return a search that tells no more than what the best costs, if it is less."""
    given = _inputs(settings, progress, stopped)
    inputs = replace(given[0], best_only=True, only_price=True, to_beat=to_beat)
    if settings.executor == "local":
        inputs = replace(inputs, simulate_with=KnownRuns(_KEPT_BYTES))
    return _searched(inputs, *given[1:], progress)


def _completed(best: _Search, interrupted: bool, progress: Progress) -> _Search:
    """Return the best of several searches with all its candidates."""
    if not interrupted:
        inputs = replace(best.inputs, best_only=False, only_price=False)
        search = _searched(inputs, best.tried, best.texts_of_inputs, progress)
        interrupted = search.plan.interrupted
        best = best if interrupted else search
    return best._replace(plan=replace(best.plan, interrupted=interrupted))


def _inputs(
    settings: PlanSettings, progress: Progress, stopped: Stopped | None
) -> tuple[PlanInputs, list[Configuration | Excluded], list[str]]:
    with collected_warnings() as texts:
        progress("reading the requests")
        inputs, tried = plan_inputs(settings)
    if settings.executor == "local":  # elsewhere Ctrl-C cannot be seen
        inputs = replace(inputs, stopped=stopped)
    return inputs, tried, texts


def _searched(
    inputs: PlanInputs,
    tried: list[Configuration | Excluded],
    texts_of_inputs: list[str],
    progress: Progress,
) -> _Search:
    with collected_warnings() as texts:
        result = planned(inputs, tried, progress)
        if inputs.settings.mix and not (result.interrupted or inputs.best_only):
            bests = result.best, result.best_estimated
            mix = mix_of(inputs, tried, result.candidates, bests, progress)
            result = replace(result, mix=mix)
    return _Search(inputs, tried, result, [*texts_of_inputs, *texts], texts_of_inputs)


def planned(
    inputs: PlanInputs, tried: list[Configuration | Excluded], progress: Progress
) -> Plan:
    """Return a plan without its certificate and placement."""
    if inputs.settings.disaggregated:
        check_pools(inputs.settings, tried)
    candidates: list[Candidate] = []
    if not inputs.only_disaggregated:
        candidates = _together(inputs, tried, progress)
    if inputs.settings.disaggregated and not inputs.is_stopped():
        if inputs.only_price:
            whole = [row for row in feasible_of(candidates) if not row.is_in_doubt]
            to_beat = min(map(price_of, whole), default=inputs.to_beat)
            inputs = replace(inputs, to_beat=to_beat)
        candidates += disaggregated(inputs, tried, progress)
    candidates = [with_bounds_held(inputs, row, tried) for row in candidates]
    for text in filter(None, map(uncertainty, candidates)):
        warn(text)
    return _result(inputs, candidates, tried)


def _together(
    inputs: PlanInputs, tried: list[Configuration | Excluded], progress: Progress
) -> list[Candidate]:
    """Return the candidates whose replicas compute prompts and decode."""
    candidates, prospects = bounded(inputs, tried, progress)
    candidates += _simulated(inputs, candidates, prospects, progress)
    if feasible := feasible_of(candidates):
        progress("deciding what was too close to call")
        best = min(without_doubts(feasible), key=_by_cost)
        surer = insisted(inputs, best)
        candidates = [surer if row is best else row for row in candidates]
    return candidates


def _simulated(
    inputs: PlanInputs,
    before: list[Candidate],
    prospects: list[Prospect],
    progress: Progress,
) -> list[Candidate]:
    """Return all prospects simulated, the most promising first, or pruned.

    Waves have the same size on every machine, so that the same ones are pruned.
    """
    settings = inputs.settings
    done: list[Candidate] = []
    simulated: list[Prospect] = []
    left_out: list[tuple[Prospect, str]] = []  # and why
    texts: dict[str, tuple[str, ...]] = {}
    with executor(settings.executor, settings.ray_address) as workers:
        while prospects:
            size = _WAVE if feasible_of(done) else 1
            wave, prospects = prospects[:size], prospects[size:]
            names = ", ".join(str(prospect) for prospect in wave)
            ended = len(done) + len(left_out)
            share = ended / (ended + len(wave) + len(prospects))
            progress(f"simulating {names} ({len(prospects)} more)", share)
            for prospect, result in zip(
                wave, workers(evaluate, inputs, wave), strict=True
            ):
                simulated.append(prospect)
                done.append(result[0])
                texts[str(prospect)] = result[1]
            prospects, without = _promising(inputs, prospects, before, done)
            left_out += without
            if not all(each.bound is not NOT_BOUNDED for each in prospects):
                prospects = with_bounds(inputs, prospects)
                prospects, without = _promising(inputs, prospects, before, done)
                left_out += without
        tunable = [row for row in simulated if is_tuned(inputs, row.configuration)]
        wanted = tunings(inputs, tunable, done)
        if wanted:
            progress("trying smaller token budgets")
        results = workers(tune, inputs, wanted)
        for tuning, tuned in zip(wanted, results, strict=True):
            tried = tuning.prospect.configuration
            index = [row.key for row in done].index(tried.key)
            before_texts = () if tuned.candidate is not None else texts[str(tried)]
            texts[str(tried)] = (*before_texts, *tuned.warnings)
            done[index] = tuned.candidate or _with_close(done[index], tuned.too_close)
    for warning in (text for each in texts.values() for text in each):
        warn(warning)
    # A reason names the count of another, which a smaller budget may have lowered.
    return done + [
        pruned(prospect, cannot_win(prospect, before + done) or reason)
        for prospect, reason in left_out
    ]


def _promising(
    inputs: PlanInputs,
    prospects: list[Prospect],
    before: list[Candidate],
    done: list[Candidate],
) -> tuple[list[Prospect], list[tuple[Prospect, str]]]:
    """Return the prospects that may win, and the others with the reason."""
    limit = most_to_win if inputs.best_only else most_to_compete
    most = [min(limit(each, done), most_for_less(inputs, each)) for each in prospects]
    limited = [
        replace(each, max_replicas=count)
        for each, count in zip(prospects, most, strict=True)
    ]
    told = [(each, cannot_win(each, before + done)) for each in limited]
    left = [each for each, reason in told if reason is None]
    return left, [(each, reason) for each, reason in told if reason is not None]


def _with_close(candidate: Candidate, count: int | None) -> Candidate:
    """Return a candidate of which one more count is too close to call."""
    if count is None or candidate.status != "feasible":
        return candidate
    return replace(candidate, close=tuple(sorted({*candidate.close, (count,)})))


def _result(
    inputs: PlanInputs,
    candidates: list[Candidate],
    tried: list[Configuration | Excluded],
) -> Plan:
    candidates = [_started(inputs, row) for row in candidates]
    feasible = feasible_of(candidates)
    by_cost = sorted(feasible, key=_by_cost)
    estimated = [row for row in by_cost if row.is_in_doubt]
    eligible = without_doubts(by_cost)
    by_gpus = sorted(
        eligible, key=lambda row: (*reversed(price_of(row)), len(row.pools), row.place)
    )
    whole, disaggregated = (
        next((row for row in by_cost if bool(row.pools) is two), None)
        for two in (False, True)
    )
    if eligible:  # the best first, those in doubt in their place
        by_cost = [eligible[0], *(row for row in by_cost if row is not eligible[0])]
    others = [row for row in candidates if row.status != "feasible"]
    others.sort(key=lambda row: (row.status != "pruned", row.gpu, row.place))
    trace, slo, settings = inputs.trace, inputs.slo, inputs.settings
    best = eligible[0].run if eligible else None
    in_windows = NO_WINDOWS if best is None else best.judgement.in_windows
    # Users ask as fast as they are answered: by the best.
    is_open = inputs.load.is_open
    served = None if best is None or is_open else best.simulation.totals
    interrupted = inputs.is_stopped()
    if interrupted:
        warn(
            "interrupted: a configuration or a count that was not simulated may do "
            "with fewer GPUs or less money"
        )
    none = "interrupted" if interrupted else "infeasible"
    return Plan(
        status="feasible" if feasible else none,
        llm=str(settings.llm),
        candidates=tuple(by_cost + others),
        slo_text=slo.describe(trace.class_names),
        attainment=slo.shared_target(trace.class_names),
        attainment_text=slo.describe_targets(trace.class_names),
        trace_source=trace.source,
        trace_sha256=named_sha256(settings.trace),
        profiles_sha256=named_sha256(settings.profiles),
        request_count=len(trace) if served is None else served.request_count,
        rate_per_s=trace.rate_per_s if served is None else served.rate_per_s,
        mean_prompt_tokens=float(inputs.load.base.prompt_tokens.mean()),
        mean_output_tokens=float(inputs.load.base.output_tokens.mean()),
        duration_s=trace.duration_s if served is None else served.duration_s,
        router=settings.dispatcher
        or (inputs.routers[0] if best is None else best.deployment.router),
        seed=settings.seed,
        best=eligible[0] if eligible else None,
        best_by_gpus=by_gpus[0] if by_gpus else None,
        best_estimated=estimated[0] if estimated else None,
        infeasible_reason=None if feasible else _why_none(candidates),
        assumptions=assumptions(settings, trace, candidates, tried),
        settings=settings.document(NOT_IN_THE_RESULT),
        slo_limits_s=slo.shared_limits_s(trace.class_names),
        windows=in_windows.worst,
        peak=in_windows.peak,
        window_widths=in_windows.widths,
        asked_by=None if is_open else inputs.load.process,
        interrupted=interrupted,
        best_aggregated=whole if settings.disaggregated else None,
        best_disaggregated=disaggregated,
        disaggregation=worth(whole, disaggregated, candidates)
        if settings.disaggregated and not interrupted
        else None,
    )


def _started(inputs: PlanInputs, candidate: Candidate) -> Candidate:
    """Return a candidate with what starts its replicas."""
    if candidate.run is None:
        return candidate
    if candidate.pools:
        return started(inputs, candidate)
    configuration = candidate.run.configuration
    return replace(candidate, launch=launch(configuration, inputs.settings))


def _by_cost(candidate: Candidate) -> tuple[float, ...]:
    """Order by cost; of equal ones one pool first."""
    return *price_of(candidate), len(candidate.pools), *candidate.place


def _why_none(candidates: list[Candidate]) -> str:
    return " | ".join(
        f"{candidate}: {candidate.infeasible_reason or candidate.pruned_reason}"
        for candidate in candidates
    )
