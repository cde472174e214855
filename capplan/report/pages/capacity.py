"""The page of what given fleets serve."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from capplan.deployment.configuration import UNMEASURED, Configuration
from capplan.deployment.pools import Deployment
from capplan.planning.money.cost import Cost
from capplan.planning.size.capacity import Capacity, Served
from capplan.report.columns import (
    column,
    format_count,
    format_fine_usd,
    plural,
    record,
)
from capplan.report.fields import fields
from capplan.report.page import Answer, Page, Said, Section, Table
from capplan.report.pages.cost import bill_section
from capplan.units import format_usd

SCHEMA = "capplan.capacity/2"

_FLEET = fields("capacity_fleet", tp=lambda row: row.pool.configuration.layout.degrees)
_NOTE = (
    "Highest rate, and most users, that are in time, to 3 %. “at most”: no scheduler "
    "carries a higher rate within the limits with the same iteration times; of users "
    "no such bound is known."
)
_IDLE = 0.25
"""Share of the paid GPUs from which on idle ones are the first thing to change."""
_CHEAPER = 0.05
"""Share by which another fleet's requests must be cheaper to be named."""


def capacity_page(capacity: Capacity) -> Page:
    """Return what the fleets serve: the most first."""
    best = capacity.best

    def style(row: Served) -> str:
        return "best" if row is best else "fail" if row.reason else ""

    table = Table(_FLEET, capacity.rows, note=_NOTE, style=style)
    left_out = [
        (f"{row.pool.configuration} within {row.slo_text}", row.reason)
        for row in capacity.rows
    ]
    left_out += [(str(row), row.reason) for row in capacity.excluded]
    basis = [("users", capacity.think), ("requests", capacity.trace_source)]
    latency = [("latency", best.pool.configuration.note)]
    return Page(
        "capacity",
        _headline(best),
        _about(capacity),
        [
            Section("What each fleet carries", tables=[table], topic="count"),
            Section("What carries nothing", left_out, topic="candidates"),
            bill_section(best.cost, best.deployment.pools),
            Section("What the figures rest on", basis, topic="assumptions"),
            Section(facts=latency, topic="sure"),
        ],
        values=partial(capacity_values, capacity),
        csv={"capacity.csv": table},
        answer=_answer(capacity),
        lead=_lead(best),
        warnings=capacity.warnings,
        is_failure=best.is_failure,
    )


def _headline(best: Served) -> str:
    count = best.deployment.gpu_count
    fleet = plural(count, f"{best.pool.configuration.gpu} GPU")
    carry = "carries" if count == 1 else "carry"
    if best.is_failure:
        return f"{fleet} {carry} nothing within {best.slo_text}."
    comma = "," * (best.busiest_hour_per_s is not None)
    usd = "" if best.cost is None else f"{comma} for {_usd(best.cost)} a month"
    return f"{fleet} {carry} {_rate(best)}{usd}."


def _rate(row: Served) -> str:
    """Return the requests/s that a fleet carries."""
    if row.max_rate_per_s is None:
        return "any rate" if row.is_endless else "nothing: --explain candidates"
    text, peak = (
        f"{format_count(row.max_rate_per_s)} requests/s",
        row.busiest_hour_per_s,
    )
    return text if peak is None else f"{text}, {format_count(peak)} in the busiest hour"


def _about(capacity: Capacity) -> str:
    best = capacity.best
    lengths = capacity.mean_prompt_tokens, capacity.mean_output_tokens
    parts = (
        capacity.llm or "given iteration times",
        f"{' + '.join(f'{tokens:,.0f}' for tokens in lengths)} tokens",
        f"{best.slo_text} for {best.attainment_text}",
    )
    return " · ".join(parts)


def _usd(cost: Cost) -> str:
    """Return a month's bill, starred where a price is assumed."""
    month = next(line for line in cost.lines if line.what == "per month")
    return format_usd(cost.usd_per_month, 0) + "*" * month.estimated


def _lead(best: Served) -> str:
    """Return what the fleet carries in a sentence or two, for who pays."""
    if best.is_failure:
        return f"No traffic is in time on this fleet: {best.reason}."
    text = f"Within {best.slo_text} this fleet answers {_rate(best)}"
    if best.max_users is not None:
        text += f", or {best.max_users:,} people who each wait for an answer"
    return f"{text}. More traffic than that needs more GPUs."


