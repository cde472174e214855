"""Charts of shared nodes: those needed by the hour, and who stands on which."""

from collections.abc import Sequence

import numpy as np
from markupsafe import escape

from capplan.planning.shared_fleet.result import SharedFleet, SharedPool
from capplan.report import sentences
from capplan.report.charts.fleet import digits, hour_axis
from capplan.report.charts.motion import stacked, steps
from capplan.report.charts.svg_chart import (
    COLOURS,
    WIDTH,
    Axis,
    Line,
    Rule,
    figure,
    svg,
)
from capplan.report.page import Figure

_ACROSS, _GAP, _HIGH, _ROW, _LABEL = 4, 14, 22, 42, 14
"""Nodes beside one another, and sizes of what is drawn. [px]"""
_MOST_NODES = 64
_LETTER_PX = 8
"""Width that a digit takes within a replica. [px]"""


def node_figures(fleet: SharedFleet) -> Sequence[Figure]:
    """Return the charts of each pool; without hours only its map."""
    found = []
    for pool in fleet.pools:
        if fleet.hours > 1:
            found.append(hours_figure(pool))
        found.append(map_figure(pool))
    return found


def hours_figure(pool: SharedPool) -> Figure:
    """Return the nodes that each LLM's GPUs fill at each hour, one on another."""
    hours = len(pool.nodes)
    edges = np.arange(hours + 1, dtype=float)
    filled = [
        (tenant.name, replicas * (tenant.pool.gpus / pool.gpus_per_node))
        for tenant, replicas in zip(pool.tenants, pool.replicas, strict=True)
    ]
    lines = stacked(edges, filled)
    needed = steps(edges, pool.nodes.astype(float))
    lines.append(Line("whole nodes needed", *needed))
    most = pool.joint_peak
    peak = f"joint peak: {sentences.plural(most, 'node')}"
    return figure(
        f"Nodes by the hour: {pool.name}",
        hour_axis(hours),
        Axis("nodes", digits, 0, 1.15 * most),
        lines,
        [Rule(peak, y=float(most))],
        caption="GPUs of each LLM's replicas in nodes, one on another; between them "
        "and the nodes needed are GPUs that no replica fits.",
    )


def map_figure(pool: SharedPool) -> Figure:
    """Return the nodes of the joint peak with their replicas, and the spares."""
    nodes = pool.peak_map.nodes[:_MOST_NODES]
    shown = len(nodes) + (
        pool.spares.count if len(nodes) == len(pool.peak_map.nodes) else 0
    )
    rows = -(-shown // _ACROSS)
    wide = (WIDTH - _GAP * (_ACROSS - 1)) / _ACROSS
    parts = []
    for index in range(shown):
        row, column = divmod(index, _ACROSS)
        left, top = column * (wide + _GAP), row * _ROW + _LABEL
        is_spare = index >= len(nodes)
        label = "spare" if is_spare else f"node {index + 1}"
        dashes = ' stroke-dasharray="4 3"' if is_spare else ""
        parts.append(
            f'<text x="{left:.1f}" y="{top - 3}" font-size="11">{label}</text>'
            f'<rect x="{left + 0.5:.1f}" y="{top + 0.5}" width="{wide - 1:.1f}" '
            f'height="{_HIGH}" fill="none" stroke="#9aa4b2"{dashes}/>'
        )
        if not is_spare:
            parts += _replicas(pool, index, left, top, wide)
    legend = tuple(
        (f"{number + 1} {tenant.name}", COLOURS[number % len(COLOURS)])
        for number, tenant in enumerate(pool.tenants)
    )
    hour = f", hour {pool.peak_hour}" if len(pool.nodes) > 1 else ""
    cut = ""
    if len(nodes) < len(pool.peak_map.nodes):
        cut = f" The first {_MOST_NODES} nodes; map.csv has all."
    return Figure(
        f"Replicas on nodes at the joint peak{hour}: {pool.name}",
        svg(rows * _ROW + 2, f"replicas on the nodes of {pool.name}", parts),
        legend,
        f"Each frame is a node of {sentences.plural(pool.gpus_per_node, 'GPU')}, each "
        f"box a replica on its GPUs.{cut}",
    )


def _replicas(
    pool: SharedPool, index: int, left: float, top: float, wide: float
) -> list[str]:
    """Return the boxes of a node's replicas, from the left."""
    parts, at = [], left
    for part in pool.peak_map.nodes[index]:
        tenant = pool.tenants[part.group]
        length = wide * part.gpus / pool.gpus_per_node
        number = str(part.group + 1)
        title = (
            f"{tenant.name}, replica {part.replica + 1}, "
            f"{sentences.plural(part.gpus, 'GPU')}"
        )
        parts.append(
            f'<rect x="{at + 1:.1f}" y="{top + 1}" width="{length - 2:.1f}" '
            f'height="{_HIGH - 1}" fill="{COLOURS[part.group % len(COLOURS)]}">'
            f"<title>{escape(title)}</title></rect>"
        )
        if length - 2 >= _LETTER_PX * len(number):
            parts.append(
                f'<text x="{at + length / 2:.1f}" y="{top + 16}" text-anchor="middle" '
                f'style="fill:#fff">{number}</text>'
            )
        at += length
    return parts
