"""The page of what given fleets serve."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

from capplan.planning.money.cost import paid_price
from capplan.planning.size.served import Capacity, Served
from capplan.report import sentences
from capplan.report.charts.svg_bars import Bar, bars
from capplan.report.columns import (
    format_count,
    format_fine_usd,
    format_share,
    plural,
    record,
)
from capplan.report.fields import fields
from capplan.report.first_screen import (
    MOST_IDLE,
    Way,
    billed,
    dollars,
    held,
    idle,
    is_assumed,
    is_plain,
    is_wide,
    prices_told,
    rented_fleet,
    replicas,
    subject,
    test_replica,
    ways,
)
from capplan.report.page import (
    Answer,
    Fact,
    Figure,
    Page,
    Said,
    Section,
    Table,
    next_section,
    why_section,
)
from capplan.report.pages.cost import bill_section

SCHEMA = "capplan.capacity/2"

_FLEET = fields("capacity_fleet", tp=lambda row: row.pool.configuration.layout.degrees)
_NOTE = (
    "Highest rate, and most users, that are answered in time, to 3 %. “at most”: with "
    "the same iteration times no scheduler carries a higher rate; of users no such "
    "bound is known."
)
_MOST_BARS = 12
"""Fleets that the chart has."""
_CHEAPER = 0.95
"""Part of a request's cost below which another fleet is named for it."""


def capacity_page(capacity: Capacity) -> Page:
    """Return what the fleets serve: the most first."""
    best = capacity.best

    def style(row: Served) -> str:
        return "best" if row is best else "fail" if row.is_failure else ""

    table = Table(_FLEET, capacity.rows, note=_NOTE, style=style)
    left_out = [
        (f"{row.pool.configuration} within {row.slo_text}", row.reason)
        for row in capacity.rows
    ]
    left_out += [(str(row), row.reason) for row in capacity.excluded]
    basis = [("users", capacity.think), ("requests", capacity.trace_source)]
    latency = [("latency", best.pool.configuration.note)]
    lengths = capacity.mean_prompt_tokens, capacity.mean_output_tokens
    return Page(
        "capacity",
        _title(best),
        subject(capacity.llm, "", lengths, (best.slo_text, best.attainment_text)),
        [
            why_section("rate", _why(capacity)),
            Section("What each fleet carries", tables=[table], topic="count"),
            Section("What carries nothing", left_out, topic="candidates"),
            bill_section(best.cost, best.deployment.pools),
            Section("How sure it is", latency, topic="sure"),
            Section("What was asked", basis, topic="assumptions"),
            next_section(_next_steps(capacity)),
        ],
        values=partial(capacity_values, capacity),
        csv={"capacity.csv": table},
        prices=prices_told(paid_price(best.deployment.pools)),
        answer=_answer(capacity),
        chart=_chart(capacity),
        lead=_lead(best),
        warnings=capacity.warnings,
        is_failure=best.is_failure,
    )


def _why(capacity: Capacity) -> list[Fact]:
    """Return why the first fleet carries no more, and which requests cost least."""
    best, (rate, in_time, binding) = capacity.best, capacity.best.missed
    if best.max_rate_per_s is None:
        return []
    missed = f"{format_count(rate)} requests/s" if math.isfinite(rate) else ""
    if in_time is not None:
        missed += f": {format_share(in_time)} in time, asked {best.attainment_text}"
    most, bound = best.upper_bound_rate_per_s, ""
    if most is not None:
        bound = f"more than {format_count(most)} requests/s, with these iteration times"
    _, crowd = best.max_users_interval or (0, math.inf)
    users = f"{crowd:,.0f} are too many" if math.isfinite(crowd) else ""
    ranked = [f"{_thousand(row)} by {_name(row)}" for row in _by_usd(capacity)]
    return [
        ("misses the SLO", missed),
        ("limited by", sentences.limited(binding)),
        ("no scheduler carries", bound),
        ("users", users),
        ("1,000 requests cost", "; ".join(ranked[:3]) if ranked[1:] else ""),
    ]


def _carrying(best: Served) -> str:
    count = best.deployment.gpu_count
    gpus = plural(count, f"{best.pool.configuration.gpu} GPU")
    return f"{gpus} {'carries' if count == 1 else 'carry'}"


