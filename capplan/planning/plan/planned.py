"""The candidates of a plan: bounded, simulated one after the other, and priced."""

from dataclasses import replace
from typing import NamedTuple

from capplan.deployment.configuration import Configuration
from capplan.errors import collected_warnings, warn
from capplan.input_file import named_sha256
from capplan.planning.configure.excluded import Excluded
from capplan.planning.configure.launch import launch
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.executors import candidates_by, executor
from capplan.planning.evaluate.inputs import PlanInputs, Progress, plan_inputs
from capplan.planning.load.worst_windows import NO_WINDOWS
from capplan.planning.mix.mix import mix_of
from capplan.planning.plan.assumptions import assumptions
from capplan.planning.plan.result import NOT_IN_THE_RESULT, Plan
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


class Search(NamedTuple):
    """The candidates of a plan, before its best is told of in full."""

    inputs: PlanInputs
    tried: list[Configuration | Excluded]
    plan: Plan
    texts: list[str]  # warnings
    texts_of_inputs: list[str]  # those before the search


def inputs_of(
    settings: PlanSettings, progress: Progress, stopped: Stopped | None
) -> tuple[PlanInputs, list[Configuration | Excluded], list[str]]:
    """Return the inputs of a search, what it tries, and the warnings of these."""
    with collected_warnings() as texts:
        progress("reading the requests")
        inputs, tried = plan_inputs(settings)
    if settings.executor == "local":  # elsewhere Ctrl-C cannot be seen
        inputs = replace(inputs, stopped=stopped)
    return inputs, tried, texts


def searched(
    inputs: PlanInputs,
    tried: list[Configuration | Excluded],
    texts_of_inputs: list[str],
    progress: Progress,
) -> Search:
    """Return the candidates, and the mix of several where one is asked for."""
    with collected_warnings() as texts:
        result = planned(inputs, tried, progress)
        if inputs.settings.mix and not (result.interrupted or inputs.best_only):
            bests = result.best, result.best_estimated
            mix = mix_of(inputs, tried, result.candidates, bests, progress)
            result = replace(result, mix=mix)
    return Search(inputs, tried, result, [*texts_of_inputs, *texts], texts_of_inputs)


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
        best = min(without_doubts(feasible), key=cost_order)
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
    prospects, left_out = _promising(inputs, prospects, before, done)
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
                wave, candidates_by(workers, evaluate, inputs, wave), strict=True
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
        results = candidates_by(workers, tune, inputs, wanted)
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
    by_cost = sorted(feasible, key=cost_order)
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


def cost_order(candidate: Candidate) -> tuple[float, ...]:
    """Order by cost; of equal ones one pool first."""
    return *price_of(candidate), len(candidate.pools), *candidate.place


def _why_none(candidates: list[Candidate]) -> str:
    return " | ".join(
        f"{candidate}: {candidate.infeasible_reason or candidate.pruned_reason}"
        for candidate in candidates
    )
