"""The first screen of a plan: what to buy, its bill, the peak, how sure, what next."""

from collections.abc import Iterator
from math import inf

from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.probe import Probe
from capplan.planning.evaluate.run import Run
from capplan.planning.evaluate.too_slow import Shortfall
from capplan.planning.plan.purchase import CountCost, Purchase
from capplan.planning.plan.result import Plan
from capplan.planning.plan.throughput import WITHIN_SLO
from capplan.report import sentences, uncertain
from capplan.report.alike import merged
from capplan.report.columns import (
    format_count,
    format_fine_usd,
    format_list,
    format_load,
    format_share,
    plural,
)
from capplan.report.first_screen import (
    MOST_IDLE,
    Way,
    dollars,
    gpus_bought,
    idle,
    in_few_words,
    in_time,
    is_assumed,
    is_unsure,
    kind_text,
    least_bill,
    month,
    no_answer,
    rented,
    subject,
    sure,
    test_one,
    unknown_price,
    ways,
)
from capplan.report.page import Answer, Said
from capplan.report.render.terminal import MOST_ROWS
from capplan.units import format_duration

_UNSURE = "estimated: test before you buy"


def plan_title(plan: Plan) -> str:
    """Return the answer in a line, of a fixed form."""
    best = plan.best
    if best is None or best.run is None:
        none = "is known yet to hold" if plan.interrupted else "named here holds"
        return f"No GPU {none} {plan.slo_text}."
    bought = gpus_bought(best.run.deployment, best.cost)
    paid = format_list([plural(int(n), f"{gpu} GPU") for gpu, n in bought.items()])
    if best.cost is None:
        return f"Rent {paid}; their price is not known."
    unused = idle(best.cost.nodes)
    part = f": {format_count(unused)} of them idle" if unused else ""
    return f"Rent {paid} for {month(best)}{part}."


def plan_subject(plan: Plan) -> str:
    """Return whose plan it is, what arrives and what is promised."""
    arriving = f"{format_count(plan.rate_per_s)} requests/s"
    if plan.peak is not None:
        arriving += f", {format_count(plan.peak.rate_per_s)} at the peak"
    lengths = plan.mean_prompt_tokens, plan.mean_output_tokens
    promised = plan.slo_text, plan.attainment_text
    return subject(plan.llm, plan.asked_by or arriving, lengths, promised)


def plan_lead(plan: Plan) -> str:
    """Return the answer in two sentences for who pays."""
    best = plan.best
    if best is None or best.run is None:
        closest = min(plan.candidates, key=_times_the_limit, default=None)
        return "" if closest is None else f"{closest}: {_misses(closest)}."
    asked = plan.asked_by or f"{format_count(plan.rate_per_s)} requests a second"
    attained = best.run.judgement.attainment
    share = "" if attained is None else f"{format_share(attained.share)} of requests"
    they = "It serves" if best.gpu_count == 1 else "They serve"
    text = f"{they} {asked}. {share} are answered in time ({plan.slo_text})"
    text += f"; you asked for {plan.attainment_text}."
    fewer = _one_fewer(best)
    if fewer is not None:
        text += f" With one replica fewer, the peak {_told(plan, fewer)}."
    return text


def plan_answer(plan: Plan) -> Answer:
    """Return the first screen of a plan."""
    best = plan.best
    if best is None or best.run is None:
        return _without(plan)
    its_own = [text for text in merged(plan.warnings) if best.gpu in text]
    peak = _peak(plan, best.run)
    return Answer(
        rented(best),
        _cost(best),
        peak,
        sure(best),
        next(next_steps(plan), Said("")),
        ways(_rows(plan, best, peak.short)),
        its_own[:1],
    )


def _cost(best: Candidate) -> Said:
    cost, star = best.cost, is_assumed(best.cost)
    if cost is None:
        return unknown_price(best.gpu)
    of_tokens = cost.usd_per_million_output_tokens
    per = ""
    if of_tokens is not None:
        per = f"{format_fine_usd(of_tokens)}{'*' * star} per million output tokens"
    year = f"{dollars(cost.usd_per_year, star)} a year"
    return Said(
        f"{dollars(cost.usd_per_month, star)} a month",
        " · ".join(filter(None, (year, per))),
    )


def _to_spare(plan: Plan) -> tuple[str, str]:
    """Return how much of what the fleet carries is not used, and of how much."""
    row = next((row for row in plan.throughput if row.what == WITHIN_SLO), None)
    if row is None or row.used_share is None or not 0 < row.used_share <= 1:
        return "", ""
    used = row.rate_per_s * row.used_share
    text = f"{format_count(used)} of {format_count(row.rate_per_s)} requests/s"
    return f", {100 * (1 - row.used_share):.0f} % to spare", text


