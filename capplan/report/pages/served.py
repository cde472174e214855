"""What a plan serves: traffic over time, lengths, and what the fleet could serve."""

import math
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from capplan.planning.evaluate.run import Run
from capplan.planning.load.traffic_over_time import Lengths, Traffic
from capplan.planning.plan.beyond_peak import TIMES, BeyondPeak
from capplan.planning.plan.last_replica import LastPoints, LastReplica
from capplan.planning.plan.result import Plan
from capplan.planning.plan.throughput import PLANNED, SATURATED, WITHIN_SLO, Throughput
from capplan.report.charts.served import length_figures, traffic_figures
from capplan.report.columns import format_count, format_list, format_load, format_share
from capplan.report.fields import fields
from capplan.report.page import FILES, Fact, Section, Table
from capplan.report.sentences import plural, sessions_fact
from capplan.report.window_sentences import window_length
from capplan.units import format_duration, format_usd

Part = TypeVar("Part")


def said_of(part: Part | None, say: Callable[[Part], str]) -> str:
    """Return what is said of a part of a plan; empty where the plan has none."""
    return "" if part is None else say(part)


def _told(row: Throughput) -> str:
    if row.width_s is None:
        return row.what
    return f"{row.what}: {window_length(row.width_s)}"


THROUGHPUT = fields("throughput", what=_told)
TRAFFIC = fields("traffic")
LENGTHS = fields("lengths", class_name=lambda row: row.class_name or "all")


def served_llm(plan: Plan) -> str:
    """Return whose shapes and which precision a name stands for.

    Empty for an entry of the catalog in its own precision, as its name says so.
    """
    configuration = None if plan.best is None else plan.best.configuration
    replica = None if configuration is None else configuration.replica
    if replica is None or replica.llm.name.lower() == str(plan.llm).lower():
        return ""
    llm, dtype = replica.llm, replica.weight_dtype
    attention = llm.mixer_dtype if dtype == llm.weight_dtype else ""
    mixers = "attention and states" if llm.state_layers else "attention"
    parts = f" ({mixers} in {attention})" if attention not in ("", dtype) else ""
    return (
        f"{llm.source}: {llm.parameter_count / 1e9:.4g} B parameters, weights in "
        f"{dtype}{parts}, KV in {replica.kv_dtype}"
    )


def served_facts(plan: Plan) -> list[Fact]:
    """Return the busiest window, the use of the fleet, and its busiest replica."""
    best = plan.best
    run = None if best is None else best.run
    work = None if run is None else run.work
    busiest = None if work is None else work.busiest_share_of_mean
    said = ""
    if best is not None and busiest is not None and (best.replica_count or 0) > 1:
        said = f"{format_count(busiest)} × the mean replica's work"
    return [
        ("KV cache", "" if run is None else kv_cache(run)),
        ("sessions", "" if run is None else sessions_fact(run)),
        ("rate", peak(plan)),
        ("tokens", used(plan)),
        ("busiest replica", said),
        ("beyond peak", said_of(plan.beyond_peak, beyond_peak)),
        ("gateway", said_of(plan.beyond_peak, gateway)),
        ("last replica", said_of(plan.last_replica, last_replica)),
        ("last points", said_of(plan.last_points, last_points)),
    ]


def beyond_peak(beyond: BeyondPeak) -> str:
    """Return what the fleet attains at 1.3 times the peak."""
    grows = "" if beyond.stable else ", and the backlog grows"
    return (
        f"{format_share(beyond.slo_attainment)} of requests in time at {TIMES:g} times "
        f"the peak, {format_count(beyond.rate_per_s)} requests/s for "
        f"{format_duration(beyond.simulated_s)}{grows}"
    )


def gateway(beyond: BeyondPeak) -> str:
    """Return the requests in flight at which a gateway is to refuse others."""
    if beyond.gateway is None:
        return ""
    limit = beyond.gateway
    of_classes = ", ".join(
        f"{name} {count:,}" for name, count in limit.in_flight_by_class.items()
    )
    return (
        f"refuse requests where a replica has {limit.in_flight:,} in flight"
        f"{f' ({of_classes})' if of_classes else ''}: at {TIMES:g} times the peak "
        f"{format_share(limit.admitted_share)} are admitted, and "
        f"{format_share(limit.slo_attainment)} of those are in time"
    )


def last_replica(last: LastReplica) -> str:
    """Return what the last replica costs where one fewer misses by little."""
    points = f"one fewer misses by {100 * last.missed_by:.2g} percentage points"
    if last.usd_per_month is None:
        return points
    if last.usd_per_month <= 0:
        return f"{points}; the last one is free, on nodes paid for anyway"
    return f"{points}; the last one costs {format_usd(last.usd_per_month)} a month"


def last_points(last: LastPoints) -> str:
    """Return what the points cost by which far fewer replicas miss."""
    found = plural(last.replica_count, "replica")
    parts = [plural(last.replica_count_more, "replica")]
    if last.node_count_more:
        parts.append(
            f"{last.node_count_more:,.3g} node{'s' * (last.node_count_more != 1)}"
        )
    if last.usd_per_month is not None:
        parts.append(f"{format_usd(last.usd_per_month)} a month")
    points = f"{100 * last.missed_by:.2g} percentage points"
    verb = "misses" if last.replica_count == 1 else "miss"
    return f"{found} {verb} by {points}; these cost {format_list(parts)}"


