"""Several LLMs on shared nodes: nodes by the hour, spares, and who pays for what."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from capplan.fleet.node_map import NodeMap
from capplan.planning.money.cost import HOURS_PER_MONTH
from capplan.planning.money.spares import Spares
from capplan.planning.shared_fleet.planned_llm import PlannedLlm, PlannedPool
from capplan.planning.shared_fleet.settings import SharedFleetSettings
from capplan.planning.shown import Shown

STRANDED, OFF_PEAK, SPARES = "stranded", "off-peak", "spares"
"""Why GPUs that are paid for are in no replica: other replicas do not fit beside those
of their node, fewer are needed than at the peak, a failed node may need replacing."""


@dataclass(frozen=True)
class Tenant:
    """Replicas of one pool of an LLM, on shared nodes."""

    llm: PlannedLlm
    pool: PlannedPool

    @property
    def name(self) -> str:
        """Name of the LLM, with the role of these replicas where they have one."""
        return " ".join(filter(None, (self.llm.name, self.pool.role)))


@dataclass(frozen=True, eq=False)
class SharedPool:
    """Nodes of one kind, with the replicas of all LLMs on them."""

    gpu: str
    provider: str  # empty where not known
    node: str  # empty where not known
    gpus_per_node: int
    is_size_assumed: bool
    usd_per_gpu_h: float | None  # None without a price [$/h]
    is_doubtful: bool  # that price is a guess, old or undated
    tenants: tuple[Tenant, ...]
    replicas: np.ndarray  # of each tenant and hour, shape (tenants, hours), int64
    nodes: np.ndarray  # that these need, shape (hours,), int64
    peak_hour: int  # that needs most nodes, of such hours that with most GPUs in use
    peak_map: NodeMap  # at that hour; a group is a tenant
    at_once: int  # nodes where all tenants have their most replicas at once
    separate: tuple[int, ...]  # nodes of each LLM's most replicas alone, by LLM
    spares: Spares
    spares_at_once: Spares
    spares_separate: tuple[Spares, ...]

    @property
    def name(self) -> str:
        """Provider and node, or the GPU type where these are not known."""
        text = " ".join(filter(None, (self.provider, self.node)))
        return text or f"{self.gpu} nodes"

    @property
    def joint_peak(self) -> int:
        """Nodes of the hour that needs most."""
        return int(self.nodes.max())

    @property
    def llms(self) -> list[str]:
        """Names of its LLMs, each once."""
        return list(dict.fromkeys(tenant.llm.name for tenant in self.tenants))

    @property
    def mean_gpus(self) -> np.ndarray:
        """GPUs of each tenant's replicas, mean over the hours, shape (tenants,)."""
        tp = np.array([tenant.pool.gpus for tenant in self.tenants])
        return np.asarray(self.replicas.mean(axis=1) * tp)

    @property
    def gpus_paid(self) -> int:
        """GPUs of the nodes of the joint peak and of the spares."""
        return (self.joint_peak + self.spares.count) * self.gpus_per_node

    @property
    def idle_gpus(self) -> dict[str, float]:
        """GPUs that are paid for and in no replica, mean over the hours, by reason."""
        nodes = float(self.nodes.mean())
        return {
            STRANDED: nodes * self.gpus_per_node - float(self.mean_gpus.sum()),
            OFF_PEAK: (self.joint_peak - nodes) * self.gpus_per_node,
            SPARES: float(self.spares.count * self.gpus_per_node),
        }

    def usd_per_month(self, nodes: float) -> float | None:
        """Return what so many nodes cost in a month; None without a price. [$]"""
        if self.usd_per_gpu_h is None:
            return None
        return nodes * self.gpus_per_node * self.usd_per_gpu_h * HOURS_PER_MONTH


@dataclass(frozen=True)
class BillLine:
    """What an LLM, or idle GPUs, take of a bill."""

    who: str  # name of an LLM; empty where GPUs are idle
    why_idle: str  # why they are; empty where an LLM uses them
    pool: str
    gpu_hours_per_month: float
    usd_per_month: float | None  # whole cents; None without a price [$]


@dataclass(frozen=True)
class Arrangement:
    """Nodes of one way to run the LLMs."""

    name: str
    nodes: float  # without spares
    spares: int
    usd_per_month: float | None  # with spares; None where a pool has no price [$]


@dataclass(frozen=True, eq=False, repr=False)
class SharedFleet(Shown):
    """Several LLMs on shared nodes."""

    settings: SharedFleetSettings
    llms: tuple[PlannedLlm, ...]
    pools: tuple[SharedPool, ...]
    bill: tuple[BillLine, ...]
    arrangements: tuple[Arrangement, ...]  # apart, together, by the hour
    # nodes of the replicas alone at the joint peak, as a plan bills them: without
    # spares or a second node for those that fill one; None without a price [$]
    usd_per_month: float | None = None
    warnings: tuple[str, ...] = ()

    @property
    def hours(self) -> int:
        """Hours that the curves show."""
        return self.pools[0].replicas.shape[1]

    @property
    def joint_peak(self) -> int:
        """Nodes of all pools, each at its peak, without spares."""
        return sum(pool.joint_peak for pool in self.pools)

    @property
    def separate(self) -> int:
        """Nodes where each LLM has its own, without spares."""
        return sum(sum(pool.separate) for pool in self.pools)

    @property
    def spares(self) -> int:
        """Spare nodes of all pools."""
        return sum(pool.spares.count for pool in self.pools)

    @property
    def usd_with_spares(self) -> float | None:
        """The bill, whole cents; None where a pool has no price. [$]"""
        return total_usd(self.bill)

    @property
    def idle(self) -> list[BillLine]:
        """What idle GPUs take of the bill."""
        return [line for line in self.bill if not line.who]


def total_usd(lines: Sequence[BillLine]) -> float | None:
    """Return the dollars of lines to the cent; None where one has no price. [$]"""
    amounts = [line.usd_per_month for line in lines]
    if not amounts or any(usd is None for usd in amounts):
        return None
    return round(math.fsum(usd for usd in amounts if usd is not None), 2)


def in_cents(amounts_usd: Sequence[float]) -> list[float]:
    """Return amounts in whole cents that add up to their sum in whole cents. [$]

    Those with the largest parts of a cent are rounded up.

    Examples
    --------
    >>> in_cents([1.004, 1.005, 1.002])
    [1.0, 1.01, 1.0]
    """
    cents = [usd * 100 for usd in amounts_usd]
    whole = [math.floor(c) for c in cents]
    left = round(math.fsum(cents)) - sum(whole)
    order = sorted(range(len(cents)), key=lambda i: whole[i] - cents[i])
    for index in order[:left]:
        whole[index] += 1
    return [c / 100 for c in whole]
