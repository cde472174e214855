"""The first screen of compared systems: which needs least, and what switching saves."""

from collections.abc import Iterator

from capplan.planning.compare.compare import Comparison
from capplan.planning.compare.system_price import SystemResult
from capplan.planning.size.prospects import price_of
from capplan.report.columns import at, format_count, format_list, plural
from capplan.report.first_screen import (
    Way,
    dollars,
    in_few_words,
    in_time,
    is_assumed,
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

_WIDEST_REASON = 44
"""Letters of a reason in a row."""
_LEVEL = 99.0
"""Percentile that is held against a limit, where as many must be in time. [%]"""


def winners(comparison: Comparison) -> list[SystemResult]:
    """Return the systems that cost least, or take the fewest GPUs without prices.

    Of those that refuse no request, where there are any; none where none is feasible.
    """
    rows = able(comparison)
    rows = [row for row in rows if not row.refused_share] or rows
    least = min(map(price, rows), default=None)
    return [row for row in rows if price(row) == least]


def price(row: SystemResult) -> tuple[float, int]:
    """Return what orders systems that are able: the bill, then the GPUs."""
    assert row.candidate is not None
    return price_of(row.candidate)


def compare_title(comparison: Comparison) -> str:
    """Return which systems need least, in a line of a fixed form."""
    first = winners(comparison)
    if not first:
        none = "is known yet to hold" if comparison.interrupted else "compared holds"
        return f"No system {none} {comparison.slo_text}."
    best = first[0].candidate
    assert best is not None
    needs = "needs" if len(first) == 1 else "need"
    bill = f" for {month(best)}" if best.cost else ""
    gpus = plural(best.gpu_count or 0, f"{best.gpu} GPU")
    return f"{_names(first)} {needs} least: {gpus}{bill}."


def _names(rows: list[SystemResult]) -> str:
    """Return the names of systems, at most three of them."""
    more = len(rows) - 3
    names = [row.name for row in rows[:3]]
    return format_list([*names, f"{more} more"] if more > 0 else names)


def compare_subject(comparison: Comparison) -> str:
    """Return whose page it is, what arrives and what is promised."""
    asked = f"{format_count(comparison.rate_per_s)} requests/s"
    lengths = comparison.mean_prompt_tokens, comparison.mean_output_tokens
    promised = comparison.slo_text, comparison.attainment_text
    return subject(comparison.llm, comparison.asked_by or asked, lengths, promised)


def compare_lead(comparison: Comparison) -> str:
    """Return the answer in two sentences for who pays."""
    rows, saving = able(comparison), _saving(comparison)
    if not rows:
        done = "was stopped before it knew" if comparison.interrupted else "finds no"
        return f"The comparison {done} system that answers these requests in time."
    systems = plural(len(comparison.systems), "system")
    text = f"{len(rows)} of {systems} can answer these requests in time."
    if saving is not None:
        usd, dearest = saving
        return f"{text} The dearest, {dearest.name}, costs {usd} a month more."
    same = _is_alike(comparison)
    return f"{text} Their bill is the same: no change saves money." if same else text


def able(comparison: Comparison) -> list[SystemResult]:
    """Return the systems that can answer the requests in time."""
    return [row for row in comparison.systems if row.candidate is not None]


def _is_alike(comparison: Comparison) -> bool:
    """Return whether the bills of several systems are known and do not differ."""
    rows = able(comparison)
    bills = [usd for row in rows if (usd := _usd(row)) is not None]
    return len(rows) == len(bills) > 1 and max(bills) - min(bills) < 1


def compare_answer(comparison: Comparison) -> Answer:
    """Return the first screen of compared systems."""
    first = winners(comparison)
    rows = [*_rows(comparison, first)]
    if len(rows) > MOST_ROWS:
        left = len(rows) - MOST_ROWS + 1
        more = Way(f"{left} more systems", "", None, "--explain count")
        rows = [*rows[: MOST_ROWS - 1], more]
    on = comparison.hardware
    gpus = (comparison.replica_count or 0) * (on.gpus if on else 0)
    table = ways(rows, "system", f"on {plural(gpus, 'GPU')}" if gpus else "why")
    if not first or (best := first[0].candidate) is None or best.run is None:
        relax = Said("relax what is missed, or name other GPUs", "--slo, --gpu")
        misses = Said("misses", "with each system")
        if comparison.interrupted:
            relax, misses = Said("let it run to its end"), Said("")
        return no_answer(misses, relax, table)
    known = sure(best)
    if comparison.systems[1:]:
        alike = filter(None, (known.more, "all with the same times"))
        known = Said(known.short, " · ".join(alike))
    return Answer(
        rented(best),
        _cost(comparison, first[0]),
        Said("holds", in_time(best.run.judgement, comparison.attainment_text)),
        known,
        _next(comparison, first[0]),
        table,
    )


def _usd(row: SystemResult) -> float | None:
    usd: float | None = at(row, "candidate.cost.usd_per_month")
    return usd


def _saving(comparison: Comparison) -> tuple[str, SystemResult] | None:
    """Return what the dearest costs above the cheapest a month, and it; or None."""
    first = winners(comparison)
    least = _usd(first[0]) if first else None
    rows = [(usd, row) for row in comparison.systems if (usd := _usd(row)) is not None]
    if least is None or not rows:
        return None
    most, dearest = max(rows, key=lambda pair: pair[0])
    pair = (row.candidate for row in (first[0], dearest))
    star = any(is_assumed(each.cost) for each in pair if each is not None)
    return (dollars(most - least, star), dearest) if most - least >= 1 else None


def _cost(comparison: Comparison, first: SystemResult) -> Said:
    best, saving = first.candidate, _saving(comparison)
    if best is None or best.cost is None:
        return unknown_price(best.gpu if best else "GPU")
    more = "whichever you take" if _is_alike(comparison) else ""
    if saving is not None:
        more = f"{saving[0]} more with {saving[1].name}"
    return Said(month(best), more)


def _next(comparison: Comparison, first: SystemResult) -> Said:
    """Return what to do now: keep, switch, or test where only one system holds."""
    saving = _saving(comparison)
    if saving is not None:
        usd, dearest = saving
        return Said(f"run {first.name}", f"{dearest.name} costs {usd} a month more")
    if _is_alike(comparison):
        return Said("keep what you run", "no system here saves a dollar")
    assert first.candidate is not None
    return test_one(first.candidate)


def _rows(comparison: Comparison, first: list[SystemResult]) -> Iterator[Way]:
    """Yield the systems: the first, the others by price, then those that miss."""

    def rank(row: SystemResult) -> tuple[bool, bool, tuple[float, int]]:
        is_able = row.candidate is not None
        return row not in first, not is_able, price(row) if is_able else (0.0, 0)

    for row in sorted(comparison.systems, key=rank):
        best, told = row.candidate, _told(comparison, row)
        if best is None:
            yield Way(row.name, "", None, told)
            continue
        count, star = f"{best.gpu_count:,}", is_assumed(best.cost)
        chosen = bool(first) and row is first[0]
        yield Way(row.name, count, _usd(row), told, chosen, is_assumed=star)


def _told(comparison: Comparison, row: SystemResult) -> str:
    """Return what a system carries on the same GPUs, and what it misses there."""
    reason = row.reason if row.candidate is None else row.not_served
    if reason:
        return in_few_words(reason, _WIDEST_REASON)
    if row.served is None:
        return ""
    unit = "/s" if comparison.asked_by is None else " users"
    carried = "carries " + (
        f"{format_count(row.most)}{unit}" if row.most else "nothing"
    )
    limit = _limit(comparison, row)
    if row.refused_share and "not" not in limit:
        limit = f"refuses {100 * row.refused_share:.2g} %"
    return ", ".join(filter(None, (carried, limit)))


def _limit(comparison: Comparison, row: SystemResult) -> str:
    """Return the latency that is nearest to its limit, or furthest above it."""
    served, found = row.served, []
    if served is None or comparison.attainment != _LEVEL / 100:
        return ""
    for key, limit_s in comparison.slo_limits_s.items():
        if f"{key}_s" in served.latency_s:
            seen_s = served.percentile_s(f"{key}_s", _LEVEL)
            found.append((seen_s / limit_s, key, seen_s, limit_s))
    if not found:
        return ""
    part, name, seen_s, limit_s = max(found)
    beyond = f", not {format_duration(limit_s)}" if part > 1 else ""
    return f"{name} {format_duration(seen_s)}{beyond}"
