"""From requests, SLOs and GPUs to the fewest replicas, their cost and their proof."""

import math
import time
from dataclasses import replace

from capplan.errors import InputError, collected_warnings
from capplan.planning.configure.speculation import SEARCHED, is_searched, with_drafts
from capplan.planning.configure.tier import is_tier_searched, with_size
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.inputs import Progress, unseen
from capplan.planning.evaluate.known_runs import KnownRuns
from capplan.planning.plan.planned import Search, cost_order, inputs_of, searched
from capplan.planning.plan.result import NOT_IN_THE_RESULT, Plan, in_full
from capplan.planning.plan.speculation_worth import best_of_drafts
from capplan.planning.plan.tier_search import (
    SIZES,
    TiersTried,
    gib_of,
    tried_size,
)
from capplan.planning.plan.told import Told
from capplan.planning.settings.plan import PlanSettings
from capplan.simulator.fleet.fleet import Stopped

_KEPT_BYTES = 2**28
"""Memory of simulations kept of the search for a number of drafted tokens. [bytes]"""


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
        search = searched(*inputs_of(settings, progress, stopped), progress)
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


def _with_any_drafts(
    settings: PlanSettings, progress: Progress, stopped: Stopped | None
) -> Search:
    """Return the best of no drafts and one to three; only it is told of in full."""
    plans: dict[int, Plan] = {}
    for drafts in SEARCHED:
        progress(f"planning with {drafts} drafted tokens")
        search = _priced(with_drafts(settings, drafts), progress, stopped)
        plans[drafts] = search.plan
        chosen, tried = best_of_drafts(plans, cost_order)
        if chosen == drafts:
            best = search
    interrupted = any(each.interrupted for each in plans.values())
    best = _completed(best, interrupted, progress)
    return best._replace(plan=replace(best.plan, drafts_tried=tried))


def _with_any_tier(
    settings: PlanSettings, progress: Progress, stopped: Stopped | None
) -> Search:
    """Return the best with the smallest tier that pays, or without any.

    All of the free memory is tried first, of each candidate with the most replicas that
    save money; less of it while that costs no more, on the best GPU type and layout.
    """
    if is_searched(settings):
        raise InputError(
            "kv_offloading_size auto and drafts without num_speculative_tokens: a plan "
            "finds one of them; give GIB, or the number of drafted tokens"
        )
    progress("planning with no tier")
    none, *parts = SIZES
    found = best = _priced(with_size(settings, none), progress, stopped)
    rows = [tried_size(none, found.plan)]
    kept, asked, to_beat = none, settings, rows[0].price
    for size in parts:
        if found.plan.interrupted:
            break
        progress(f"planning with a tier of {size} of the free host memory")
        found = _priced(with_size(asked, size), progress, stopped, to_beat)
        rows.append(tried_size(size, found.plan))
        usd_per_h, gpu_count = rows[-1].price
        if not (usd_per_h, gpu_count) < to_beat:
            break
        assert found.plan.best is not None
        best, kept, asked = found, size, of_best(settings, found.plan.best)
        to_beat = usd_per_h, gpu_count + 0.5  # less memory is to cost no more
    if kept != none and not found.plan.interrupted:  # all candidates are told of
        inputs, tried, texts = inputs_of(with_size(settings, kept), progress, stopped)
        inputs = replace(inputs, simulate_with=best.inputs.simulate_with)
        best = best._replace(inputs=inputs, tried=tried, texts_of_inputs=texts)
    best = _completed(best, found.plan.interrupted, progress)
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
) -> Search:
    """Return a search that tells no more than what the best costs, if it is less."""
    given = inputs_of(settings, progress, stopped)
    inputs = replace(given[0], best_only=True, only_price=True, to_beat=to_beat)
    if settings.executor == "local":
        inputs = replace(inputs, simulate_with=KnownRuns(_KEPT_BYTES))
    return searched(inputs, *given[1:], progress)


def _completed(best: Search, interrupted: bool, progress: Progress) -> Search:
    """Return the best of several searches with all its candidates."""
    if not interrupted:
        inputs = replace(best.inputs, best_only=False, only_price=False)
        search = searched(inputs, best.tried, best.texts_of_inputs, progress)
        interrupted = search.plan.interrupted
        best = best if interrupted else search
    return best._replace(plan=replace(best.plan, interrupted=interrupted))
