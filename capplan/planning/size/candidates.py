"""One configuration at a time: bounded, pruned or simulated, and priced."""

import math
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import one_fewer
from capplan.errors import HostFullError
from capplan.planning.configure.configuration import with_budget
from capplan.planning.configure.scheduling import is_vllm, widest_alone
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.executors import Interrupted
from capplan.planning.evaluate.inputs import PlanInputs
from capplan.planning.evaluate.probe import Probe
from capplan.planning.evaluate.run import Run
from capplan.planning.evaluate.too_slow import too_slow
from capplan.planning.load.unbatched import unbatched
from capplan.planning.money.quota import over_quota
from capplan.planning.settings.groups import BUDGETS
from capplan.planning.size.cautions import extrapolations
from capplan.planning.size.counts import Fewest, RunWith, attained
from capplan.planning.size.fewest_replicas import binding_limit, fewest_replicas
from capplan.planning.size.insisted import with_run
from capplan.planning.size.prospects import MOST_REPLICAS, Prospect
from capplan.planning.size.shape import Shape
from capplan.simulator.checks import oversized, refusal

_SURER = (1.5, 2.25, 4.0)
"""Times a count that is too close to call of which one may decide."""


def cannot_serve(inputs: PlanInputs, configuration: Configuration) -> str | None:
    """Return why no number of replicas serves the requests, or None."""
    requests, engine = inputs.load.base, configuration.engine
    too_large = oversized(requests, engine)
    if too_large.any():
        return (
            f"{int(too_large.sum()):,} requests do not fit a replica, which holds "
            f"{engine.kv_capacity_tokens:,} tokens"
        )
    if refused := refusal(requests, engine):
        return refused
    engine, tables = widest_alone(configuration)
    alone = unbatched(inputs.trace, tables, engine)
    return too_slow(alone, inputs.slo, inputs.load)


def pruned(prospect: Prospect, reason: str) -> Candidate:
    """Return the candidate of a configuration that is not worth simulating."""
    return replace(prospect.candidate("pruned"), pruned_reason=reason)


def evaluate(
    inputs: PlanInputs, prospect: Prospect
) -> tuple[Candidate, tuple[str, ...]]:
    """Find the fewest replicas of a configuration; return it with its warnings.

    Of one that needs more than ``prospect.max_replicas`` the count is found to 10 %,
    or, where only the best is asked for, not at all.
    """
    shape = chosen = Shape((prospect,), inputs.settings, inputs.routers[0])
    best, at_least = Fewest(None), prospect.at_least
    for router in inputs.routers:
        shape = replace(shape, router=router)
        run_with = partial(shape.run, inputs)
        if best.run is None:
            best, chosen = _first(inputs, prospect, run_with), shape
            if best.interrupted:
                break
            continue
        # A later router matters only where it saves replicas.
        max_replicas = best.run.replica_count - 1
        if max_replicas < at_least:
            continue
        better = _up_to(run_with, at_least, max_replicas, told=False)
        if better.run is not None:
            best, chosen = better, shape
    if best.run is None and inputs.best_only and not best.interrupted:
        most = prospect.max_replicas
        known = prospect if best.close else replace(prospect, held=most + 1)
        reason = f"needs more than {most} replicas"
        return replace(pruned(known, reason), close=best.close), ()
    return described(inputs, chosen, best)


def _first(inputs: PlanInputs, prospect: Prospect, run_with: RunWith) -> Fewest:
    """Return the fewest replicas with the first router that serves."""
    at_least, max_replicas = prospect.at_least, prospect.max_replicas
    settled_by = 2 * prospect.held or None
    most = min(MOST_REPLICAS, inputs.load.most_replicas or MOST_REPLICAS)
    if max_replicas >= most:
        return fewest_replicas(run_with, min(at_least, most), most, settled_by)
    within = Fewest(None)
    if max_replicas >= at_least:
        within = _up_to(run_with, at_least, max_replicas, told=not inputs.best_only)
    if within.close and inputs.likely is not None:
        within = _above(run_with, within, max_replicas)
    if within.run is not None or within.interrupted or inputs.best_only:
        return within
    begin = max(at_least, max_replicas + 1)
    above = fewest_replicas(run_with, begin, most, settled_by, coarse=True)
    return replace(above, runs=(*within.runs, *above.runs), close=within.close)


