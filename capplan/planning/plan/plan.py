"""From requests, SLOs and GPUs to the fewest replicas, their cost and their proof."""

import math
import time
from dataclasses import replace

from capplan.errors import InputError, collected_warnings
from capplan.planning.configure.speculation import SEARCHED, is_searched, with_drafts
from capplan.planning.configure.tier import is_tier_searched, with_size
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.executors import Interrupted
from capplan.planning.evaluate.inputs import Progress, unseen
from capplan.planning.evaluate.known_runs import KnownRuns
from capplan.planning.plan.planned import Search, cost_order, inputs_of, searched
from capplan.planning.plan.result import NOT_IN_THE_RESULT, Plan, in_full
from capplan.planning.plan.speculation_worth import best_of_drafts
from capplan.planning.plan.tier_search import (
    SIZES,
    TiersTried,
    TierTried,
    gib_of,
    tried_size,
    with_less,
)
from capplan.planning.plan.told import Told
from capplan.planning.settings.plan import PlanSettings
from capplan.simulator.fleet.fleet import Stopped

_KEPT_BYTES = 2**28
"""Memory of simulations kept of the search for a number of drafted tokens. [bytes]"""
_ANY = math.inf, math.inf
"""$/h and GPUs that all candidates cost less than."""


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
    save money; less of it while the best's replicas hold with that.
    """
    if is_searched(settings):
        raise InputError(
            "kv_offloading_size auto and drafts without num_speculative_tokens: a plan "
            "finds one of them; give GIB, or the number of drafted tokens"
        )
    none, most = SIZES[:2]
    progress("planning with no tier")
    without = _priced(with_size(settings, none), progress, stopped)
    rows = [tried_size(none, without.plan)]
    if without.plan.interrupted:
        return _with_tiers(without, rows)
    progress(f"planning with a tier of {most} of the free host memory")
    asked, to_beat = with_size(settings, most), rows[0].price
    found = _priced(asked, progress, stopped, to_beat, _key_of(without))
    rows.append(tried_size(most, found.plan))
    best = found.plan.best
    if best is None or not rows[-1].price < to_beat:
        interrupted = found.plan.interrupted
        return _with_tiers(_completed(without, interrupted, progress), rows)
    return _with_less_memory(settings, found, rows, progress, stopped)


def _with_less_memory(
    settings: PlanSettings,
    found: Search,
    rows: list[TierTried],
    progress: Progress,
    stopped: Stopped | None,
) -> Search:
    """Return the best with the smallest tier with which its replicas hold."""
    assert found.plan.best is not None
    of = of_best(settings, found.plan.best)
    try:
        for size in SIZES[2:]:
            progress(f"trying a tier of {size} of the free host memory")
            inputs, tried, _ = inputs_of(with_size(of, size), progress, stopped)
            rows.append(with_less(size, found.plan.best, inputs, tried))
            if rows[-1].gpu_count is None:
                break
    except Interrupted:
        return _with_tiers(_completed(found, True, progress), rows)
    held = [row for row in rows[1:] if row.gpu_count is not None]
    for row in reversed(held):  # with it the best may take more, searched in full
        inputs, tried, texts = inputs_of(
            with_size(settings, row.size), progress, stopped
        )
        chosen = Search(inputs, tried, found.plan, [], texts)
        chosen = _completed(chosen, False, progress, best_only=True)
        if tried_size(row.size, chosen.plan).price <= row.price:
            break
    return _with_tiers(chosen, rows)


def _with_tiers(search: Search, rows: list[TierTried]) -> Search:
    """Return a search with what each size of the tier took."""
    tiers = TiersTried(tuple(rows), gib_of(search.plan))
    return search._replace(plan=replace(search.plan, tiers_tried=tiers))


def _key_of(search: Search) -> tuple[str, str] | None:
    """Return the GPU type and layout of the best; None without one."""
    return None if search.plan.best is None else search.plan.best.key


def of_best(settings: PlanSettings, best: Candidate) -> PlanSettings:
    """Return the settings of a plan of one GPU type and layout."""
    assert best.run is not None
    only = settings.of(best.run.configuration.layout)
    return settings.model_copy(update={"gpu": best.gpus, **only})


def _priced(
    settings: PlanSettings,
    progress: Progress,
    stopped: Stopped | None,
    to_beat: tuple[float, float] = _ANY,
    likely: tuple[str, str] | None = None,
) -> Search:
    """Return a search that tells no more than what the best costs, if it is less."""
    given = inputs_of(settings, progress, stopped)
    inputs = replace(given[0], best_only=True, only_price=True)
    inputs = replace(inputs, to_beat=to_beat, likely=likely)
    if settings.executor == "local":
        inputs = replace(inputs, simulate_with=KnownRuns(_KEPT_BYTES))
    return searched(inputs, *given[1:], progress)


def _completed(
    best: Search, interrupted: bool, progress: Progress, best_only: bool = False
) -> Search:
    """Return the best of several searches with all its candidates.

    With ``best_only`` of the others only that they are not the best.
    """
    if not interrupted:
        inputs = replace(best.inputs, best_only=best_only, only_price=False)
        inputs = replace(inputs, likely=_key_of(best))
        search = searched(inputs, best.tried, best.texts_of_inputs, progress)
        interrupted = search.plan.interrupted
        best = best if interrupted else search
    return best._replace(plan=replace(best.plan, interrupted=interrupted))
