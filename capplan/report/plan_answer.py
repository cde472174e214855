"""The first screen of a plan: what to buy, its bill, the peak, how sure, what next."""

from collections.abc import Iterator
from math import inf

from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.probe import Probe
from capplan.planning.evaluate.run import Run
from capplan.planning.evaluate.too_slow import Shortfall
from capplan.planning.money.cost import nodes_of, usd_per_month
from capplan.planning.plan.last_replica import LastPoints
from capplan.planning.plan.purchase import CountCost
from capplan.planning.plan.result import Plan
from capplan.planning.plan.sticky import StickyWorth
from capplan.planning.plan.throughput import WITHIN_SLO
from capplan.report import sentences, uncertain
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
    billed,
    dollars,
    gpus_bought,
    held,
    idle,
    in_few_words,
    in_time,
    is_assumed,
    is_unsure,
    kind_text,
    month,
    no_answer,
    rented,
    subject,
    sure,
    test_one,
    ways,
)
from capplan.report.page import Answer, Said
from capplan.report.render.terminal import MOST_ROWS
from capplan.report.window_sentences import window_length
from capplan.units import format_duration

_DOUBTED = {True: "estimated: test before you buy", False: "holds"}
"""Whether what was simulated holds, by whether its times are in doubt."""


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
    share = ""
    if attained is not None:
        share = f"{format_share(attained.share)} of {sentences.judged(best.run)}"
    they = "It serves" if best.gpu_count == 1 else "They serve"
    text = f"{they} {asked}. {share} are answered in time ({plan.slo_text})"
    text += f"; you asked for {plan.attainment_text}."
    fewer = _one_fewer(best)
    if fewer is not None:
        text += (
            f" With one replica fewer, the {held(plan.sessions)} {_told(plan, fewer)}."
        )
    return text


def plan_answer(plan: Plan) -> Answer:
    """Return the first screen of a plan."""
    best = plan.best
    if best is None or best.run is None:
        return _without(plan)
    peak = _peak(plan, best.run)
    return Answer(
        rented(best, "host memory for KV saves nothing" if plan.tiers_tried else ""),
        _cost(best),
        peak,
        sure(best),
        next(next_steps(plan), Said("")),
        ways(_rows(plan, best, peak.short), told=held(plan.sessions)),
        held=held(plan.sessions),
    )


def plan_warnings(plan: Plan) -> list[str]:
    """Return what to check, of the best first; a single candidate is not named."""
    best, rows = plan.best, plan.candidates
    texts = sorted(plan.warnings, key=lambda text: not best or best.gpu not in text)
    for row in rows if len(rows) == 1 else ():
        names = f"{plan.llm} on {row.gpu}, TP {row.tp}: ", f"{row}: "
        texts = [text.removeprefix(names[0]).removeprefix(names[1]) for text in texts]
    return texts


def _cost(best: Candidate) -> Said:
    usd = None if best.cost is None else best.cost.usd_per_million_output_tokens
    per = ""
    if usd is not None:
        star = "*" * is_assumed(best.cost)
        per = f"{format_fine_usd(usd)}{star} per million output tokens"
    return billed(best.cost, best.gpu, per)


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
    (spare, told), state, of_all = _to_spare(plan), "holds", ""
    if peak is not None:
        low = [row for row in plan.windows if row.is_judged and not row.meets]
        state, spare = "misses" if low or not peak.meets else "holds", ""
        busiest = f"{format_count(peak.rate_per_s)} requests/s, {peak.when}"
        told = f"{format_share(peak.slo_attainment)} in time at its {busiest}"
        of_all = " of all"
    if run.sessions is not None:
        told = sentences.of_sessions(run.sessions)
    grows = ""
    if judgement.steadiness.outpaced:
        load = format_load(judgement.steadiness.sustained)
        grows = f"{load} loaded by its end, so the backlog grows"
    share = in_time(judgement, plan.attainment_text, of_all)
    return Said.of(f"{state}{spare}", share, told, grows)


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
    low = next((row for row in probe.windows if row.is_judged and not row.meets), None)
    if low is not None:  # --explain peak says when
        share, length = format_share(low.slo_attainment), low.joined * low.seconds
        return f"misses: {share} in the worst {window_length(length)}"
    return f"misses: {sentences.missed(probe)}"