def _above(run_with: RunWith, within: Fewest, max_replicas: int) -> Fewest:
    """Return what a limit leaves open as closed, where more replicas meet the SLO.

    Then the fewest decided to meet it are above the limit, as a search that begins
    below finds them.
    """
    for times in _SURER:
        try:
            if run_with((math.ceil(times * max_replicas),)).judgement.meets:
                return replace(within, close=())
        except Interrupted:
            return replace(within, interrupted=True)
        except HostFullError:
            break
    return within


class Tuning(NamedTuple):
    """A configuration whose token budget is to be tuned."""

    prospect: Prospect  # with its bound
    router: str  # to tune it with
    max_replicas: int  # replicas at which it saves GPUs or cost


class Tuned(NamedTuple):
    """What smaller token budgets save."""

    candidate: Candidate | None  # None where none is decided to save replicas
    warnings: tuple[str, ...]
    too_close: int | None = None  # replicas of which no budget decides that they do


def is_tuned(inputs: PlanInputs, configuration: Configuration) -> bool:
    """Return whether smaller token budgets are tried.

    Of schedulers that are not vLLM's only where the budgets to try are given.
    """
    return inputs.settings.tune and bool(
        inputs.budgets or is_vllm(configuration.engine)
    )


def tune(inputs: PlanInputs, tuning: Tuning) -> Tuned:
    """Find fewer replicas with a smaller token budget.

    A smaller budget keeps long prompts from stretching the iterations that others
    decode in. Every schedule that it allows the larger one allows too, so that the
    lower bound holds.
    """
    prospect, max_replicas = tuning.prospect, tuning.max_replicas
    engine = prospect.configuration.engine
    at_least = max(1, prospect.bound.replica_count)
    found = Tuned(None, ())
    for budget in inputs.budgets or BUDGETS:
        if budget >= engine.max_num_batched_tokens or max_replicas < at_least:
            continue
        configuration = with_budget(prospect.configuration, budget)
        if refusal(inputs.load.base, configuration.engine):
            continue  # a prompt that is not cut is longer
        tuned = replace(prospect, configuration=configuration)
        shape = Shape((tuned,), inputs.settings, tuning.router)
        run_with = partial(shape.run, inputs)
        better = _up_to(run_with, at_least, max_replicas, told=False)
        if better.run is not None:
            max_replicas = better.run.replica_count - 1
            found = Tuned(*described(inputs, shape, better))
        elif better.close and found.candidate is None:
            text = (
                f"{prospect}: {max_replicas:,} replicas with "
                f"--max-num-batched-tokens {budget} are too close to the target to call"
            )
            found = Tuned(None, (*found.warnings, text), max_replicas)
    return found


def _up_to(
    run_with: RunWith, at_least: int, max_replicas: int, *, told: bool
) -> Fewest:
    """Return the fewest replicas up to a count; no run where it is not decided.

    Where that count misses the SLO, its figures are complete if they are ``told``.
    """
    try:
        run = run_with((max_replicas,), only_whether=not told)
    except Interrupted:
        return Fewest(None, interrupted=True)
    except HostFullError:
        return Fewest(None)
    meets = run.judgement.meets
    if meets:  # the search comes to this count again
        fewest = fewest_replicas(
            lambda counts: run if counts == (max_replicas,) else run_with(counts),
            at_least,
            max_replicas,
        )
        if fewest.decided:
            return fewest
    return Fewest(None, (run,), close=() if meets is False else ((max_replicas,),))


