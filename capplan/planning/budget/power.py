"""The power of a node of a budget, and what its electricity emits."""

from capplan.fleet.grids import grid_of
from capplan.fleet.nodes import find_node
from capplan.planning.budget.result import Power
from capplan.planning.money.node_prices import NodePrices
from capplan.planning.money.owned import DRAW, PUE, Owned, rated_kw


def power_of(
    gpu: str, prices: NodePrices, owned: Owned | None, grid_name: str
) -> Power | None:
    """Return the power of a node; None where that of its GPUs is not known."""
    gpus, grid = prices.gpus_per_node, grid_of(grid_name)
    if owned is not None:
        return Power(owned.kw / owned.gpus * gpus, owned.draw, owned.pue, *grid)
    kw = rated_kw(gpu, gpus)
    if kw is None:
        return None
    node = find_node(prices.node, prices.provider)
    if node is not None and node.host_power_w is not None:
        kw = node.host_power_w / 1000
    return Power(kw, DRAW, PUE, *grid)
