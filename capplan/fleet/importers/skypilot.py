"""SkyPilot's catalogs of virtual machines (``catalogs/v8/<cloud>/vms.csv``).

A row of Google's machines (``a2-``, ``a3-``, ``a4-``, ``g2-``) prices the host alone;
its GPUs are rows without InstanceType, and a node is the sum. 700 dollars an hour
stands for a price that nobody knows. Bytes of memory are of the host at one provider,
of one GPU at another, and are not read. ``A100`` is the one with 40 GB.
"""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from capplan.csv_file import Row
from capplan.errors import InputError
from capplan.units import number_in

COLUMNS = {"InstanceType", "AcceleratorName", "AcceleratorCount", "Price", "Region"}
_UNKNOWN_USD = 700.0
_HOSTS = ("a2-", "a3-", "a4-", "g2-")
_NAMES = {"A100": "A100-40GB-SXM", "H100-MEGA": "H100-SXM", "H200-141GB": "H200-SXM"}


def rows(path: Path, table: Iterable[Row]) -> Iterator[tuple[int, Any]]:
    """Yield the line and our columns of each machine with GPUs, on demand and spot."""
    told = list(table)
    parts = {
        (row["AcceleratorName"], _count(row), row["Region"]): row
        for _, row in told
        if not row["InstanceType"] and row["AcceleratorName"]
    }
    for line, row in told:
        gpus = _count(row)
        if not row["InstanceType"] or not row["AcceleratorName"] or not gpus:
            continue
        alone = None
        if row["InstanceType"].startswith(_HOSTS):
            alone = parts.get((row["AcceleratorName"], gpus, row["Region"]), {})
        for column, kind in (("Price", "on-demand"), ("SpotPrice", "spot")):
            usd = _usd(row, column)
            if not math.isfinite(usd):
                continue
            if alone is not None:
                usd += _usd(alone, column)
                if not math.isfinite(usd):
                    raise InputError(
                        f"{path}:{line}: {row['InstanceType']} is priced without its "
                        f"GPUs, which no row of {row['Region'] or 'its region'} "
                        "prices; expected both"
                    )
            own = {
                "gpu": _NAMES.get(row["AcceleratorName"], row["AcceleratorName"]),
                "gpus": str(gpus),
                "node": row["InstanceType"],
                "kind": kind,
                "usd_per_node_h": usd,
                "region": row["Region"],
                "source": "SkyPilot catalog",
            }
            yield line, own


def _count(row: dict[str, str]) -> int:
    count = number_in(row["AcceleratorCount"])
    return int(count) if count.is_integer() else 0


def _usd(row: dict[str, str], column: str) -> float:
    """Return a price, NaN where it is none."""
    usd = number_in(row.get(column))
    return math.nan if usd in (0.0, _UNKNOWN_USD) else usd