def _of_count(plan: Plan, more: int) -> CountCost | None:
    """Return what so many replicas more than planned cost."""
    planned = 0 if plan.best is None else plan.best.replica_count or 0
    rows = () if plan.purchase is None else plan.purchase.count_costs
    return next((row for row in rows if row.replica_count == planned + more), None)


def _rows(plan: Plan, best: Candidate, peak: str) -> list[Way]:
    """Return the chosen fleet, then what else there is to choose, at most six.

    ``peak`` says whether the chosen one holds.
    """
    star, count = is_assumed(best.cost), best.gpu_count or 0
    usd = None if best.cost is None else best.cost.usd_per_month
    name = f"{count:,} × {best.gpu}" if not best.pools else str(best)
    if best.run is not None and len(best.gpus) > 1:
        pools = best.run.deployment.pools
        name = " + ".join(f"{p.gpu_count:,} × {p.configuration.gpu}" for p in pools)
    kind = kind_text(best.price) if best.cost else ""
    name = ", ".join(filter(None, (name, kind)))
    chosen = Way(name, count, usd, peak, is_chosen=True, is_assumed=star)
    paid = [row._replace(gpus=count, told=peak) for row in _other_payment(plan)]
    near, others = [*_near(plan, best), *paid], list(_other_gpus(plan, best))
    room = MOST_ROWS - 1
    others = others[: max(room - len(near), 2)]
    return [chosen, *near[: room - len(others)], *others]


def _unit(best: Candidate) -> str:
    return "GPU" if best.gpus_per_replica == 1 else "replica"


def _near(plan: Plan, best: Candidate) -> Iterator[Way]:
    """Yield what was asked beside the best, a slow engine, one GPU more and fewer."""
    other = plan.best_aggregated if best.pools else plan.best_disaggregated
    if other is not None and (way := _candidate_row(best, other)) is not None:
        apart = "apart" if other.pools else "together"
        yield way._replace(name=f"prefill and decode {apart}")
    mix = plan.mix
    if mix is not None and mix.offered and mix.cost is not None:
        name = f"mix of {' and '.join(dict.fromkeys(pool.gpu for pool in mix.pools))}"
        count, told = sum(p.gpu_count for p in mix.pools), _DOUBTED[bool(mix.doubts)]
        assumed, usd = is_assumed(mix.cost), mix.cost.usd_per_month
        yield Way(name, count, usd, told, is_assumed=assumed)
    slow, usd_slow = best.cautious, best.cautious_usd_per_month
    if slow is not None and slow.gpu_count != best.gpu_count:
        told = "holds for 9 of 10 engines"
        yield Way("with a slow engine", slow.gpu_count, usd_slow, told)
    if plan.sticky is not None:
        yield _without_sticking(plan.sticky, best)
    if more := _of_count(plan, 1):
        told = "holds, also with one lost"
        yield Way(f"1 {_unit(best)} more", more.gpu_count, more.usd_per_month, told)
    probe, fewer = _one_fewer(best), _of_count(plan, -1)
    if probe is not None and fewer is not None:
        name, told = f"1 {_unit(best)} fewer", _told(plan, probe)
        yield Way(name, fewer.gpu_count, fewer.usd_per_month, told)
    if plan.last_points is not None and plan.last_points.replica_count_more > 1:
        yield _without_last_points(plan, best, plan.last_points)


def _without_last_points(plan: Plan, best: Candidate, last: LastPoints) -> Way:
    """Return the fleet that misses by few points, and costs far less."""
    probe = next(x for x in best.probes if x.replica_count == last.replica_count)
    gpus = (best.gpu_count or 0) - last.gpu_count_more
    usd = None
    if best.cost is not None and last.usd_per_month is not None:
        usd = best.cost.usd_per_month - last.usd_per_month
    name, told = f"{last.replica_count_more} {_unit(best)}s fewer", _told(plan, probe)
    return Way(name, gpus, usd, told, is_assumed=is_assumed(best.cost))


