"""Checks of figures that a certificate claims, without the inputs of the plan."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from capplan.bounds.bound_check import BUSIEST
from capplan.errors import InputError
from capplan.fleet.bills import Replicas, paid
from capplan.fleet.price import Price

_MOST_REPLICAS = 1_000_000
"""No plan has more; a document may say so."""


def check_rounding(bound: Mapping[str, Any]) -> list[str]:
    """Return why a bound is not its work over the length of its window, rounded up."""
    if bound["method"] == BUSIEST:
        length_s = bound["window_end_s"] - bound["window_start_s"]
        if not length_s > 0:
            return ["the window of the bound has no length"]
        replicas = bound["work_s"] / length_s * (1 - 1e-9)
        if max(1, math.ceil(replicas)) != bound["replica_count"]:
            return [
                f"{bound['work_s']:.9g} s of work in {length_s:.9g} s do not make "
                f"{bound['replica_count']} replicas"
            ]
    # Without a window nothing is proven but that a trace needs a replica.
    elif bound["replica_count"] != 1:
        return [f"a bound of method {bound['method']!r} proves no more than 1"]
    return []


def gpus_of(pool: Mapping[str, Any]) -> int:
    """Return the GPUs of a replica; those of its TP degree where nothing else is said.

    Examples
    --------
    >>> gpus_of({"tp": 4}), gpus_of({"tp": 1, "gpus_per_replica": 8})
    (4, 8)
    """
    return int(pool.get("gpus_per_replica") or pool["tp"])


def is_alike(shown: Mapping[str, Any], proven: Mapping[str, Any]) -> bool:
    """Return whether replicas of two documents are of one GPU type and layout.

    Examples
    --------
    >>> is_alike({"gpu": "H200", "tp": 8, "layout": "tp8"}, {"gpu": "H200", "tp": 8})
    True
    """
    first, second = (
        (each["gpu"], each["tp"], each.get("layout") or f"tp{each['tp']}")
        for each in (shown, proven)
    )
    return first == second


def usd_per_h(
    pools: Iterable[Mapping[str, Any]], prices: Iterable[Mapping[str, Any]]
) -> float:
    """Return the bill of pools by the hour, at the lower quartile of providers. [$]

    Pools of one GPU share nodes, where a provider has some for all.
    """
    groups: dict[str, list[Replicas]] = {}
    for pool, price in zip(pools, prices, strict=True):
        try:
            read = Price.read(price)
        except InputError as error:
            raise ValueError(str(error)) from None
        if not 0 < pool["replica_count"] <= _MOST_REPLICAS:
            raise ValueError(f"{pool['replica_count']} replicas")
        replicas = Replicas(gpus_of(pool), pool["replica_count"], read)
        groups.setdefault(pool["gpu"], []).append(replicas)
    return sum(bill.usd_per_h for group in groups.values() for bill in paid(group))


def check_proven(
    where: str, row: Mapping[str, Any], proven: Mapping[str, Any]
) -> list[str]:
    """Return which values of a row, found at a place, are not those proven."""
    reasons = []
    for name, expected in proven.items():
        value = row.get(name)
        if isinstance(expected, float) and isinstance(value, int | float):
            same = math.isclose(value, expected, rel_tol=1e-9)
        else:
            same = value == expected
        if not same:
            reasons.append(f"{where}.{name} is {value!r}; {expected!r} is proven")
    return reasons
