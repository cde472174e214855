"""Kubecost's CSV of custom prices.

``gpu`` rows price one GPU beside its node, by the GPU's label: a node's price is the
sum. What GPUs a node has is known for those of the catalog alone.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from capplan.csv_file import Row, cell_number
from capplan.errors import InputError
from capplan.fleet.catalog import gpu
from capplan.fleet.nodes import find_node

_USD = "MarketPriceHourly"
COLUMNS = {"InstanceID", "AssetClass", "InstanceType", _USD}


def rows(path: Path, table: Iterable[Row]) -> Iterator[tuple[int, Any]]:
    """Yield the line and our columns of each node of the catalog, with its GPUs."""
    told = list(table)
    alone = {
        (row.get("Region", ""), _gpu(row["InstanceID"])): cell_number(
            path, line, _USD, row[_USD]
        )
        for line, row in told
        if row["AssetClass"].lower() == "gpu"
    }
    for line, row in told:
        node = find_node(row["InstanceType"]) if row["InstanceType"] else None
        if row["AssetClass"].lower() != "node" or node is None:
            continue
        region = row.get("Region", "")
        anywhere = alone.get(("", node.gpu), 0.0)
        beside = alone.get((region, node.gpu), anywhere)
        own = {
            "gpu": node.gpu,
            "node": node.name,
            "provider": node.provider,
            "usd_per_node_h": cell_number(path, line, _USD, row[_USD])
            + node.gpus * beside,
            "region": region,
            "source": "Kubecost prices",
        }
        yield line, own


def _gpu(label: str) -> str:
    """Return the catalog's name of a GPU; empty for those that it does not have."""
    try:
        return gpu(label).name
    except InputError:
        return ""
