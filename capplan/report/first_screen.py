"""What first screens say alike: what is bought, how sure it is, and other ways."""

from collections.abc import Sequence
from datetime import date
from textwrap import shorten
from typing import NamedTuple

from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import Deployment
from capplan.fleet.price import GIVEN, Price
from capplan.llm.layout import Layout
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.evaluate.classes import own_targets
from capplan.planning.evaluate.judgement import Judgement
from capplan.planning.money.cost import Cost, NodeCount, alike, paid_price
from capplan.report.columns import (
    DASH,
    column,
    format_count,
    format_fine_usd,
    format_share,
    plural,
)
from capplan.report.page import FLEET, Answer, Said, Table
from capplan.report.sentences import classes_attained
from capplan.units import format_usd

ASSUMED, LEAST = "*", "≥"
"""Signs before and behind figures that are assumed, or at least so."""
MOST_IDLE = 0.25
"""Part of the paid GPUs that may be idle before that is the first thing to change."""
WIDE = 0.25
"""Part of the planned bill by which a range makes a test of one GPU worth its price."""


def dollars(usd: float | None, star: bool = False) -> str:
    """Return whole dollars, starred where they are assumed; empty without any."""
    if usd is None:
        return ""
    return f"{format_usd(usd, 0)}{ASSUMED if star else ''}"


def is_assumed(cost: Cost | None) -> bool:
    """Return whether a bill rests on a price that nobody asks today."""
    lines = () if cost is None else cost.lines
    return any(line.what == "per month" and line.estimated for line in lines)


def unknown_price(gpu: str) -> Said:
    """Return what stands in the place of a bill, and how to give the price."""
    return Said(f"unknown: --price {gpu}=USD_PER_H")


def billed(cost: Cost | None, gpu: str, more: str) -> Said:
    """Return the bill of a month and of a year, and what else is to be said of it."""
    if cost is None:
        return unknown_price(gpu)
    star = is_assumed(cost)
    year = f"{dollars(cost.usd_per_year, star)} a year"
    return Said.of(f"{dollars(cost.usd_per_month, star)} a month", year, more)


def held(sessions: object) -> str:
    """Return what holds or misses: a load of ``sessions``, if any, has no peak."""
    return FLEET if sessions else "peak"


def in_few_words(reason: str, letters: int = 60) -> str:
    """Return the first part of a reason, without its subject where it is too long.

    Examples
    --------
    >>> in_few_words("H100 × TP 1: TPOT takes 4 ms at least; alone it is", 30)
    'TPOT takes 4 ms at least'
    """
    text = reason.partition(";")[0]
    if len(text) > letters:
        text = text.partition(": ")[2] or text
    return shorten(text, letters, placeholder=" …")


def no_answer(misses: Said, step: Said, instead: Table | None = None) -> Answer:
    """Return the first screen where nothing is to be bought."""
    nothing = Said("nothing"), Said("")
    return Answer(*nothing, misses, Said(""), step, instead)


class Way(NamedTuple):
    """A row of a table of other ways."""

    name: str
    gpus: int | str  # 7, "3 to 9"
    usd: float | None  # of a month, or of the span that the table is of [$]
    told: str  # whether the peak holds, or what else decides
    is_chosen: bool = False
    is_least: bool = False  # a bound, not simulated
    is_assumed: bool = False  # its price


def ways(
    rows: Sequence[Way],
    heading: str = "instead",
    told: str = "peak",
    gpus: str = "GPUs",
    usd: str = "a month",
) -> Table:
    """Return other ways as a table, under these headings of its columns."""
    against = next((row.usd for row in rows if row.is_chosen), None)
    # Amounts are told here, in the currency that pages are made in.
    texts = [(*_texts(row, against), row.is_chosen) for row in rows]
    headings, leaves = (heading, gpus, usd, "change", told), (0, 2, 0, 1, 0)
    columns = [
        column(
            "",
            name,
            justify="left" if index in (0, 4) else "right",
            path=str(index),
            leaves=leaves[index],
            told=lambda row, at=index: row[at] or " ",  # nothing, and no dash
        )
        for index, name in enumerate(headings)
        if any(row[index] for row in texts)
    ]
    return Table(columns, texts, style=lambda row: "best" if row[-1] else "")


def _texts(row: Way, against: float | None) -> tuple[str, str, str, str, str]:
    least = LEAST * row.is_least
    gpus = f"{row.gpus:,}" if isinstance(row.gpus, int) else row.gpus
    gpus = f"{least}{gpus}" if gpus else ""
    if row.usd is None:
        return row.name, gpus, "", "", row.told
    change = DASH if row.is_chosen else ""
    if against is not None and not row.is_chosen:
        more = row.usd - against
        sign = "" if abs(more) < 0.5 else "+" if more > 0 else "−"
        change = f"{least}{sign}{format_usd(abs(more), 0)}"
    usd = f"{least}{dollars(row.usd, row.is_assumed)}"
    return row.name, gpus, usd, change, row.told


