"""Answers of Azure's retail prices API, as JSON.

A reservation's ``retailPrice`` is of the whole term, although its ``unitOfMeasure`` is
"1 Hour"; other units may be "100 Hours". Spot and low-priority meters say so in their
name, and Windows in that of the product. Only nodes of the catalog are read.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from capplan.csv_file import cell_number
from capplan.errors import InputError
from capplan.fleet.nodes import find_node

_HOURS_PER_YEAR = 8760
_TERMS = {"1 Year": 1, "3 Years": 3, "5 Years": 5}


def is_own(document: Any) -> bool:
    """Return whether a JSON document is an answer of the retail prices API."""
    items = _items(document)
    return bool(items) and all(
        isinstance(item, Mapping) and "retailPrice" in item for item in items
    )


def rows(path: Path, document: Any) -> Iterator[tuple[int, Any]]:
    """Yield the place and our columns of each price of a node of the catalog."""
    for place, item in enumerate(_items(document), start=1):
        name = str(item.get("armSkuName") or "").removeprefix("Standard_")
        node = find_node(name, "Azure")
        meter = f"{item.get('meterName', '')} {item.get('skuName', '')}"
        if node is None or "Windows" in str(item.get("productName", "")):
            continue
        usd = cell_number(path, place, "retailPrice", str(item["retailPrice"]))
        term = ""
        if "Low Priority" in meter or not usd:
            continue
        kind = "spot" if "Spot" in meter else "on-demand"
        if item.get("type") == "Reservation":
            years = _TERMS.get(item.get("reservationTerm"), 0)
            if not years:
                raise InputError(
                    f"{path}:{place}: reservationTerm is "
                    f"{item.get('reservationTerm')!r}; expected one of "
                    f"{', '.join(_TERMS)}"
                )
            kind, term = "reserved", str(12 * years)
            usd /= years * _HOURS_PER_YEAR
        usd /= _hours(path, place, item, most=1 if kind == "reserved" else 10**6)
        own = {
            "gpu": node.gpu,
            "node": node.name,
            "provider": "Azure",
            "kind": kind,
            "term_months": term,
            "usd_per_node_h": usd,
            "currency": item.get("currencyCode", "USD"),
            "region": item.get("armRegionName", ""),
            "as_of": str(item.get("effectiveStartDate", ""))[:10],
            "source": "Azure Retail Prices",
        }
        yield place, own


def _hours(path: Path, place: int, item: Mapping[str, Any], most: int) -> int:
    """Return the hours that a price is of: those of its unit; without one an hour."""
    unit = str(item.get("unitOfMeasure", "1 Hour"))
    found = re.fullmatch(r"(\d+) Hours?", unit)
    if found is None or not 1 <= int(found[1]) <= most:
        raise InputError(
            f"{path}:{place}: unitOfMeasure is {unit!r}; expected 1 Hour"
            + (", or a number of them as in 100 Hours" if most > 1 else "")
        )
    return int(found[1])


def _items(document: Any) -> list[Any]:
    items = document.get("Items") if isinstance(document, Mapping) else document
    return items if isinstance(items, list) else []