def _peak(plan: Plan, run: Run) -> Said:
    judgement, peak = run.judgement, plan.peak
    spare, carried = _to_spare(plan)
    if peak is not None:
        state = "holds" if peak.meets else "misses"
        busiest = f"{format_count(peak.rate_per_s)} requests/s, {peak.when}"
        parts = [f"{format_share(peak.slo_attainment)} in time at its {busiest}"]
        low = [row for row in plan.windows if row.is_judged and not row.meets]
        state = "misses" if low else state
        spare = ""
    else:
        state, parts = "holds", [carried]
    if judgement.steadiness.outpaced:
        load = format_load(judgement.steadiness.sustained)
        parts.append(f"{load} loaded by its end, so the backlog grows")
    of_all = " of all" if peak is not None else ""
    parts.insert(0, in_time(judgement, plan.attainment_text, of_all))
    return Said(f"{state}{spare}", " · ".join(filter(None, parts)))


def _one_fewer(best: Candidate) -> Probe | None:
    """Return the count below the planned one, where it was simulated."""
    if best.run is None or best.pools:
        return None
    count = best.run.replica_count - 1
    return next((row for row in best.probes if row.replica_count == count), None)


def _told(plan: Plan, probe: Probe) -> str:
    """Return how a count misses: by which limit, where 99 % of requests tell it."""
    if probe.meets is not False:
        return "is too close to the target to call"
    over = []
    if plan.attainment == 0.99 and not any(row.is_judged for row in probe.windows):
        for key, limit_s in plan.slo_limits_s.items():
            name = key.removesuffix("_s")
            seen_s = getattr(probe, f"{name}_p99_s", 0.0)  # of tbt it is not known
            if seen_s > limit_s:
                over.append((seen_s / limit_s, name, seen_s, limit_s))
    if over:
        _, name, seen_s, limit_s = max(over)
        seen, limit = format_duration(seen_s), format_duration(limit_s)
        return f"misses: {name} {seen}, not {limit}"
    if not (probe.missing or probe.stable):
        return f"misses: {sentences.growing(probe)}"
    return f"misses: {sentences.missed(probe)}"


def _of_count(best: Candidate, bought: Purchase, more: int) -> CountCost | None:
    count = (best.replica_count or 0) + more
    return next((x for x in bought.count_costs if x.replica_count == count), None)


def _rows(plan: Plan, best: Candidate, peak: str) -> list[Way]:
    """Return the chosen fleet, then what else there is to choose, at most six.

    ``peak`` says whether the chosen one holds.
    """
    bought, star = plan.purchase or Purchase(), is_assumed(best.cost)
    usd = None if best.cost is None else best.cost.usd_per_month
    name = f"{best.gpu_count:,} × {best.gpu}" if not best.pools else str(best)
    kind = kind_text(best.price) if best.cost else ""
    count = f"{best.gpu_count:,}"
    chosen = Way(", ".join(filter(None, (name, kind))), count, usd, peak, True)
    near = [
        *_asked_beside(plan, best),
        *_slow_engine(best),
        *_one_more(best, bought),
        *_fewer_row(plan, best, bought),
    ]
    others = list(_other_gpus(plan, best))
    paid = [row._replace(gpus=count, told=peak) for row in _other_payment(bought)]
    room = MOST_ROWS - 1
    others = others[: max(room - len(near) - len(paid), 2)]
    rows = [*near, *paid][: room - len(others)]
    return [chosen._replace(is_assumed=star), *rows, *others]


def _unit(best: Candidate) -> str:
    return "GPU" if best.gpus_per_replica == 1 else "replica"


def _asked_beside(plan: Plan, best: Candidate) -> Iterator[Way]:
    """Yield what was asked to stand beside the best: two pools or one, and a mix."""
    other = plan.best_aggregated if best.pools else plan.best_disaggregated
    if other is not None and (way := _candidate_row(best, other)) is not None:
        apart = "apart" if other.pools else "together"
        yield way._replace(name=f"prefill and decode {apart}")
    mix = plan.mix
    if mix is not None and mix.offered and mix.cost is not None:
        kinds = " and ".join(dict.fromkeys(pool.gpu for pool in mix.pools))
        count = sum(pool.gpu_count for pool in mix.pools)
        told = _UNSURE if mix.doubts else "holds"
        assumed, usd = is_assumed(mix.cost), mix.cost.usd_per_month
        yield Way(f"mix of {kinds}", f"{count:,}", usd, told, is_assumed=assumed)


def _slow_engine(best: Candidate) -> Iterator[Way]:
    if best.cautious is not None and best.cautious.gpu_count != best.gpu_count:
        count, usd = best.cautious.gpu_count, best.cautious_usd_per_month
        yield Way("with a slow engine", f"{count:,}", usd, "holds for 9 of 10 engines")


def _one_more(best: Candidate, bought: Purchase) -> Iterator[Way]:
    more = _of_count(best, bought, 1)
    if more is not None:
        held = "holds, also with one lost"
        name = f"1 {_unit(best)} more"
        yield Way(name, f"{more.gpu_count:,}", more.usd_per_month, held)


def _fewer_row(plan: Plan, best: Candidate, bought: Purchase) -> Iterator[Way]:
    fewer, cost = _one_fewer(best), _of_count(best, bought, -1)
    if fewer is not None and cost is not None:
        told = _told(plan, fewer)
        name, gpus = f"1 {_unit(best)} fewer", f"{cost.gpu_count:,}"
        yield Way(name, gpus, cost.usd_per_month, told)