def sure(best: Candidate) -> Said:
    """Return how the times of a candidate are known, and how far its count may be off.

    In one of three words: measured, checked or estimated.
    """
    configuration = best.configuration
    if configuration is None:
        return Said(best.sureness)
    word, sweeps = best.sureness, best.sweep_count or 0
    of = plural(sweeps, "load test")
    doubts = "; ".join(configuration.doubts)
    if best.is_to_be_tested:
        if best.cautious is None:
            text = f"{doubts}; the slowest of ten engines miss with any count"
            return Said(word, text)
        usd = best.cautious_usd_per_month
        month = "" if usd is None else f", {dollars(usd)} a month"
        count = plural(best.cautious.gpu_count, "GPU")
        return Said(f"{word}: up to {count}", f"for 9 of 10 engines{month} · {doubts}")
    if best.gpu_count_range is None:
        untested = "no fleet of two such pools was load-tested"
        of_two = untested if best.pools and not sweeps else ""
        return Said(word, "; ".join(filter(None, (doubts, of_two))))
    (low, high), ends = best.gpu_count_range, best.usd_per_month_range
    if low == high:
        return Said(f"{word}: {plural(low, 'GPU')}", f"for 80 % of {of}" * bool(sweeps))
    bills = [] if ends is None else list(dict.fromkeys(map(dollars, ends)))
    money = f"{' to '.join(bills)} a month " if bills else ""
    source = f"for 80 % of {of}" if sweeps else "by the error of the profile's fit"
    if configuration.backtested is not None:
        source = "by the interval of the backtest"
    return Said(f"{word}: {low:,} to {high:,} GPUs", f"{money}{source}")


def is_unsure(best: Candidate) -> bool:
    """Return whether a test of one GPU may move the bill by a quarter."""
    if best.configuration is None or best.is_to_be_tested:
        return best.configuration is not None
    return is_wide(best.sureness, best.gpu_count_range, best.gpu_count)


def is_wide(
    sureness: str, ends: tuple[float, float] | None, planned: float | None
) -> bool:
    """Return whether a figure is estimated, or real engines are a quarter off it."""
    if sureness != "checked" or ends is None or planned is None:
        return sureness == "estimated"
    return ends[0] < (1 - WIDE) * planned or ends[1] > (1 + WIDE) * planned


def subject(
    llm: str | None, asked: str, lengths: tuple[float, float], promised: tuple[str, str]
) -> str:
    """Return whose a page is: what arrives, and the limits for which share of it.

    ``lengths`` are those of the mean prompt and output [tokens].
    """
    tokens = f"{' + '.join(map(format_count, lengths))} tokens"
    arriving = ", ".join(filter(None, (asked, tokens)))
    return " · ".join((llm or "given times", arriving, " for ".join(promised)))


def test_one(best: Candidate) -> Said:
    """Return the load test that settles a count, its price and its command."""
    if best.configuration is None:
        return Said("")
    checkpoint = "" if best.launch is None else best.launch.checkpoint
    return test_replica(best.configuration, checkpoint)


def test_replica(configuration: Configuration, checkpoint: str) -> Said:
    """Return the load test of a replica, its price and its command."""
    gpus, gpu = configuration.gpus, configuration.gpu
    many = f"one {gpu}" if gpus == 1 else f"{gpus} {gpu}"
    _, usd = hour_of(configuration)
    cost = "" if usd is None else f", about {dollars(usd)}"
    command = ""
    if checkpoint and is_plain(configuration.layout):
        command = f"capplan profile {checkpoint} --tp {configuration.tp}"
    return Said(f"test {many} for an hour{cost}", command)


