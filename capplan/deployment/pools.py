"""Pools of equal replicas, and deployments of pools behind a router."""

from dataclasses import dataclass, replace

from capplan.conflicts import refuse_conflicts
from capplan.deployment.changes import Change
from capplan.deployment.configuration import Configuration
from capplan.deployment.features import features_of_engine
from capplan.deployment.split import Split
from capplan.errors import InputError, check_at_least

PREFILL, DECODE = "prefill", "decode"
"""Roles of two pools."""

Counts = tuple[int, ...]
"""Replicas of each pool."""


def with_count(counts: Counts, pool: int, count: int) -> Counts:
    """Return counts with another one of a pool."""
    return (*counts[:pool], count, *counts[pool + 1 :])


def one_fewer(counts: Counts) -> list[Counts]:
    """Return counts with one replica fewer of a pool, where one is left.

    Examples
    --------
    >>> one_fewer((1, 4)), one_fewer((2,))
    ([(1, 3)], [(1,)])
    """
    return [
        with_count(counts, pool, count - 1)
        for pool, count in enumerate(counts)
        if count > 1
    ]


@dataclass(frozen=True)
class Pool:
    """Equal replicas on one GPU type."""

    configuration: Configuration
    replica_count: int

    def __post_init__(self) -> None:
        check_at_least(1, self.configuration, "tp")
        if self.replica_count < 1:
            raise InputError(f"replicas is {self.replica_count}; expected >= 1")

    @property
    def gpu_count(self) -> int:
        """GPUs of all replicas."""
        return self.replica_count * self.configuration.gpus

    def __str__(self) -> str:
        """Return ``1,000 GPUs = 125 replicas × 8 (TP 8)``."""
        gpus = f"{self.gpu_count:,} GPU{'s' * (self.gpu_count != 1)}"
        replicas = f"{self.replica_count:,} replica{'s' * (self.replica_count != 1)}"
        configuration = self.configuration
        layout = configuration.layout.text
        return f"{gpus} = {replicas} × {configuration.gpus} ({layout})"


