"""Which nodes of a provider a budget buys: those to commit to, and smaller beside."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import Pool
from capplan.errors import InputError
from capplan.fleet.bills import signed
from capplan.planning.money.commitments import Hours
from capplan.planning.money.cost import NodeCount, bills_of, nodes_of
from capplan.planning.money.node_hours import each_count, whole_nodes


@dataclass(frozen=True)
class NodesToBuy:
    """Nodes of one size, which may be committed, and others on demand beside them."""

    configuration: Configuration  # at the price of that size alone
    menu: Configuration | None = None  # with all sizes; None: no others are bought

    def nodes(self, replicas: np.ndarray) -> np.ndarray:
        """Return the nodes of that size for each count, shape (n,), int64."""
        price, gpus = self.configuration.price, self.configuration.gpus
        assert price is not None
        if self.menu is None:
            return whole_nodes(replicas, gpus, price.gpus_per_node or 1)
        own = price.node, price.gpus_per_node

        def of_size(count: int) -> float:
            rows = self._rows(count)
            return sum(r.units for r in rows if (r.node, r.gpus_per_node) == own)

        return each_count(replicas, of_size)

    def _rows(self, count: int) -> tuple[NodeCount, ...]:
        """Return the cheapest nodes of all sizes."""
        assert self.menu is not None
        return nodes_of([Pool(self.menu, count)]) or ()

    def beside_usd(self, replicas: Hours) -> float:
        """Return what nodes of other sizes cost in a month of so many replicas. [$]"""
        price = self.configuration.price
        if self.menu is None or price is None:
            return 0.0
        own = self.nodes(replicas.nodes) * price.usd_per_node_h
        usd = [
            sum(row.usd_per_h for row in self._rows(count))
            for count in replicas.nodes.tolist()
        ]
        return float(np.maximum(np.array(usd) - own, 0.0) @ replicas.hours)


def nodes_to_buy(pool: Pool, *, mixed: bool) -> Iterator[NodesToBuy]:
    """Yield what may be bought of the provider whose bill for a pool counts.

    Nodes of each size alone; with ``mixed`` also the cheapest nodes of all sizes for
    each hour, of which those of one size may be committed.
    """
    configuration = pool.configuration
    if configuration.price is None:
        raise InputError(
            f"{configuration.gpu or 'these GPUs'}: no price is known; give "
            "--price GPU=DOLLARS or --prices FILE"
        )
    price = configuration.price.of(signed(bills_of([pool])).provider)
    menu = replace(configuration, price=price)
    for ask in price.asks:
        one = replace(configuration, price=replace(ask, asked=()))
        yield NodesToBuy(one)
        if mixed and len(price.asks) > 1:
            yield NodesToBuy(one, menu)
