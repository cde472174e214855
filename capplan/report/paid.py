"""What is paid of each pool of a candidate: units, and the price of one."""

from dataclasses import dataclass

from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import DECODE, PREFILL
from capplan.fleet.price import Price
from capplan.planning.result import Candidate


@dataclass(frozen=True)
class Paid:
    """What is paid of one pool: whole units of some GPUs each."""

    role: str  # "prefill", "decode"; empty where one pool does both
    configuration: Configuration
    price: Price
    replica_count: int
    unit_count: int  # nodes, or GPUs where the node is not known
    gpus_per_unit: int  # 1 where a GPU is the unit
    usd_per_unit_h: float  # [$/h]

    @property
    def gpus_paid(self) -> int:
        """GPUs in these units."""
        return self.unit_count * self.gpus_per_unit

    @property
    def gpu_count(self) -> int:
        """GPUs in use."""
        return self.replica_count * self.configuration.tp

    @property
    def usd_per_h(self) -> float:
        """Cost of all units. [$/h]"""
        return self.unit_count * self.usd_per_unit_h

    @property
    def unit(self) -> str:
        """What one unit is: a node by its name, or a GPU."""
        return self.price.node if self.gpus_per_unit > 1 else "GPU"


def paid(candidate: Candidate) -> tuple[Paid, ...]:
    """Return what is paid of each pool; none unless it is feasible and priced."""
    if candidate.run is None or candidate.cost is None:
        return ()
    pools = candidate.run.deployment.pools
    roles = (PREFILL, DECODE) if len(pools) > 1 else ("",)
    rows = []
    for role, pool in zip(roles, pools, strict=True):
        price = pool.configuration.price
        assert price is not None  # the candidate has a cost
        rows.append(
            Paid(
                role,
                pool.configuration,
                price,
                pool.replica_count,
                pool.gpu_count,
                1,
                price.usd_per_gpu_h,
            )
        )
    return tuple(rows)
