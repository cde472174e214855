"""What is paid of a candidate: nodes of each kind, the pools on them, and the price."""

from dataclasses import dataclass

from capplan.deployment.pools import DECODE, PREFILL
from capplan.fleet.price import Price
from capplan.llm.layout import Layout
from capplan.planning.evaluate.candidate import Candidate
from capplan.planning.money.cost import alike, paid_nodes


@dataclass(frozen=True)
class PaidPool:
    """Replicas that do the same, on nodes that others may share."""

    role: str  # "prefill", "decode"; empty where one pool does both
    layout: Layout  # of the GPUs of a replica
    replica_count: int
    key: str = ""  # begins names: the role, and the nodes where it is on several

    @property
    def gpus(self) -> int:
        """GPUs of a replica."""
        return self.layout.gpus

    def __str__(self) -> str:
        return f"{self.role} {self.layout.text}".strip()


@dataclass(frozen=True)
class Paid:
    """Whole units of one kind that are paid: nodes, or GPUs where no node is known."""

    gpu: str
    pools: tuple[PaidPool, ...]  # that are on them
    price: Price
    unit_count: int
    gpus_per_unit: int  # 1 where a GPU is the unit
    stranded_gpus: int  # paid, and in no replica
    key: str = ""  # begins names: that of its only pool, or its nodes among several

    @property
    def gpus_paid(self) -> int:
        """GPUs in all units."""
        return self.unit_count * self.gpus_per_unit

    @property
    def provider(self) -> str:
        """Who is paid, or where the price is from."""
        return self.price.provider or self.price.source


def paid(candidate: Candidate) -> tuple[Paid, ...]:
    """Return what is paid by kind; nothing unless it is feasible and priced."""
    if candidate.run is None or candidate.cost is None:
        return ()
    pools = candidate.run.deployment.pools
    roles = (PREFILL, DECODE) if len(pools) > 1 else ("",)
    named: dict[object, list[str]] = {}  # of two pools alike, both roles in order
    for pool, role in zip(pools, roles, strict=True):
        named.setdefault(pool.configuration.key, []).append(role)
    rows = []
    bought = alike(pools)
    on = [pool.configuration.key for _, group in bought for pool in group]
    for price, group in bought:
        size = price.gpus_per_node or 1
        of: list[PaidPool] = []
        for pool in group:
            same, layout = named[pool.configuration.key], pool.configuration.layout
            role = same[min(len(of), len(same) - 1)]
            several = on.count(pool.configuration.key) > len(same)
            key = (f"{role}_" if role else "") + (f"size{size}_" if several else "")
            of.append(PaidPool(role, layout, pool.replica_count, key))
        row, gpu = paid_nodes(price, group), group[0].configuration.gpu
        key = of[0].key if len(of) == 1 else f"size{size}_" * (len(bought) > 1)
        counts = int(row.units), size, int(row.stranded_gpus)
        rows.append(Paid(gpu, tuple(of), price, *counts, key))
    return tuple(rows)