def described(
    inputs: PlanInputs, shape: Shape, found: Fewest
) -> tuple[Candidate, tuple[str, ...]]:
    """Return what a search found as a candidate, with its warnings."""
    run, probes = found.run, tuple(map(Probe.of, found.runs))
    if run is None:
        status, why = _without_run(shape, found, probes)
        name = "infeasible_reason" if status == "infeasible" else "pruned_reason"
        reason: dict[str, Any] = {name: why}
        close = found.close if status == "pruned" else ()
        candidate = replace(shape.candidate(status), probes=probes, close=close)
        return replace(candidate, **reason), ()
    candidate = replace(
        with_run(shape.candidate("feasible"), run, found.runs),
        decided=found.decided,
        coarse=found.coarse,
        cut_short=found.interrupted,
        close=found.close,
        probes=probes,
    )
    texts, fewer = extrapolations(run), "cheaper pools may hold"
    if len(shape.pools) == 1:
        count, below = run.replica_count, one_fewer(run.deployment.counts)
        less = [each for each in found.runs if each.replica_count < count]
        candidate = replace(
            candidate,
            decided=found.decided and not {*below} & {*found.close},
            binding=binding_limit(less[-1] if less else None),
            **({} if found.interrupted else _cautious(inputs, shape, run)),
        )
        over = over_quota(inputs.settings.max_nodes, run.deployment.pools)
        if over is not None:
            candidate = shape.candidate("infeasible")
            return replace(candidate, infeasible_reason=over, probes=probes), ()
        fewer = f"{count:,} replicas hold, and fewer may"
    if found.interrupted:
        texts = (f"{shape}: interrupted; {fewer}", *texts)
    return candidate, texts


def _without_run(
    shape: Shape, found: Fewest, probes: tuple[Probe, ...]
) -> tuple[str, str]:
    """Return the status of a shape of which no counts were found, and why."""
    is_one = len(shape.pools) == 1
    if found.interrupted:
        counts = ", ".join(f"{probe.replica_count:,}" for probe in probes)
        if is_one and not counts:
            return "interrupted", "not simulated before Ctrl-C"
        of = f" of {counts} replicas" if is_one else ""
        return "interrupted", f"none{of} was shown to hold before Ctrl-C"
    if shape.rivals:
        return "pruned", "costs more than the best: no cheaper pools hold"
    run, last = found.runs[-1], probes[-1]
    if not is_one:
        first, second = run.deployment.counts
        return "infeasible", (
            f"{first:,} replicas for prompts and {second:,} for decoding: "
            f"{100 * attained(run):.2f} % of requests in time with router "
            f"{run.deployment.router}, and many more do not help"
        )
    missing = ", ".join(last.missing)
    classes = len(run.simulation.class_names) > 1 and missing
    return "infeasible", (
        f"{last.replica_count:,} replicas: {last.attained} with router {shape.router}"
        + (f", class {missing} misses its target" if classes else "")
        + ("" if last.stable else ", the wait in the queue grows")
        + ", and more do not help"
    )


def _cautious(inputs: PlanInputs, shape: Shape, run: Run) -> dict[str, Any]:
    """Return how many replicas serve if engines are as slow as one of ten is.

    To 10 %, by the fields of a candidate: the count, or that none is near. Without any
    where the latency is in no doubt.
    """
    configuration, count = run.configuration, run.replica_count
    slowdown, share = configuration.cautious_slowdown, configuration.cautious_share
    if not slowdown or not share:
        return {}
    slower = configuration.slowed(slowdown)
    if cannot_serve(inputs, slower):
        return {"cautious_fails": True}
    most = min(MOST_REPLICAS, max(16, math.ceil(4 * count / share)))
    pool = replace(shape.pools[0], configuration=slower)
    run_with = partial(replace(shape, pools=(pool,)).run, inputs)
    found = fewest_replicas(run_with, count, most, coarse=True)
    if found.run is None:
        return {"cautious_fails": not found.interrupted}
    return {"cautious_count": found.run.replica_count}