def kv_cache(run: Run) -> str:
    """Return the KV of a replica and how many requests fit, as vLLM logs them.

    Of the longest context, and of the mean of these requests.
    """
    engine, totals = run.configuration.engine, run.simulation.totals
    mean = math.ceil(totals.mean_prompt_tokens + totals.mean_output_tokens)
    rooms = " and ".join(
        f"{room} request{'s' * (room != '1')} of {tokens:,} tokens"
        for tokens in dict.fromkeys((engine.longest_tokens, mean))
        for room in [format_count(engine.requests_at(tokens))]
    )
    return f"{engine.kv_tokens:,} tokens a replica: {rooms}"


def peak(plan: Plan) -> str:
    """Return when most arrives, and how that compares with what the fleet sustains."""
    traffic = plan.traffic
    if traffic is None:
        return ""
    at = traffic.busiest
    rate_per_s, start_s = float(traffic.rate_per_s[at]), float(traffic.start_s[at])
    since = f"{format_duration(start_s)} after" if start_s else "from"
    text = (
        f"{format_count(rate_per_s)} requests/s in the busiest "
        f"{window_length(traffic.width_s)}, {since} the first arrival"
    )
    rows = {row.what: row for row in plan.throughput}
    row = rows.get(WITHIN_SLO) or rows.get(SATURATED)
    if row is None:
        return text
    share = rate_per_s / row.rate_per_s
    capacity = f"the {format_count(row.rate_per_s)} requests/s "
    if row.what == WITHIN_SLO:
        capacity += "that the fleet holds"
    else:
        capacity += "of its maximum throughput"
    if share > 1:  # for a time that short, or a fleet that does not hold it
        return f"{text}: more than {capacity} for longer"
    return f"{text}: {format_load(share)} of {capacity}"


def used(plan: Plan) -> str:
    """Return the tokens served, as shares of what the same fleet could serve."""
    rows = {row.what: row for row in plan.throughput}
    planned = rows.get(PLANNED)
    if planned is None:
        return ""
    text = (
        f"{format_count(planned.prompt_tokens_per_s)} prompt and "
        f"{format_count(planned.output_tokens_per_s)} output tokens/s"
    )
    capacities = (
        (WITHIN_SLO, "what the fleet holds"),
        (SATURATED, "the fleet's maximum throughput"),
    )
    parts = [
        f"{format_load(rows[what].used_share or math.nan)} of {capacity}"
        for what, capacity in capacities
        if what in rows
    ]
    return ": ".join(filter(None, (text, ", ".join(parts))))


def served_section(plan: Plan) -> Section:
    """Return traffic over time against capacity, and what the fleet could serve."""
    notes = []
    if plan.best is not None and plan.traffic is None:
        notes = [_undated(plan)]
    return Section(
        "Traffic against capacity",
        tables=[throughput_table(plan.throughput)],
        facts=[("peak", peak(plan))],
        figures=partial(traffic_figures, plan),
        notes=notes,
        only=FILES,
    )


def _undated(plan: Plan) -> str:
    if plan.asked_by is not None:
        return "No chart over time: users ask as fast as they are answered."
    if plan.settings.get("rate") is None:
        return "No chart over time: the requests arrive within 2 s."
    return (
        "No chart over time: the requests have no times of their own; their arrivals "
        "are drawn at one mean rate."
    )


def throughput_table(rows: tuple[Throughput, ...]) -> Table:
    """Return what is served, and what the same fleet could serve."""
    known = {row.what for row in rows}
    parts = []
    if WITHIN_SLO in known:
        parts.append(
            "Within the SLO: the highest rate that holds, of the same mix of requests "
            "in Poisson arrivals at one mean rate."
        )
    if SATURATED in known:
        parts.append(
            "Maximum: what the replicas complete when requests always wait, whatever "
            "the latency."
        )
    return Table(THROUGHPUT, rows, note=" ".join(parts))


def lengths_section(lengths: tuple[Lengths, ...]) -> Section:
    """Return how long prompts and answers are, of each class."""
    return Section(
        "Lengths of requests",
        tables=[lengths_table(lengths)],
        figures=partial(length_figures, lengths),
        only=FILES,
    )


def lengths_table(lengths: tuple[Lengths, ...]) -> Table:
    """Return the lengths of all requests and of each class. [tokens]"""
    note = "Tokens of a request: the mean, and the percentiles 50, 90 and 99."
    return Table(LENGTHS, lengths, note=note)


def traffic_table(traffic: Traffic | None) -> Table:
    """Return the bins of the traffic for CSV; no rows where its times are drawn."""
    if traffic is None:
        return Table(TRAFFIC, ())
    columns = [getattr(traffic, column.name).tolist() for column in TRAFFIC]
    return Table(TRAFFIC, list(zip(*columns, strict=True)))