def _answer(capacity: Capacity) -> Answer:
    best, ways = capacity.best, [*_ways(capacity)]
    table = Table(_WAYS, ways, style=lambda row: "best" if row.is_best else "")
    return Answer(
        Said(_fleet(best.deployment), bought(best.deployment, best.cost)),
        _cost(best),
        _peak(best, capacity.think),
        _sure(best),
        _next(capacity),
        table if ways[1:] else None,
    )


def _fleet(deployment: Deployment) -> str:
    """Return ``2 replicas × 8 GPUs``, with what is more to say of its layout."""
    pool = deployment.pool
    layout = pool.configuration.layout
    text = f"{plural(pool.replica_count, 'replica')} × {plural(layout.gpus, 'GPU')}"
    return text if layout.gpus == layout.tp else f"{text} ({layout.text})"


def bought(deployment: Deployment, cost: Cost | None) -> str:
    """Return the nodes that are paid for, and the idle GPUs in them."""
    configuration = deployment.pool.configuration
    if cost is None or configuration.price is None:
        return f"on {deployment.gpu_count:,} × {configuration.gpu}"
    names = [" ".join(filter(None, (row.provider, row.node))) for row in cost.nodes]
    nodes = [
        f"{row.units:,.0f} × {name or row.gpu}"
        for row, name in zip(cost.nodes, names, strict=True)
    ]
    gpus = sum(row.gpus_paid for row in cost.nodes)
    idle = sum(row.stranded_gpus for row in cost.nodes)
    paid = f": {gpus:,.0f} GPUs paid, {idle:,.0f} idle"
    if not idle:
        kind = configuration.price.kind.replace("on-demand", "on demand")
        paid = f", {kind} at {format_usd(cost.usd_per_h / gpus)} a GPU-hour"
    return f"on {' + '.join(nodes)}{paid}"


def _cost(row: Served) -> Said:
    if row.cost is None:
        gpu = row.pool.configuration.gpu
        return Said("unknown", f"give it: --price {gpu}=USD")
    more = f"{format_usd(row.cost.usd_per_year, 0)} a year"
    usd = _usd_per_request(row)
    if usd is not None:
        more += f" · {format_fine_usd(1000 * usd)} per 1,000 requests at that rate"
    return Said(f"{_usd(row.cost)} a month", more)


def _usd_per_request(row: Served) -> float | None:
    if row.cost is None or row.max_rate_per_s is None:
        return None
    return row.cost.usd_per_h / (3600 * row.max_rate_per_s)


def _peak(row: Served, think: str) -> Said:
    if row.max_rate_per_s is None:
        return Said("holds at any rate" if row.is_endless else "misses", row.reason)
    missed = (row.max_rate_per_s_interval or (0, math.inf))[1]
    not_held = f", {format_count(missed)} do not" if math.isfinite(missed) else ""
    users = ""
    if row.max_users is not None:
        users = f"or {row.max_users:,} users with {think}"
    return Said(f"{_rate(row)} hold{not_held}", users)


def _sure(row: Served) -> Said:
    """Return how sure the times are, and the rates that real engines sustain."""
    configuration = row.pool.configuration
    word, why = _sureness(configuration)
    if row.sustained_per_s is None:
        return Said(f"{word}: {why}")
    low, high = map(format_count, row.sustained_per_s)
    if not configuration.has_range:
        return Said(f"{word}: {why}", f"nine of ten engines carry {low} requests/s")
    return Said(f"{word}: {why}, 80 % of which carry {low} to {high} requests/s")


def _sureness(configuration: Configuration) -> tuple[str, str]:
    doubts = [why for why in configuration.doubts if "price" not in why]
    if configuration.profile is None:
        return "estimated", "iteration times as given"
    own = configuration.latency_source == "measured"
    if own or configuration.profile.is_load_tested:
        return "measured", "your own times"
    if doubts or not configuration.sweep_count:
        return "estimated", (doubts or [UNMEASURED])[0]
    return "checked", f"against {configuration.sweep_count} load tests"


def _next(capacity: Capacity) -> Said:
    """Return what to do now, by the first rule that applies."""
    best = capacity.best
    gpu = best.pool.configuration.gpu
    if best.is_failure:
        return Said("relax the limit that misses, or name other GPUs")
    texts = (_use_idle(best), _test(best), _quote(best), _cheaper(capacity))
    otherwise = f"size for your own peak: capplan plan --gpu {gpu} --rate R"
    return Said(next(filter(None, texts), otherwise))


