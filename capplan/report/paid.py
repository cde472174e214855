"""What is paid of a candidate: nodes of each kind, the pools on them, and the price."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from capplan.deployment.pools import DECODE, PREFILL
from capplan.fleet.nodes import nodes_for
from capplan.fleet.price import Price
from capplan.llm.layout import Layout
from capplan.planning.cost import alike, paid_nodes
from capplan.planning.result import Candidate


def usd_per_node_h(price: Price) -> float:
    """Return the price of one node, of a GPU where no node is known. [$/h]"""
    return price.usd_per_gpu_h * (price.gpus_per_node or 1)


@dataclass(frozen=True)
class PaidPool:
    """Replicas that do the same, on nodes that others may share."""

    role: str  # "prefill", "decode"; empty where one pool does both
    layout: Layout  # of the GPUs of a replica
    replica_count: int

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

    @property
    def is_by_gpu(self) -> bool:
        """Whether GPUs are priced alone."""
        return self.price.gpus_per_node is None

    @property
    def usd_per_unit_h(self) -> float:
        """Price of one unit. [$/h]"""
        return usd_per_node_h(self.price)

    @property
    def gpus_paid(self) -> int:
        """GPUs in all units."""
        return self.unit_count * self.gpus_per_unit

    @property
    def provider(self) -> str:
        """Who is paid, or where the price is from."""
        return self.price.provider or self.price.source

    @property
    def unit(self) -> str:
        """What one unit is: a node by its name, or a GPU."""
        if self.is_by_gpu:
            return "GPU"
        return self.price.node or f"node of {self.gpus_per_unit}"

    def at_end(self, pick: Callable[[Iterable[float]], float]) -> Price | None:
        """Return the offer of the cheapest or dearest provider; None without others.

        ``pick`` is min or max, of the bills of these replicas; see :meth:`with_counts`.
        """
        offers = self.price.by_provider
        if not offers:
            return None
        replicas = [(pool.gpus, pool.replica_count) for pool in self.pools]
        bills = [paid_nodes(offer, replicas).usd_per_h for offer in offers]
        return offers[bills.index(pick(bills))]


def paid(candidate: Candidate, replica_count: int | None = None) -> tuple[Paid, ...]:
    """Return what is paid by kind; nothing unless it is feasible and priced.

    Of as many replicas of its only pool instead, where a count is given.
    """
    if candidate.run is None or candidate.cost is None:
        return ()
    deployment = candidate.run.deployment
    if replica_count is not None:
        deployment = deployment.with_replicas(replica_count)
    pools = deployment.pools
    roles = (PREFILL, DECODE) if len(pools) > 1 else ("",)
    named = list(zip(pools, roles, strict=True))
    rows = []
    for price, group in alike(pools):
        of = tuple(
            PaidPool(role, pool.configuration.layout, pool.replica_count)
            for pool, role in named
            if any(pool is each for each in group)
        )
        replicas = [(pool.gpus, pool.replica_count) for pool in of]
        size = price.gpus_per_node or 1
        count, stranded = nodes_for(replicas, size)
        gpu = group[0].configuration.gpu
        rows.append(Paid(gpu, of, price, count, size, stranded))
    return tuple(rows)
