"""What each provider bills for the whole nodes that replicas take, and which counts.

Of every provider the cheapest nodes that hold the replicas are taken, of mixed sizes
where these cost less.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from capplan.fleet.nodes import nodes_for
from capplan.fleet.price import Price

_NEVER = 2**62
"""Cost of what nodes cannot hold."""
_MICRO, _TIE = 1_000_000, 4096
"""Costs are counted in millionths of a dollar; of equal ones the fewest nodes."""


class Replicas(NamedTuple):
    """Replicas of one size, and the nodes that hold one."""

    gpus: int  # of a replica
    replica_count: int
    price: Price


class Row(NamedTuple):
    """Nodes of one size of a provider, or GPUs that are sold one by one."""

    price: Price
    units: int  # nodes, or GPUs
    counts: tuple[int, ...]  # replicas on them, of each size asked for

    @property
    def gpus_paid(self) -> int:
        """GPUs of the nodes."""
        return self.units * (self.price.gpus_per_node or 1)

    @property
    def usd_per_h(self) -> float:
        """What they cost. [$/h]"""
        return self.units * self.price.usd_per_node_h


class Bill(NamedTuple):
    """The cheapest nodes of a provider that hold replicas, the largest first."""

    provider: str  # empty where not known
    rows: tuple[Row, ...]

    @property
    def usd_per_h(self) -> float:
        """What they cost. [$/h]"""
        return sum(row.usd_per_h for row in self.rows)


def bills(replicas: Sequence[Replicas]) -> tuple[Bill, ...]:
    """Return the bill of each provider that can hold all replicas, cheapest first.

    Exact for replicas of one size, and where the sizes of replicas and nodes divide
    one another, as powers of two do; else the better of nodes of one size and of nodes
    for each size of replicas alone.
    """
    found = []
    for name in replicas[0].price.providers:
        menus = [
            {ask.bought: ask for ask in each.price.asks if ask.provider == name}
            for each in replicas
        ]
        if all(menus):
            rows = min(_offers(replicas, menus), key=_usd)
            found.append(Bill(name, tuple(rows)))
    return tuple(sorted(found, key=lambda bill: (_usd(bill.rows), bill.provider)))


def signed(found: Sequence[Bill]) -> Bill:
    """Return the bill at the lower quartile: of n the ⌈n/4⌉-th cheapest.

    Examples
    --------
    >>> of = [Bill(name, ()) for name in "abcdefghi"]
    >>> signed(of).provider, signed(of[:3]).provider
    ('c', 'a')
    """
    return found[math.ceil(len(found) / 4) - 1]


def paid(replicas: Sequence[Replicas]) -> list[Bill]:
    """Return the signed bill of replicas; of each alone where no provider has all."""
    found = bills(replicas)
    return [signed(found)] if found else [signed(bills([each])) for each in replicas]


def one_size(replicas: Sequence[Replicas]) -> Price | None:
    """Return the nodes of one size with which the signed bill's provider bills least.

    None where no provider has nodes for all replicas.
    """
    found = bills(replicas)
    if not found:
        return None
    menus = [
        {ask.bought: ask for ask in each.price.of(signed(found).provider).asks}
        for each in replicas
    ]
    common = [ask for key, ask in menus[0].items() if all(key in m for m in menus)]
    sizes = [(each.gpus, each.replica_count) for each in replicas]

    def usd(ask: Price) -> tuple[float, int]:
        nodes, _ = nodes_for(sizes, ask.gpus_per_node or 1)
        return round(nodes * ask.usd_per_node_h, 6), nodes

    return replace(min(common, key=usd), asked=()) if common else None


def _usd(rows: Sequence[Row]) -> float:
    return round(sum(row.usd_per_h for row in rows), 6)


_Menu = dict[tuple[str, str, int | None, float], Price]


def _offers(
    replicas: Sequence[Replicas], menus: Sequence[_Menu]
) -> Iterator[list[Row]]:
    """Yield ways to hold replicas on nodes of one provider, the best among them."""
    alone: list[Row] = []
    for index, (each, menu) in enumerate(zip(replicas, menus, strict=True)):
        for row in _of_one_size(each, menu):
            on = [0] * len(replicas)
            on[index] = row.counts[0]
            alone.append(row._replace(counts=tuple(on)))
    yield _together(alone)
    if len(replicas) == 1:
        return
    common = [ask for key, ask in menus[0].items() if all(key in m for m in menus)]
    sizes = [(each.gpus, each.replica_count) for each in replicas]
    counts = tuple(each.replica_count for each in replicas)
    for ask in common:
        if ask.gpus_per_node is not None:
            yield [Row(ask, nodes_for(sizes, ask.gpus_per_node)[0], counts)]
    if shared := _shared(replicas, menus):
        yield shared


def _together(rows: Sequence[Row]) -> list[Row]:
    """Return rows of the same GPUs that are sold one by one as one row."""
    found: dict[tuple[object, ...], Row] = {}
    for index, row in enumerate(rows):
        single = row.price.gpus_per_node is None
        key = row.price.bought if single else (index,)
        known = found.get(key)
        if known is not None:
            pairs = zip(known.counts, row.counts, strict=True)
            row = Row(row.price, known.units + row.units, tuple(map(sum, pairs)))
        found[key] = row
    return list(found.values())


def _of_one_size(each: Replicas, menu: _Menu) -> list[Row]:
    sold = [ask for ask in menu.values() if ask.gpus_per_node is None]
    by_size = _by_size(menu)
    if not by_size:
        ask = min(sold, key=lambda ask: ask.usd_per_gpu_h)
        return [Row(ask, each.gpus * each.replica_count, (each.replica_count,))]
    bundles = [
        (size, bundle) for size in by_size for bundle in _bundles(each.gpus, size)
    ]
    items = tuple(
        (held, _cost(by_size[size], nodes), _NEVER) for size, (held, nodes) in bundles
    )
    taken: dict[int, list[int]] = {}
    for (size, (held, nodes)), times in zip(
        bundles, _cover(items, each.replica_count), strict=True
    ):
        if times:
            of = taken.setdefault(size, [0, 0])
            of[0] += nodes * times
            of[1] += held * times
    rows, left = [], each.replica_count
    for size in sorted(taken, reverse=True):
        nodes, held = taken[size]
        rows.append(Row(by_size[size], nodes, (min(held, left),)))
        left -= min(held, left)
    return rows


def _bundles(gpus: int, size: int) -> list[tuple[int, int]]:
    """Return replicas that share nodes of a size, and how many nodes these are.

    A replica larger than a node takes whole ones, and what is over shares one.

    Examples
    --------
    >>> _bundles(2, 8), _bundles(16, 8), _bundles(12, 8)
    ([(4, 1)], [(1, 2)], [(1, 2), (2, 3)])
    """
    if gpus <= size:
        return [(size // gpus, 1)]
    whole, rest = divmod(gpus, size)
    if not rest:
        return [(1, whole)]
    return [(held, held * whole + 1) for held in range(1, size // rest + 1)]


def _by_size(menu: _Menu) -> dict[int, Price]:
    """Return the cheapest node of each size, in ascending order."""
    found: dict[int, Price] = {}
    for ask in sorted(menu.values(), key=lambda ask: -ask.usd_per_gpu_h):
        if ask.gpus_per_node is not None:
            found[ask.gpus_per_node] = ask
    return dict(sorted(found.items()))


def _cost(ask: Price, nodes: int = 1) -> int:
    return nodes * (round(ask.usd_per_node_h * _MICRO) * _TIE + 1)


def _shared(replicas: Sequence[Replicas], menus: Sequence[_Menu]) -> list[Row]:
    """Return the cheapest nodes that replicas of several sizes share.

    None where sizes do not divide one another. Then replicas fit where the nodes that
    are as large as some of them have enough GPUs for these, of every size.
    """
    by_size = _by_size({key: ask for menu in menus for key, ask in menu.items()})
    chain = sorted({*by_size, *(each.gpus for each in replicas)})
    held = all(
        ask.bought in menu
        for each, menu in zip(replicas, menus, strict=True)
        for size, ask in by_size.items()
        if size >= each.gpus
    )
    if not held or chain[-1] not in by_size or any(b % a for a, b in pairwise(chain)):
        return []
    unit = min(each.gpus for each in replicas)
    sizes = [size for size in by_size if size >= unit]
    items = tuple(
        (
            size // unit,
            _cost(by_size[size]),
            sum(e.gpus * e.replica_count for e in replicas if e.gpus <= size) // unit,
        )
        for size in sizes
    )
    total = sum(each.gpus * each.replica_count for each in replicas) // unit
    nodes = dict(zip(sizes, _cover(items, total), strict=True))
    left = [each.replica_count for each in replicas]
    order = sorted(range(len(replicas)), key=lambda i: -replicas[i].gpus)
    rows = []
    for size in reversed(sizes):
        free, on = nodes[size] * size, [0] * len(replicas)
        for index in order:
            gpus = replicas[index].gpus
            if gpus <= size:
                on[index] = min(left[index], free // gpus)
                left[index] -= on[index]
                free -= on[index] * gpus
        if nodes[size]:
            rows.append(Row(by_size[size], nodes[size], tuple(on)))
    return rows


def _cover(items: tuple[tuple[int, int, int], ...], units: int) -> list[int]:
    """Return how often each item is taken to hold so many units at the least cost.

    Items are (units held, cost, most units that may be left to it and those before).
    """
    most = units
    if all(limit == _NEVER for _, _, limit in items):  # the same for all counts up to
        most = 1 << max(6, (units - 1).bit_length())
    stages = _least(items, most)
    taken, left = [0] * len(items), units
    for index in range(len(items) - 1, -1, -1):
        each = slice(left, 0, -items[index][0])  # left after one more of them
        same = np.append(stages[index + 1][each] == stages[index][each], True)
        taken[index] = int(same.argmax())
        left = max(0, left - items[index][0] * taken[index])
    return taken


@lru_cache(maxsize=512)
def _least(items: tuple[tuple[int, int, int], ...], units: int) -> list[np.ndarray]:
    """Return the least cost to hold 0 to ``units`` units by the first items, of each.

    Shape (units + 1,) each, int64.
    """
    stages = [np.full(units + 1, _NEVER, np.int64)]
    stages[0][0] = 0
    for most, cost, limit in items:
        before, held = stages[-1], min(most, units)
        rows = -(-(units + held) // held)
        padded = np.full(rows * held, _NEVER, np.int64)
        padded[: held - 1] = before[0]
        padded[held - 1 : held + units] = before
        paid = np.arange(rows, dtype=np.int64)[:, None] * cost
        least = np.minimum.accumulate(padded.reshape(rows, held) - paid, axis=0) + paid
        now = np.minimum(least.ravel()[held - 1 : held + units], _NEVER)
        now[min(limit, units) + 1 :] = _NEVER
        stages.append(now)
    return stages