def _other_payment(bought: Purchase) -> Iterator[Way]:
    """Yield the shortest commitment that is offered or assumed."""
    way = next((way for way in bought.ways if way.break_even is not None), None)
    if way is not None:
        name = way.name.replace(", ", " for ")
        yield Way(name, "", way.usd_per_month, "", is_assumed=way.is_assumed)


def _other_gpus(plan: Plan, best: Candidate) -> Iterator[Way]:
    """Yield the best of each other GPU type: its count, or the least that it takes."""
    found: dict[str, Way] = {}
    if (doubted := plan.best_estimated) is not None and doubted is not best:
        way = _candidate_row(best, doubted)
        if way is not None and uncertain.saving(plan, doubted):
            found[doubted.gpu] = way
    by_gpu: dict[str, list[Way]] = {}
    for row in plan.candidates:
        if row.gpu != best.gpu and (way := _candidate_row(best, row)):
            by_gpu.setdefault(row.gpu, []).append(way)
    for gpu, rows in by_gpu.items():
        found.setdefault(gpu, min(rows, key=_by_usd))
    yield from sorted(found.values(), key=_by_usd)


def _by_usd(way: Way) -> tuple[bool, float]:
    return way.usd is None, way.usd or 0.0


def _candidate_row(best: Candidate, row: Candidate) -> Way | None:
    layout = f"{row.gpu}, {row.layout_text}"
    if row.infeasible_reason:
        return Way(layout, "", None, _misses(row))
    if row.run is not None:
        told = _UNSURE if row.is_in_doubt else "holds"
        usd = None if row.cost is None else row.cost.usd_per_month
        about = ", GPUs ± 10 %" if row.coarse else ""
        return Way(layout, f"{row.gpu_count:,}", usd, f"{told}{about}")
    if not row.least or row.status != "pruned":
        return None
    gpus, usd, paid = least_bill(row.least)
    told = "not simulated: takes more GPUs"
    ours = None if best.cost is None else best.cost.usd_per_month
    if ours is not None and usd is not None and usd < ours:  # only of one in doubt
        told = "estimated, not simulated"
    elif best.cost is not None and usd is not None:
        limit = best.cost.usd_per_h / paid
        told = f"pays only below {format_fine_usd(limit)} a GPU-hour"
    return Way(layout, f"{gpus:,}", usd, told, is_least=True)


def next_steps(plan: Plan) -> Iterator[Said]:
    """Yield what to do now, the most valuable first."""
    best = plan.best
    if best is None or best.run is None:
        return
    bought = plan.purchase or Purchase()
    nodes = () if best.cost is None else best.cost.nodes
    paid, unused = sum(row.gpus_paid for row in nodes), idle(nodes)
    more = bought.paid_anyway
    if unused > MOST_IDLE * paid:
        many = plural(int(unused), "idle GPU")
        if more is not None:
            yield Said(
                f"use the {many}: run {more.replica_count:,} replicas",
                f"they hold {more.attained} in time for the same bill",
            )
        else:
            yield Said(
                f"look for a smaller node: {many} of {paid:,.0f} are paid",
                f"capplan prices --gpu {best.gpu}",
            )
    if is_unsure(best):
        yield test_one(best)
    one, planned = _of_count(best, bought, 1), _of_count(best, bought, 0)
    if one is not None and planned is not None:
        change = one.usd_against_planned
        usd = "" if change is None else f" for {dollars(change)} a month"
        yield Said(f"add 1 {_unit(best)}{usd}", "then the peak holds with one lost")
    if is_assumed(best.cost):
        yield Said(f"ask for a quote: the price of {best.gpu} is assumed")
    for way in _other_payment(bought):
        saved = 0.0 if best.cost is None else best.cost.usd_per_month - (way.usd or 0)
        if saved > 0:
            yield Said(f"{way.name}: saves {dollars(saved, way.is_assumed)} a month")


def _misses(row: Candidate) -> str:
    """Return why a candidate is none, in a few words."""
    return in_few_words(row.infeasible_reason or row.pruned_reason or "")


def _times_the_limit(row: Candidate) -> float:
    """Return the least time of a request over the limit; infinite where not known."""
    why = row.infeasible_reason
    return why.needed_s / why.limit_s if isinstance(why, Shortfall) else inf


def _without(plan: Plan) -> Answer:
    """Return the first screen of a plan without an answer."""
    closest = sorted(plan.candidates, key=_times_the_limit)
    found: dict[str, Way] = {}
    for row in closest:
        found.setdefault(row.gpu, Way(str(row), "", None, _misses(row)))
    relax = Said("relax what is missed, or name other GPUs", "--slo, --gpu, --tp")
    if closest and isinstance(why := closest[0].infeasible_reason, Shortfall):
        limit = format_duration(why.needed_s)
        relax = Said(
            f"relax {why.limit} to more than {limit}", "or name faster GPUs: --gpu"
        )
    if plan.interrupted:
        relax = Said("let it run to its end")
    return no_answer(
        Said("misses", "with any number of replicas"),
        relax,
        ways(list(found.values())[:MOST_ROWS], "what misses", "why"),
    )