def hour_of(configuration: Configuration) -> tuple[str, float | None]:
    """Return what holds a replica for the least money, and an hour of it. [$]"""
    gpus, price = configuration.gpus, configuration.price
    if price is None:
        return f"node of {gpus} {configuration.gpu}", None

    def usd(ask: Price) -> float:
        return ask.usd_per_node_h * nodes(ask)

    def nodes(ask: Price) -> int:
        return max(1, -(-gpus // (ask.gpus_per_node or 1)))

    least = min(price.asks, key=usd)
    many = f"{nodes(least)} × " * (nodes(least) > 1)
    name = f"{least.provider} {many}{least.unit}".strip()
    return f"{name} ({gpus} {configuration.gpu})", usd(least)


def is_plain(layout: Layout | None) -> bool:
    """Return whether a replica is one rank of some GPUs."""
    return layout is None or layout == Layout(layout.tp)


def replicas(fleet: Deployment) -> str:
    """Return the replicas of a fleet and the GPUs of each."""
    parts = []
    for pool in fleet.pools:
        layout = pool.configuration.layout
        ranks = "" if is_plain(layout) else f" ({layout.text})"
        count = plural(pool.replica_count, "replica")
        parts.append(f"{count} × {plural(layout.gpus, 'GPU')}{ranks}")
    roles = fleet.roles if len(parts) > 1 else ("",)
    return ", ".join(
        f"{role} {text}".strip() for role, text in zip(roles, parts, strict=True)
    )


def gpus_bought(fleet: Deployment, cost: Cost | None) -> dict[str, float]:
    """Return the GPUs that are paid by type; without a price those in replicas."""
    rows = [(pool.configuration.gpu, float(pool.gpu_count)) for pool in fleet.pools]
    if cost is not None:
        rows = [(row.gpu, row.gpus_paid) for row in cost.nodes]
    found: dict[str, float] = {}
    for gpu, count in rows:
        found[gpu] = found.get(gpu, 0) + count
    return found


def nodes_text(rows: Sequence[NodeCount]) -> str:
    """Return nodes by provider: "RunPod 4x-B200 + 2x-B200"."""
    told: dict[str, list[str]] = {}
    for row in rows:
        name = row.node or (f"node of {row.gpus_per_node}" if row.gpus_per_node else "")
        many = "" if row.count in (None, 1) else f"{row.count:,.3g} × "
        told.setdefault(row.provider, []).append(f"{many}{name}".strip())
    return ", ".join(
        " ".join(filter(None, (provider, " + ".join(filter(None, names)))))
        for provider, names in told.items()
    )


def idle(rows: Sequence[NodeCount]) -> float:
    """Return the GPUs that are paid and in no replica."""
    return sum(row.stranded_gpus for row in rows)


def kind_text(price: Price | None) -> str:
    """Return how it is paid: "on demand", "reserved for 12 months"."""
    if price is None:
        return ""
    name, _, months = price.kind.partition(":")
    named = {"on-demand": "on demand"}.get(name, name)
    return f"{named} for {months} months" if months else named


def prices_told(price: Price | None) -> str:
    """Return how old a price is: "price of 7 October 2026"; empty without one."""
    if price is None:
        return ""
    if price.source == GIVEN:
        return "price as you gave it"
    if not price.as_of:
        return "price without a date"
    year, month, *day = map(int, price.as_of.split("-"))
    told = f"{date(year, month, 1):%B %Y}"
    return f"price of {f'{day[0]} ' if day else ''}{told}"


def rented(best: Candidate, also: str = "") -> Said:
    """Return what is bought: GPUs, replicas on them, nodes, and the hour's price."""
    run = best.run
    if run is None:
        return Said("nothing")
    return rented_fleet(run.deployment, best.cost, also)


def rented_fleet(fleet: Deployment, cost: Cost | None, also: str = "") -> Said:
    """Return what is bought, of a fleet."""
    pools, bought = fleet.pools, gpus_bought(fleet, cost)
    gpus = " + ".join(f"{count:,.6g} × {gpu}" for gpu, count in bought.items())
    if cost is None:
        return Said(gpus, replicas(fleet))
    prices = [price for price, _ in alike(pools)]
    hourly = dict.fromkeys(format_fine_usd(price.usd_per_gpu_h) for price in prices)
    unused, paid = idle(cost.nodes), sum(bought.values())
    return Said.of(
        gpus,
        replicas(fleet),
        nodes_text(cost.nodes),
        f"{format_count(unused)} of {format_count(paid)} GPUs idle" if unused else "",
        f"{kind_text(paid_price(pools))} at {' and '.join(hourly)} a GPU-hour",
        tier_text(fleet) or also,
    )


def tier_text(fleet: Deployment) -> str:
    """Return the host memory for KV of each replica; empty without a tier."""
    gib = fleet.pools[0].configuration.engine.tier_gib
    return f"{gib:,.0f} GiB of host memory a replica keeps KV" if gib else ""


def month(best: Candidate) -> str:
    """Return the bill of a month, and that of a slow engine; empty without a price."""
    if best.cost is None:
        return ""
    text, slow = dollars(best.cost.usd_per_month), ""
    most = best.cautious_usd_per_month
    if most is not None and dollars(most) != text:
        slow = f", up to {dollars(most)} if the engine is slow"
    return f"{text}{ASSUMED * is_assumed(best.cost)} a month{slow}"


def in_time(judgement: Judgement, asked: str, of: str = "") -> str:
    """Return the share of requests in time and what is asked; empty without any."""
    if own_targets(judgement.classes):
        return f"{classes_attained(judgement)} in time"
    if judgement.attainment is None:
        return ""
    return f"{format_share(judgement.attainment.share)}{of} in time, asked {asked}"
