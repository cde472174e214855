"""From requests, SLOs and GPUs to the fewest replicas, their cost and their proof."""

import time
import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from capplan.errors import CapplanWarning
from capplan.planning.assumptions import assumptions
from capplan.planning.candidates import (
    Prospect,
    candidate,
    cannot_serve,
    cannot_win,
    promise,
    pruned,
    solved,
)
from capplan.planning.configuration import Configuration, Excluded
from capplan.planning.executors import executor
from capplan.planning.inputs import PlanInputs, ask, asked, configuration_of, method
from capplan.planning.placing import PeakHeartbeat, peak_heartbeat
from capplan.planning.proof import bound_of, certificate_of
from capplan.planning.result import Candidate, Plan
from capplan.planning.settings import PlanSettings
from capplan.simulator.simulate import PolicySettings, check_engine
from capplan.workload.slo import Slo
from capplan.workload.trace import Trace

PAPER_THETA = 0.9
"""Aladdin's margin where prefill and decode do not share iterations."""
_WAVE = 4
"""Candidates simulated side by side before the others are held against them."""

Progress = Callable[[str], None]
"""Called with what is being worked on."""


def plan(request: PlanSettings, progress: Progress | None = None) -> Plan:
    """Return the fewest replicas of each configuration, and the best of them.

    Parameters
    ----------
    request
        What is asked.
    progress
        Called with each configuration as it is begun.

    Raises
    ------
    InputError
        When something asked for is wrong or missing.
    ProfileError
        When a profile is malformed or of something else.
    """
    started_s = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CapplanWarning)
        answer = _plan(request, progress or (lambda text: None))
    texts = dict.fromkeys(
        str(each.message)
        for each in caught
        if issubclass(each.category, CapplanWarning)
    )
    for each in caught:
        if not issubclass(each.category, CapplanWarning):
            warnings.warn_explicit(
                each.message, each.category, each.filename, each.lineno
            )
    return replace(
        answer, warnings=tuple(texts), runtime_s=time.perf_counter() - started_s
    )


def _plan(request: PlanSettings, progress: Progress) -> Plan:
    progress("reading the requests")
    question, tried = ask(request)
    done, prospects = _bounded(question, tried, progress)
    done += _simulated(question, done, prospects, progress)
    answer = _answer(question, done, tried)
    best = answer.best
    if best is None:
        return answer
    answer = replace(answer, certificate=certificate_of(question, best, tried))
    _, mip = method(request)
    if mip is None:
        return answer
    progress(f"placing the heartbeat that decides ({mip})")
    return replace(answer, placement=_placement(question, best, tried, mip))


def _bounded(
    question: PlanInputs, tried: list[Configuration | Excluded], progress: Progress
) -> tuple[list[Candidate], list[Prospect]]:
    """Return the configurations that cannot serve, and the others with their bounds."""
    done: list[Candidate] = []
    prospects: list[Prospect] = []
    for one in tried:
        if isinstance(one, Excluded):
            done.append(
                Candidate(one.gpu, one.tp, "infeasible", infeasible_reason=one.reason)
            )
            continue
        check_engine(one.engine)
        reason = cannot_serve(question, one)
        if reason is not None:
            done.append(candidate(one, "infeasible", infeasible_reason=reason))
            continue
        progress(f"bounding {one.gpu} × TP {one.tp}")
        prospects.append(Prospect(one, bound_of(question, one)))
    return done, sorted(prospects, key=promise)


def _simulated(
    question: PlanInputs,
    before: list[Candidate],
    prospects: list[Prospect],
    progress: Progress,
) -> list[Candidate]:
    """Return all prospects simulated, the most promising first, or pruned.

    A wave of them is as large on every machine, so that what is pruned is too.
    """
    request = question.request
    done: list[Candidate] = []
    with executor(request.executor, request.ray_address) as workers:
        while prospects:
            wave, prospects = prospects[:_WAVE], prospects[_WAVE:]
            names = ", ".join(str(prospect) for prospect in wave)
            progress(f"simulating {names} ({len(prospects)} more)")
            for found, texts in workers(solved, question, wave):
                done.append(found)
                for text in texts:
                    warnings.warn(text, CapplanWarning, stacklevel=2)
            left = []
            for prospect in prospects:
                reason = cannot_win(prospect, before + done)
                if reason is None:
                    left.append(prospect)
                else:
                    done.append(pruned(prospect, reason))
            prospects = left
    return done


def _placement(
    question: PlanInputs,
    best: Candidate,
    tried: list[Configuration | Excluded],
    solver: str,
) -> PeakHeartbeat | None:
    """Return what an exact placement says of the best configuration."""
    one = configuration_of(tried, best.gpu, best.tp)
    settings = PolicySettings()
    return peak_heartbeat(
        one,
        question.trace,
        question.slo,
        solver=solver,
        gamma=settings.gamma,
        theta=PAPER_THETA,
        seed=question.request.seed,
    )


def _answer(
    question: PlanInputs,
    done: list[Candidate],
    tried: list[Configuration | Excluded],
) -> Plan:
    feasible = [one for one in done if one.status == "feasible"]
    by_gpus = sorted(feasible, key=lambda one: (one.gpu_count, _usd(one), one.tp))
    by_cost = sorted(feasible, key=lambda one: (_usd(one), one.gpu_count, one.tp))
    others = [one for one in done if one.status != "feasible"]
    others.sort(key=lambda one: (one.status != "pruned", one.gpu, one.tp))
    trace = question.trace
    return Plan(
        status="feasible" if feasible else "infeasible",
        llm=str(question.request.llm),
        candidates=tuple(by_cost + others),
        slo_text=_slo_text(question.slo, trace),
        attainment=question.slo.attainment,
        trace_source=trace.source,
        request_count=len(trace),
        rate_per_s=trace.rate_per_s,
        mean_prompt_tokens=float(trace.prompt_tokens.mean()),
        mean_output_tokens=float(trace.output_tokens.mean()),
        duration_s=trace.duration_s,
        router=by_cost[0].router if by_cost else question.routers[0],
        seed=question.request.seed,
        best=by_cost[0] if by_cost else None,
        best_by_gpus=by_gpus[0] if by_gpus else None,
        infeasible_reason=None if feasible else _why_none(done),
        assumptions=assumptions(question.request, trace, done, tried),
        request=asked(question.request),
        slo_limits_s=_shared_limits_s(question.slo, trace),
    )


def _usd(one: Candidate) -> float:
    return np.inf if one.usd_per_h is None else one.usd_per_h


def _slo_text(slo: Slo, trace: Trace) -> str:
    if len(trace.class_names) == 1:
        return str(slo.of_class(trace.class_names[0]))
    return "; ".join(f"{name}: {slo.of_class(name)}" for name in trace.class_names)


def _shared_limits_s(slo: Slo, trace: Trace) -> dict[str, float]:
    """Return the limits that hold for every class of the trace alike. [s]"""
    columns = slo.columns(np.arange(len(trace.class_names)), trace.class_names)
    return {
        name: float(limits_s[0])
        for name, limits_s in zip(("ttft", "tpot", "e2e"), columns, strict=True)
        if np.isfinite(limits_s).all() and (limits_s == limits_s[0]).all()
    }


def _why_none(done: list[Candidate]) -> str:
    return " | ".join(
        f"{one.gpu} × TP {one.tp}: {one.infeasible_reason}" for one in done
    )
