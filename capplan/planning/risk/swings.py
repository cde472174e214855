"""What each input does to a plan: one at a time, and what knowing it is worth."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from capplan.planning.evaluate.executors import Executor
from capplan.planning.money.cost import HOURS_PER_MONTH, NodeCount, bills_of, nodes_of
from capplan.planning.risk.drawn_plan import Shared, drawn_plan
from capplan.planning.risk.draws import Draw
from capplan.planning.risk.result import DrawnPlan, Swing, Worth
from capplan.planning.risk.worth import FEWEST_DRAWS, losses, worth_of, worth_of_all

_LOW, _HIGH = 0.1, 0.9
ALL = "all"
"""Name of all inputs together."""

_VALUES: dict[str, Callable[[DrawnPlan], float]] = {
    "days": lambda row: row.busiest_per_s,
    "profile": lambda row: row.draw.capacity_ratio,
    "lengths": lambda row: row.mean_tokens,
    "growth": lambda row: row.draw.growth,
    "output": lambda row: row.draw.output,
}
"""What an input is known by in a draw; prices change no count."""


def swings(
    shared: Shared, rows: Sequence[DrawnPlan], workers: Executor
) -> tuple[tuple[Swing, ...], int]:
    """Return what each input alone does, the widest first, and the fleets simulated."""
    chosen = list(_ends(shared, rows))
    found = workers(
        drawn_plan, shared, [draw for _, _, pair in chosen for draw in pair]
    )
    told = [
        Swing(
            name,
            ends,
            (low.replica_count, high.replica_count),
            (_node_count(shared, low), _node_count(shared, high)),
            (low.usd_per_month, high.usd_per_month),
        )
        for (name, ends, _), (low, _), (high, _) in zip(
            chosen, found[::2], found[1::2], strict=True
        )
    ]
    return tuple(sorted(told, key=_width, reverse=True)), sum(runs for _, runs in found)


def _ends(
    shared: Shared, rows: Sequence[DrawnPlan]
) -> Iterator[tuple[str, tuple[float, float], tuple[Draw, Draw]]]:
    """Yield each input with its low and high end, and draws that change it alone."""
    price = shared.deployment.pool.configuration.price
    for name in shared.draws.drawn_names:
        if name == "prices" and price is not None:
            found = bills_of(shared.deployment.pools)
            low, high = (price.providers.index(found[i].provider) for i in (0, -1))
            gpus = shared.deployment.gpu_count
            ends = found[0].usd_per_h / gpus, found[-1].usd_per_h / gpus
            yield name, ends, (Draw(-1, offer=low), Draw(-1, offer=high))
            continue
        ordered = sorted(rows, key=_VALUES[name])
        pair = [ordered[round(share * (len(ordered) - 1))] for share in (_LOW, _HIGH)]
        values = _VALUES[name](pair[0]), _VALUES[name](pair[1])
        yield name, values, (_alone(name, pair[0].draw), _alone(name, pair[1].draw))


def _alone(name: str, draw: Draw) -> Draw:
    """Return a draw of one input, with all others as planned."""
    if name == "lengths":
        return Draw(draw.index)
    field = {"days": "blocks", "profile": "capacity_ratio"}.get(name, name)
    alone: dict[str, Any] = {field: getattr(draw, field)}
    return Draw(-1, **alone)


def _width(swing: Swing) -> tuple[float, float]:
    """Return how far apart the ends of a swing are: in $, then in replicas."""

    def spread(pair: tuple[float | None, float | None]) -> float:
        low, high = (np.inf if value is None else value for value in pair)
        return 0.0 if low == high else abs(high - low)

    return spread(swing.usd_per_month), spread(swing.replica_counts)


def _nodes(shared: Shared, row: DrawnPlan) -> tuple[NodeCount, ...] | None:
    """Return the nodes of a draw; None without a count or a price."""
    if row.replica_count is None:
        return None
    return nodes_of(shared.deployment.with_replicas(row.replica_count).pools)


def _node_count(shared: Shared, row: DrawnPlan) -> float | None:
    """Return the nodes, or GPUs sold singly, of a draw; None without a price."""
    nodes = _nodes(shared, row)
    return None if nodes is None else sum(each.units for each in nodes)


def worth_of_knowing(shared: Shared, rows: Sequence[DrawnPlan]) -> dict[str, Any]:
    """Return fields of ``Risk``: what each input is worth to know, or why not."""
    penalty, pool = shared.inputs.settings.penalty, shared.deployment.pool
    price, planned = pool.configuration.price, nodes_of(shared.deployment.pools)
    found = (_nodes(shared, row) for row in rows)
    needed = [nodes for nodes in found if nodes is not None]
    if price is None or planned is None:
        return {"unknown_worth": "the GPU has no price"}
    if len(rows) < FEWEST_DRAWS:
        return {"unknown_worth": f"it takes {FEWEST_DRAWS} draws or more (--draws)"}
    if len(needed) < len(rows):
        return {"unknown_worth": "in some draws no count that was tried holds"}
    paid = sum(row.usd_per_h for row in planned)
    size = min(row.gpus_per_node or 1 for nodes in (planned, *needed) for row in nodes)
    gpus = [sum(row.gpus_paid for row in nodes) for nodes in (planned, *needed)]
    counts = np.array(gpus, dtype=np.int64) // size
    unused_usd = HOURS_PER_MONTH * paid / int(counts[0])
    dearest = bills_of(shared.deployment.pools)[-1].usd_per_h
    missing_usd = unused_usd * dearest / paid
    if penalty is not None:
        missing_usd = penalty
    _, lost_usd = losses(counts[1:], unused_usd, missing_usd)
    worth = [
        Worth(name, worth_of(np.array([_VALUES[name](row) for row in rows]), lost_usd))
        for name in shared.draws.drawn_names
        if name in _VALUES
    ]
    worth.sort(key=lambda row: -row.usd_per_month)
    return {
        "worth": (*worth, Worth(ALL, worth_of_all(lost_usd))),
        "unused_usd_per_month": unused_usd,
        "missing_usd_per_month": missing_usd,
    }
