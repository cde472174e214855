"""Pools of equal replicas, and deployments of pools behind a router."""

from dataclasses import dataclass

from capplan.deployment.configuration import Configuration
from capplan.errors import InputError


@dataclass(frozen=True)
class Pool:
    """Equal replicas on one GPU type."""

    configuration: Configuration
    replica_count: int

    def __post_init__(self) -> None:
        """Refuse a pool without GPUs."""
        for name, value in (
            ("tp", self.configuration.tp),
            ("replicas", self.replica_count),
        ):
            if value < 1:
                raise InputError(f"{name} is {value}; expected >= 1")

    @property
    def gpu_count(self) -> int:
        """GPUs of all replicas."""
        return self.replica_count * self.configuration.tp

    def __str__(self) -> str:
        """Return ``1,000 GPUs = 125 replicas × 8 (TP 8)``."""
        tp = self.configuration.tp
        gpus = "GPU" if self.gpu_count == 1 else "GPUs"
        replicas = "replica" if self.replica_count == 1 else "replicas"
        return (
            f"{self.gpu_count:,} {gpus} = {self.replica_count:,} {replicas} × "
            f"{tp} (TP {tp})"
        )


@dataclass(frozen=True)
class Deployment:
    """Pools of replicas that serve one stream of requests."""

    pools: tuple[Pool, ...]
    router: str = "jsq"  # with its settings, as ``best-fit:theta=0.5,gamma=0.5``

    @classmethod
    def of(
        cls, configuration: Configuration, replica_count: int, router: str = "jsq"
    ) -> "Deployment":
        """Return a deployment of one pool."""
        return cls((Pool(configuration, replica_count),), router)

    @property
    def gpu_count(self) -> int:
        """GPUs of all pools."""
        return sum(pool.gpu_count for pool in self.pools)

    @property
    def pool(self) -> Pool:
        """Its only pool."""
        (pool,) = self.pools
        return pool
