"""What the tiers of a pool's replicas did."""

from dataclasses import dataclass
from typing import Any

from capplan.deployment.tier import Tier
from capplan.simulator.columns import REPLICA_COLUMNS, places

_COLUMNS = places(REPLICA_COLUMNS, "tiers")


@dataclass(frozen=True)
class TierUse:
    """Copies of all replicas of a pool, and what became of chunks."""

    tier: Tier
    chunk_tokens: int  # [tokens]
    block_bytes: int  # of all GPUs of a replica; 0: not known [bytes]
    replica_count: int
    loads: int  # copies to the GPUs
    stores: int  # and from them
    loaded_blocks: int
    stored_blocks: int
    evicted_chunks: int
    refused_stores: int  # for which there was no room
    flushed_iterations: int  # that waited for copies
    load_s: float  # that loads took, of all replicas [s]
    store_s: float  # and stores [s]
    wait_s: float  # from the begin of loads until their requests ran [s]

    @property
    def load_wait_s(self) -> float:
        """Mean time from the begin of a load until its request runs. [s]"""
        return self.wait_s / self.loads if self.loads else 0.0

    def busy_share(self, makespan_s: float) -> float:
        """Share of the time in which the busier direction copies."""
        available_s = makespan_s * self.replica_count
        return max(self.load_s, self.store_s) / available_s if available_s > 0 else 0.0

    def gib(self, blocks: int) -> float | None:
        """Return the size of so many blocks; None where that is not known. [GiB]"""
        return blocks * self.block_bytes / 2**30 if self.block_bytes else None


def tier_use(pool: Any) -> TierUse | None:
    """Return what the tiers of a pool did; None where it has none."""
    engine = pool.engine
    if not engine.has_tier:
        return None
    total = pool.state.replica_memory.sum(axis=0)
    counted = {
        "loads": total[_COLUMNS.loads],
        "stores": total[_COLUMNS.stores],
        "loaded_blocks": total[_COLUMNS.loaded_blocks],
        "stored_blocks": total[_COLUMNS.stored_blocks],
        "evicted_chunks": total[_COLUMNS.evicted],
        "refused_stores": total[_COLUMNS.refused],
        "flushed_iterations": total[_COLUMNS.flushed],
    }
    return TierUse(
        tier=engine.tier,
        chunk_tokens=engine.tier.blocks_per_chunk * engine.block_size,
        block_bytes=engine.kv_block_bytes * engine.tier.copies,
        replica_count=pool.replica_count,
        **{name: int(value) for name, value in counted.items()},
        load_s=float(total[_COLUMNS.load_s]),
        store_s=float(total[_COLUMNS.store_s]),
        wait_s=float(total[_COLUMNS.wait_s]),
    )