def _use_idle(best: Served) -> str:
    if best.cost is None or best.filled is None:
        return ""
    paid = int(sum(row.gpus_paid for row in best.cost.nodes))
    idle = paid - best.deployment.gpu_count
    whose = [row.provider for row in best.cost.nodes if row.provider]
    size = f"--max-gpus {best.filled.gpu_count}"
    size += f" --provider {whose[0]}" if whose else ""
    text = f"use the {plural(idle, 'idle GPU')}, which are paid: {size}"
    return text if idle > _IDLE * paid else ""


def _test(best: Served) -> str:
    configuration = best.pool.configuration
    if _sureness(configuration)[0] != "estimated" and not _is_wide(best):
        return ""
    price = configuration.price
    usd = 0.0 if price is None else price.usd_per_gpu_h * configuration.gpus
    about = f", about {format_usd(usd, 0)}" if price is not None else ""
    return f"load-test one replica for an hour{about}, before you promise this rate"


def _quote(best: Served) -> str:
    if best.cost is None or "*" not in _usd(best.cost):
        return ""
    whom = best.cost.nodes[0].provider or "a provider"
    return f"ask {whom} for a quote: --price {best.pool.configuration.gpu}=USD"


def _cheaper(capacity: Capacity) -> str:
    usd = _usd_per_request(capacity.best)
    priced = [(_usd_per_request(row), row) for row in _rivals(capacity)]
    able = [(each, row) for each, row in priced if each is not None]
    if usd is None or not able:
        return ""
    least, row = min(able, key=lambda pair: pair[0])
    text = f"weigh {_name(row)}: {100 * (1 - least / usd):.0f} % less a request"
    return text if least < (1 - _CHEAPER) * usd else ""


def _is_wide(row: Served) -> bool:
    ends, rate = row.sustained_per_s, row.max_rate_per_s or 0.0
    return ends is not None and (ends[0] < 0.75 * rate or ends[1] > 1.25 * rate)


class _Way(NamedTuple):
    """A fleet beside the best one."""

    name: str
    gpu_count: int
    usd: str
    change: str
    carries: str
    is_best: bool = False


_WAYS = (
    column("", "instead", justify="left", path="name"),
    column("", "GPUs", format_count, path="gpu_count", leaves=2),
    column("", "a month", path="usd"),
    column("", "change", path="change", leaves=1),
    column("", "carries", justify="left", path="carries"),
)


def _rivals(capacity: Capacity) -> list[Served]:
    """Return other fleets within the first limits, the best of each GPU type first."""
    best = capacity.best
    rows = [row for row in capacity.rows if row.slo_text == best.slo_text]
    seen: list[str] = []
    ranked = []
    for row in rows:
        gpu = row.pool.configuration.gpu
        if row.max_rate_per_s is not None or gpu not in seen:
            ranked.append((row.max_rate_per_s is None, seen.count(gpu), row))
        seen.append(gpu)
    ranked.sort(key=lambda each: each[:2])
    return [row for _, _, row in ranked if row is not best]


def _ways(capacity: Capacity) -> Iterator[_Way]:
    best = capacity.best
    yield _way(best, best, _name(best), is_best=True)
    if best.filled is not None and best.cost is not None:
        gpus = best.filled.gpu_count
        text = f"more: --max-gpus {gpus} simulates it"
        yield _Way("all GPUs of its nodes", gpus, _usd(best.cost), "$0", text)
    found = {best.slo_text}
    for row in capacity.rows:
        if row.slo_text not in found:
            found.add(row.slo_text)
            yield _way(best, row, f"within {row.slo_text}")
    for row in _rivals(capacity):
        yield _way(best, row, _name(row))


def _name(row: Served) -> str:
    return f"{row.pool.configuration.gpu}, {_fleet(row.deployment)}"


def _way(best: Served, row: Served, name: str, *, is_best: bool = False) -> _Way:
    usd = change = ""
    if row.cost is not None:
        usd = _usd(row.cost)
        if best.cost is not None and not is_best:
            change = _change(row.cost.usd_per_month - best.cost.usd_per_month)
    carries = _rate(replace(row, busiest_hour_per_s=None))
    if row.max_users is not None:
        carries += f", {row.max_users:,} users"
    return _Way(name, row.deployment.gpu_count, usd, change, carries, is_best)


def _change(usd: float) -> str:
    """Return whole dollars with their sign."""
    sign = "+" if usd >= 0.5 else "−" if usd <= -0.5 else ""
    return f"{sign}{format_usd(abs(usd), 0)}"


def capacity_values(capacity: Capacity) -> dict[str, Any]:
    """Return the best fleet by its keys, then all, by the keys of ``capacity.json``."""
    return {"schema": SCHEMA, **record(fields("capacity"), capacity)}