@dataclass(frozen=True)
class Deployment:
    """Pools of replicas that serve one stream of requests.

    Of two pools with a hand-off the first computes prompts and the second decodes. With
    a split, pools are side by side and each serves its part of the requests.
    """

    pools: tuple[Pool, ...]
    router: str = "jsq"  # with its settings, as ``best-fit:theta=0.5,gamma=0.5``
    decode_router: str = ""  # of the second pool; empty: as ``router``
    hand_off: str = ""  # from the first pool to the second, with its settings
    dispatcher: str = ""  # places what is held until a beat; empty: the router does
    rebalancer: str = ""  # which requests move to another replica; empty: none does
    # bandwidth of each GPU's link to other replicas; None: not known [GB/s]
    link_gb_per_s: float | None = None
    changes: tuple[Change, ...] = ()  # replicas that come, leave or die
    autoscaler: str = ""  # decides how many replicas there are; empty: as many
    cold_start_s: float = 0.0  # from the order of a replica to its first request [s]
    split: Split | None = None  # which pool a request goes to; None: no such pools

    @classmethod
    def of(
        cls, configuration: Configuration, replica_count: int, router: str = "jsq"
    ) -> "Deployment":
        """Return a deployment of one pool."""
        return cls((Pool(configuration, replica_count),), router)

    def __str__(self) -> str:
        """Return ``40 GPUs = 5 replicas × 8 (TP 8)``, of each pool."""
        return " + ".join(map(str, self.pools))

    def __post_init__(self) -> None:
        if self.link_gb_per_s is not None and not self.link_gb_per_s > 0:
            raise InputError(f"link_gb_per_s is {self.link_gb_per_s}; expected > 0")
        check_at_least(0, self, "cold_start_s")
        of_fleet = self.features
        for pool in self.pools:
            engine = features_of_engine(pool.configuration.engine)
            refuse_conflicts(engine | of_fleet)
        if self.split is not None and self.split.pool_count != len(self.pools):
            raise InputError(
                f"{len(self.pools)} pools and a split over {self.split.pool_count}; "
                "expected as many"
            )
        if self.split is not None or len(self.pools) == 1:
            return
        if not self.hand_off or len(self.pools) != 2:
            raise InputError(
                f"{len(self.pools)} pools; expected one, or one for prompts and one "
                "for decoding, with a hand-off"
            )
        engines = [pool.configuration.engine for pool in self.pools]
        if engines[0].speculation != engines[1].speculation:
            raise InputError(
                "only one of the pools verifies drafts, or they verify others; "
                "expected the same drafts, whose KV is copied too"
            )
        sizes = [engine.block_size for engine in engines]
        if sizes[0] != sizes[1]:
            raise InputError(
                f"the pools have KV blocks of {sizes[0]} and of {sizes[1]} tokens; "
                "expected the same, since blocks are copied"
            )

    @property
    def features(self) -> dict[str, str]:
        """How a user names each of its features beside those of its engines."""
        deaths = any(change.kind == "fail" for change in self.changes)
        handed = len(self.pools) > 1 and (self.hand_off or self.split is None)
        found = (
            ("pools", "disaggregated prefill and decode", handed),
            ("rebalancer", f"rebalancer {self.rebalancer}", self.rebalancer),
            ("dispatcher", f"dispatcher {self.dispatcher}", self.dispatcher),
            ("changing", "replicas that come and go", self.is_changing),
            ("deaths", "replicas that die", deaths),
            ("split", "a split of requests", self.split is not None),
        )
        return {feature: text for feature, text, is_given in found if is_given}

    @property
    def gpu_count(self) -> int:
        """GPUs of all pools."""
        return sum(pool.gpu_count for pool in self.pools)

    @property
    def replica_count(self) -> int:
        """Replicas of all pools."""
        return sum(pool.replica_count for pool in self.pools)

    @property
    def counts(self) -> Counts:
        """Replicas of each pool."""
        return tuple(pool.replica_count for pool in self.pools)

    @property
    def roles(self) -> tuple[str, ...]:
        """What each pool does; of those that do all nothing is to be told apart."""
        disaggregated = len(self.pools) > 1 and self.split is None
        return (PREFILL, DECODE) if disaggregated else ("",) * len(self.pools)

    @property
    def side_by_side(self) -> "tuple[Deployment, ...]":
        """Each pool by itself, as a split has them."""
        return tuple(replace(self, pools=(pool,), split=None) for pool in self.pools)

    @property
    def pool(self) -> Pool:
        """Its only pool."""
        (pool,) = self.pools
        return pool

    @property
    def is_changing(self) -> bool:
        """Whether the number of its replicas changes."""
        return bool(self.changes or self.autoscaler)

    @property
    def is_in_motion(self) -> bool:
        """Whether requests are held or move between replicas, or these come and go."""
        held_or_moved = bool(self.dispatcher or self.rebalancer)
        handed = len(self.pools) > 1 and self.split is None
        return handed or held_or_moved or self.is_changing

    @property
    def is_watched(self) -> bool:
        """Whether something beside the router reads what its replicas hold."""
        return bool(self.autoscaler or self.rebalancer or self.dispatcher)

    @property
    def placed_by(self) -> str:
        """What sends requests to replicas."""
        return self.dispatcher or self.router

    @property
    def block_copy_s(self) -> float:
        """Time to copy a KV block to another replica, each GPU its part. [s]

        The replica whose GPUs hold more of it decides.
        """
        engines = [pool.configuration.engine for pool in self.pools]
        per_gpu = [engine.kv_block_bytes for engine in engines]
        if not all(per_gpu):
            raise InputError(
                "the bytes of a KV block are not known, which copies need; name the "
                "LLM and the GPU, or give block=..."
            )
        if self.link_gb_per_s is None:
            raise InputError("link_gb_per_s is not known, which copies of KV need")
        return max(per_gpu) / (self.link_gb_per_s * 1e9)

    def with_replicas(self, *replica_counts: int) -> "Deployment":
        """Return a deployment with other numbers of replicas, one for each pool."""
        counted = zip(self.pools, replica_counts, strict=True)
        pools = (replace(pool, replica_count=count) for pool, count in counted)
        return replace(self, pools=tuple(pools))
