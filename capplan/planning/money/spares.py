"""Spare nodes: how many keep enough nodes up while failed ones are repaired."""

from dataclasses import dataclass

from capplan.errors import InputError
from capplan.fleet.node_failures import (
    FAILURES_HIGH,
    FAILURES_LOW,
    FAILURES_PER_1000_NODE_DAYS,
)
from capplan.planning.count_ladder import fewest_between

_OF_GPUS = 8
_HOURS_PER_DAY = 24
_MOST = 10_000
"""Spares beyond which no answer is looked for."""


@dataclass(frozen=True)
class Spares:
    """Spare nodes at the rate of failures taken, and at two where none was given."""

    count: int
    low: int | None = None
    high: int | None = None


def failures_per_node_day(gpus: int, per_1000_days: float | None = None) -> float:
    """Return the failures of a node with so many GPUs in a day.

    ``per_1000_days`` are those of a node with 8 GPUs, by default Llama 3's; others fail
    in proportion to their GPUs.

    Examples
    --------
    >>> round(failures_per_node_day(4, 4.0), 6)
    0.002
    """
    rate = FAILURES_PER_1000_NODE_DAYS if per_1000_days is None else per_1000_days
    return rate / 1000 * gpus / _OF_GPUS


def unavailability(failures_per_node_day: float, repair_h: float) -> float:
    """Return the share of the time that a node is away.

    Examples
    --------
    >>> round(unavailability(0.24, 100.0), 6)
    0.5
    """
    away = failures_per_node_day * repair_h / _HOURS_PER_DAY
    return away / (1 + away)


def spare_nodes(
    node_count: int,
    failures_per_node_day: float,
    repair_h: float,
    availability: float,
    nodes_together: int = 1,
) -> int:
    """Return the fewest spares with which enough nodes are up so much of the time.

    Nodes fail one by one, whatever the others do, and each is away for ``repair_h``
    [h] in the mean; ``availability`` is the share of the time in which ``node_count``
    nodes of those and the spares are up. Where several nodes serve only together, that
    many are counted as one, which is away while any of them is.
    """
    away = 1 - (1 - unavailability(failures_per_node_day, repair_h)) ** nodes_together
    if not _is_up(node_count, _MOST, away, availability):
        raise InputError(
            f"{node_count} nodes, each down {100 * away:.3g} % of the time: not even "
            f"{_MOST:,} spares keep them up {100 * availability:.6g} % of it; expected "
            "fewer failures or a shorter repair"
        )
    return fewest_spares(node_count, away, availability)


def spares_at(
    node_count: int,
    gpus_per_node: int,
    repair_h: float,
    availability: float,
    per_1000_days: float | None = None,
    nodes_together: int = 1,
) -> Spares:
    """Return the spares of nodes at a rate of failures, see `failures_per_node_day`.

    At the low and the high published rate too, where none is given. A node may stand
    for several that serve only together.
    """

    def at(rate: float | None) -> int:
        failures = failures_per_node_day(gpus_per_node, rate)
        return spare_nodes(node_count, failures, repair_h, availability, nodes_together)

    if per_1000_days is not None:
        return Spares(at(per_1000_days))
    return Spares(at(None), at(FAILURES_LOW), at(FAILURES_HIGH))


def fewest_spares(node_count: int, away: float, availability: float) -> int:
    """Return the fewest spares of nodes ``away`` for a share of the time below 1."""
    if node_count == 0 or _is_up(node_count, 0, away, availability):
        return 0
    high = 1
    while not _is_up(node_count, high, away, availability):
        high *= 2
    return fewest_between(
        high // 2, high, lambda spares: _is_up(node_count, spares, away, availability)
    )


def _is_up(node_count: int, spares: int, away: float, availability: float) -> bool:
    """Return whether at most the spares are away, so much of the time."""
    from scipy.special import bdtrc

    more_away = float(bdtrc(spares, node_count + spares, away))
    # A hair above: 1 - 0.999 is 0.001 and a little.
    return more_away <= (1 - availability) * (1 + 1e-12)