def _without_sticking(sticky: StickyWorth, best: Candidate) -> Way:
    """Return the fleet whose router sends turns to any replica."""
    name, each = f"sessions do not stick ({sticky.router})", best.gpus_per_replica or 1
    if sticky.gpu_count is None or best.run is None:
        most = sticky.most_replicas * each
        return Way(name, f">{most:,}", None, f"misses with up to {most:,} GPUs")
    fleet = best.run.deployment.with_replicas(sticky.gpu_count // each)
    usd = usd_per_month(fleet.pools) if best.cost else None
    return Way(name, sticky.gpu_count, usd, "holds", is_assumed=is_assumed(best.cost))


def _other_payment(plan: Plan) -> Iterator[Way]:
    """Yield the shortest commitment that is offered or assumed."""
    ways = () if plan.purchase is None else plan.purchase.ways
    if way := next((way for way in ways if way.break_even is not None), None):
        name = way.name.replace(", ", " for ")
        yield Way(name, "", way.usd_per_month, "", is_assumed=way.is_assumed)


def _other_gpus(plan: Plan, best: Candidate) -> Iterator[Way]:
    """Yield the best of each other GPU type: its count, or the least that it takes."""
    found: dict[str, Way] = {}
    able = {row.gpu for row in plan.candidates if row.status == "pruned"}
    for row in plan.candidates:
        if row.gpu == best.gpu or (row.infeasible_reason and row.gpu in able):
            continue  # a layout that cannot serve says nothing of one that may
        if way := _candidate_row(best, row):
            found[row.gpu] = min(found.get(row.gpu, way), way, key=_by_usd)
    if (doubted := plan.best_estimated) is not None and doubted is not best:
        way = _candidate_row(best, doubted)
        if way is not None and uncertain.saving(plan, doubted):
            found[doubted.gpu] = way
    yield from sorted(found.values(), key=_by_usd)


def _by_usd(way: Way) -> tuple[bool, float]:
    return way.usd is None, way.usd or 0.0


def _candidate_row(best: Candidate, row: Candidate) -> Way | None:
    layout = f"{row.gpu}, {row.layout_text}"
    if row.infeasible_reason:
        return Way(layout, "", None, _misses(row))
    if row.run is not None:
        told = _DOUBTED[row.is_in_doubt] + ", GPUs ± 10 %" * row.coarse
        usd = None if row.cost is None else row.cost.usd_per_month
        return Way(layout, row.gpu_count or 0, usd, told)
    if not row.least or row.status != "pruned":
        return None
    gpus, nodes = sum(pool.gpu_count for pool in row.least), nodes_of(row.least)
    usd, told = usd_per_month(row.least), "not simulated: takes more GPUs"
    if best.cost is not None and usd is not None:
        paid = sum(node.gpus_paid for node in nodes or ())
        limit = format_fine_usd(best.cost.usd_per_h / paid)
        told = f"pays only below {limit} a GPU-hour"
        if usd < best.cost.usd_per_month:  # only of one in doubt: it says nothing
            return None
    return Way(layout, gpus, usd, told, is_least=True)


def next_steps(plan: Plan) -> Iterator[Said]:
    """Yield what to do now, the most valuable first."""
    best = plan.best
    if best is None or best.run is None:
        return
    nodes = () if best.cost is None else best.cost.nodes
    paid, unused = sum(row.gpus_paid for row in nodes), idle(nodes)
    if unused > MOST_IDLE * paid:
        many = plural(int(unused), "idle GPU")
        more = None if plan.purchase is None else plan.purchase.paid_anyway
        step = f"look for a smaller node: {many} of {paid:,.0f} are paid"
        how = f"capplan prices --gpu {best.gpu}"
        if more is not None:
            step = f"use the {many}: run {more.replica_count:,} replicas"
            how = f"they hold {more.attained} in time for the same bill"
        yield Said(step, how)
    if is_unsure(best):
        test = test_one(best)
        can_export = uncertain.has_load_test(plan)
        yield test._replace(more=uncertain.EXPORTED) if can_export else test
    one = _of_count(plan, 1)
    if one is not None and _of_count(plan, 0) is not None:
        change = one.usd_against_planned
        usd = "" if change is None else f" for {dollars(change)} a month"
        yield Said(
            f"add 1 {_unit(best)}{usd}",
            f"then the {held(plan.sessions)} holds with one lost",
        )
    if is_assumed(best.cost):
        yield Said(f"ask for a quote: the price of {best.gpu} is assumed")
    for way in _other_payment(plan):
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
        limit = f"{why.limit} to more than {format_duration(why.needed_s)}"
        relax = Said(f"relax {limit}", "or name faster GPUs: --gpu")
    if plan.interrupted:
        relax = Said("let it run to its end")
    return no_answer(
        Said("misses", "with any number of replicas"),
        relax,
        ways(list(found.values())[:MOST_ROWS], "what misses", "why"),
    )