def _title(best: Served) -> str:
    if best.is_failure:
        return f"{_carrying(best)} nothing within {best.slo_text}."
    peak, usd = best.busiest_hour_per_s, ""
    of_peak = "" if peak is None else f", {format_count(peak)} in the busiest hour"
    if best.cost is not None:
        usd = f"{',' * bool(of_peak)} for {_usd(best)} a month"
    return f"{_carrying(best)} {_rate(best)}{of_peak}{usd}."


def _rate(row: Served) -> str:
    if row.max_rate_per_s is None and row.max_users is not None:
        return f"{plural(row.max_users, 'session')} at once"
    if row.max_rate_per_s is None:
        return "nothing" if row.is_failure else "any rate"
    return f"{format_count(row.max_rate_per_s)} requests/s"


def _usd(row: Served) -> str:
    return dollars(row.usd_per_month, is_assumed(row.cost))


def _chart(capacity: Capacity) -> Figure | None:
    """Return the rate that each fleet carries, that of the best as title.

    None of a single fleet, which the tiles say, and of none that carries anything.
    """
    best = capacity.best
    if best.max_rate_per_s is None or len(capacity.rows) < 2:
        return None
    rows = []
    for row in capacity.rows[:_MOST_BARS]:
        rate, bound = row.max_rate_per_s, row.upper_bound_rate_per_s
        most = "" if bound is None else f", bound {format_count(bound)}"
        text = "none in time" if rate is None else f"{format_count(rate)}{most}"
        rows.append(Bar(f"{row.pool.configuration}, {row.slo_text}", rate, text))
    layout = best.pool.configuration.layout.text
    title = f"{_carrying(best)} {_rate(best)} as {layout}"
    caption = "Requests/s in time; no scheduler carries more than the bound."
    return Figure(title, bars(title, rows), caption=caption)


def _lead(best: Served) -> str:
    if best.is_failure:
        return f"Nothing is answered in time on this fleet: {best.reason}."
    users = ""
    if best.max_users is not None and best.max_rate_per_s is not None:
        users = f", or {best.max_users:,} people who each wait for an answer"
    return (
        f"This fleet answers {_rate(best)}{users}, within {best.slo_text}. "
        "More traffic than that needs more GPUs."
    )


def _answer(capacity: Capacity) -> Answer:
    best, rows = capacity.best, [*_rows(capacity)]
    peak, step = _peak(best, capacity.think), next(_next_steps(capacity))
    what = held(_is_of_sessions(best))
    instead = ways(rows, told="carries") if rows[1:] else None
    if best.is_failure:
        return Answer(Said(""), Said(""), peak, Said(""), step, instead, held=what)
    fleet = rented_fleet(best.deployment, best.cost)
    return Answer(fleet, _cost(best), peak, _sure(best), step, instead, held=what)


def _is_of_sessions(best: Served) -> bool:
    return best.max_rate_per_s is None and best.max_users is not None


def _cost(best: Served) -> Said:
    known = best.usd_per_request is not None
    per = f"from {_thousand(best)} per 1,000 requests" if known else ""
    return billed(best.cost, best.pool.configuration.gpu, per)


def _thousand(row: Served) -> str:
    return format_fine_usd(1000 * (row.usd_per_request or 0))


def _by_usd(capacity: Capacity) -> list[Served]:
    """Return the fleets within the first limits that have a bill, by a request's."""
    rows = (capacity.best, *_rivals(capacity))
    known = [row for row in rows if row.usd_per_request]
    return sorted(known, key=lambda row: row.usd_per_request or 0)


def _peak(best: Served, think: str) -> Said:
    if _is_of_sessions(best):
        crowd = (best.max_users_interval or (0, math.inf))[1]
        text = f", {crowd:,.0f} do not" if math.isfinite(crowd) else ""
        return Said(f"{_rate(best)} hold{text}")
    if best.max_rate_per_s is None:
        why = best.reason.partition(";")[0]
        return Said(f"misses: {why}" if best.is_failure else why)
    missed = (best.max_rate_per_s_interval or (0, math.inf))[1]
    text = f", {format_count(missed)} do not" if math.isfinite(missed) else ""
    users = best.max_users
    more = "" if users is None else f"or {users:,} users with {think}"
    return Said(f"{_rate(best)} hold{text}", more)


