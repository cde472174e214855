"""Charts of what happens between replicas, and of replicas that come and go."""

from collections.abc import Iterable

import numpy as np

from capplan.planning.evaluate.replica_hours import ReplicaHours
from capplan.planning.evaluate.run import Run
from capplan.report.charts.fleet import digits, time_axis
from capplan.report.charts.svg_chart import Axis, Line, figure
from capplan.report.columns import format_share
from capplan.report.page import Figure
from capplan.simulator.results.times import Simulation

_BINS = 60
_POINTS = 240
"""Moments at which the KV of each replica is drawn."""


def motion_figures(run: Run) -> list[Figure]:
    """Return what a run shows of its pools, its migrations and its replicas."""
    simulation, found = run.simulation, []
    if len(simulation.pools) > 1 and len(simulation.series.start_s) > 1:
        found += pool_figures(run)
    if simulation.moved is not None and simulation.times is not None:
        found += _migrations(run)
    if run.hours is not None:
        found.append(replicas_figure(simulation.totals.makespan_s, run.hours))
    return found


def pool_figures(run: Run) -> list[Figure]:
    """Return the utilisation and the KV of each pool over time."""
    roles, pools = run.deployment.roles, run.simulation.pools
    time = time_axis(pools[0].series.start_s)
    share = Axis("share", format_share, 0, 1)
    busy, kv = (
        [
            Line(role, pool.series.start_s, getattr(pool.series, name))
            for role, pool in zip(roles, pools, strict=True)
        ]
        for name in ("busy_share", "kv_share")
    )
    return [
        figure(
            "Load of the pools over time",
            time,
            share,
            busy,
            caption="Share of time that engines compute; mean over their replicas.",
        ),
        figure(
            "KV of the pools over time",
            time,
            share,
            kv,
            caption="Share of KV blocks in use, those held for a copy too.",
        ),
    ]


def kv_by_replica(simulation: Simulation, at_s: np.ndarray) -> np.ndarray:
    """Return the tokens with KV on each replica, shape (replicas, moments).

    From the times of requests: each holds its prompt from its first batch on, and its
    output as it grows evenly to the last token, on the replica that it is on then.
    """
    times, moved = simulation.table, simulation.moved
    tokens = np.zeros((simulation.replica_count, len(at_s)))
    from_s = np.nan_to_num(times.scheduled_s, nan=np.inf)
    source = np.full(len(times), -1)
    left_s = np.full(len(times), np.inf)
    where = times.replica.copy()
    assert moved is not None
    # A request that moved several times is drawn by its last move.
    for move in moved[moved["joined"] == 1]:
        row = int(move["row"])
        if times.replica[row] == move["destination"]:
            source[row], left_s[row] = move["source"], move["ended_s"]
    lasts_s = np.maximum(times.finish_s - from_s, 1e-9)
    for k, moment_s in enumerate(at_s):
        there = (from_s <= moment_s) & (moment_s < times.finish_s)
        grown = np.clip((moment_s - from_s) / lasts_s, 0, 1) * times.output_tokens
        held = np.where(there, times.prompt_tokens + grown, 0.0)
        on = np.where((moment_s < left_s) & (source >= 0), source, where)
        tokens[:, k] = np.bincount(on, held, simulation.replica_count)
    return tokens


def _migrations(run: Run) -> list[Figure]:
    simulation = run.simulation
    times, moved = simulation.table, simulation.moved
    assert moved is not None
    first_s = float(times.arrival_s[0])
    last_s = first_s + max(simulation.totals.makespan_s, 1e-9)
    at_s = np.linspace(first_s, last_s, _POINTS)
    held = kv_by_replica(simulation, at_s)
    engine = run.configuration.engine
    held /= (engine.kv_blocks - 1) * engine.block_size
    since_s = at_s - first_s
    lines = [
        Line(label, since_s, values)
        for label, values in (
            ("fullest replica", held.max(axis=0)),
            ("mean", held.mean(axis=0)),
            ("emptiest replica", held.min(axis=0)),
        )
    ]
    time = time_axis(since_s)
    top = max(float(held.max()) * 1.08, 1e-6)
    edges_s = np.linspace(first_s, last_s, _BINS + 1)
    joined = moved["joined"] == 1
    bars = [
        Line(label, edges_s[:-1] - first_s, np.histogram(ended_s, edges_s)[0])
        for label, ended_s in (
            ("joined another replica", moved["ended_s"][joined]),
            ("aborted", moved["ended_s"][~joined]),
        )
    ]
    return [
        figure(
            "KV of the replicas over time",
            time,
            Axis("share of a replica's KV", format_share, 0, top),
            lines,
            caption="From the requests on each replica; where the lines lie together, "
            "migrations keep the replicas alike.",
        ),
        figure(
            "Migrations between replicas over time",
            time,
            Axis.above("migrations", digits, bars),
            bars,
            caption=f"In each of {_BINS} parts of the time; "
            f"{int(joined.sum()):,} requests moved, {int((~joined).sum()):,} stayed.",
        ),
    ]


def steps(edges: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners of a line of steps between n + 1 edges, y of shape (n,)."""
    return np.repeat(edges, 2)[1:-1], np.repeat(np.asarray(y, float), 2)


def stacked(edges: np.ndarray, layers: Iterable[tuple[str, np.ndarray]]) -> list[Line]:
    """Return layers between n + 1 edges, one on another, each of shape (n,)."""
    below, lines = np.zeros(len(edges) - 1), []
    for name, layer in layers:
        x, high = steps(edges, below + layer)
        low = steps(edges, below)[1]
        lines.append(Line(name, x, high, low=low, high=high, shaded=True))
        below = below + layer
    return lines


def replicas_figure(
    makespan_s: float, hours: ReplicaHours, needed: Line | None = None
) -> Figure:
    """Return how many replicas are paid, are ready and, where known, are needed."""
    edges_s = np.append(hours.start_s - hours.start_s[0], makespan_s)
    lines = [
        Line("paid", *steps(edges_s, hours.paid)),
        Line("ready", *steps(edges_s, hours.ready)),
    ]
    if needed is not None:
        lines.append(needed)
    return figure(
        "Replicas over time",
        time_axis(np.array([0.0, makespan_s])),
        Axis.above("replicas", digits, lines),
        lines,
        caption="Paid from the order of a replica until it is gone; ready while it "
        "takes requests.",
    )