def _sure(best: Served) -> Said:
    """Return how the times are known, and the rates that real engines sustain."""
    configuration, ends = best.pool.configuration, best.sustained_per_s
    word, doubts = configuration.sureness, "; ".join(configuration.doubts)
    if ends is None:
        return Said(word, doubts)
    low, high = map(format_count, ends)
    if configuration.cautious_share is not None:
        return Said(f"{word}: from {low} requests/s", f"for 9 of 10 engines · {doubts}")
    tests = plural(sweeps := configuration.sweep_count or 0, "load test")
    of = f"for 80 % of {tests}" if sweeps else "by its fit's error"
    return Said(f"{word}: {low} to {high} requests/s", of)


def _next_steps(capacity: Capacity) -> Iterator[Said]:
    """Yield what to do now, the most valuable first."""
    best, filled = capacity.best, capacity.best.filled
    configuration, nodes = best.pool.configuration, best.cost.nodes if best.cost else ()
    if best.is_failure:
        yield Said("relax what is missed, or name other GPUs", "--slo, --gpu")
    unused = int(idle(nodes))
    if filled and unused > MOST_IDLE * sum(row.gpus_paid for row in nodes):
        whose = f" --provider {nodes[0].provider}" if nodes[0].provider else ""
        size = f"--max-gpus {filled.gpu_count}{whose}"
        yield Said(f"use the {plural(unused, 'idle GPU')}, which are paid", size)
    if is_wide(configuration.sureness, best.sustained_per_s, best.max_rate_per_s):
        yield test_replica(configuration, "")
    if is_assumed(best.cost):
        yield Said(f"ask for a quote: the price of {configuration.gpu} is assumed")
    cheap = next(iter(_by_usd(capacity)), best)
    part = (cheap.usd_per_request or 0) / (best.usd_per_request or 1)
    if 0 < part < _CHEAPER:
        yield Said(f"weigh {_name(cheap)}", f"{100 * (1 - part):.0f} % less a request")
    asked = "--rate R" if best.max_rate_per_s is not None else "--sessions N"
    command = f"capplan plan --gpu {configuration.gpu} {asked}"
    own = "sessions" if _is_of_sessions(best) else "peak"
    yield Said(f"size for your own {own}", command)


def _rivals(capacity: Capacity) -> list[Served]:
    """Return other fleets within the first limits, the best of each GPU type first."""
    seen, ranked = list[str](), []
    for row in capacity.rows:
        gpu = row.pool.configuration.gpu
        if row.slo_text == capacity.best.slo_text:
            ranked.append((row.is_failure, seen.count(gpu), row))
            seen.append(gpu)
    ranked.sort(key=lambda each: each[:2])
    # Of a GPU type that carries nothing, one row says so.
    return [row for fails, at, row in ranked[1:] if not (fails and at)]


def _rows(capacity: Capacity) -> Iterator[Way]:
    """Yield the first fleet, then what its nodes, limits and GPUs may be instead."""
    best, filled = capacity.best, capacity.best.filled
    yield _way(best, _name(best))._replace(is_chosen=True)
    if filled is not None:
        row = _way(best, "all GPUs of its nodes")
        told = "more: --max-gpus simulates it"
        yield row._replace(gpus=filled.gpu_count, told=told)
    firsts = {row.slo_text: row for row in reversed(capacity.rows)}
    firsts.pop(best.slo_text)
    yield from (_way(row, f"within {text}") for text, row in firsts.items())
    yield from (_way(row, _name(row)) for row in _rivals(capacity))


def _name(row: Served) -> str:
    configuration = row.pool.configuration
    plain = is_plain(configuration.layout)
    how = replicas(row.deployment) if plain else configuration.layout.text
    return f"{configuration.gpu}, {how}"


def _way(row: Served, name: str) -> Way:
    told = "nothing: --explain candidates" if row.is_failure else _rate(row)
    if row.pool.configuration.sureness == "estimated" and not row.is_failure:
        told += ", estimated"
    elif row.max_users is not None:
        told += f", {row.max_users:,} users"
    count, star = row.deployment.gpu_count, is_assumed(row.cost)
    return Way(name, count, row.usd_per_month, told, is_assumed=star)


def capacity_values(capacity: Capacity) -> dict[str, Any]:
    """Return the best fleet by its keys, then all, by the keys of ``capacity.json``."""
    return {"schema": SCHEMA, **record(fields("capacity"), capacity)}
