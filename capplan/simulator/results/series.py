"""What the replicas of a pool did, from the bins that the core fills."""

from collections.abc import Sequence

import numpy as np

from capplan.simulator.fleet.serving_pool import ServingPool
from capplan.simulator.results.tier import tier_use
from capplan.simulator.results.times import PoolUse, Series


def uses_of(
    pools: Sequence[ServingPool],
    start_s: np.ndarray,
    preemptions: np.ndarray,
    end_s: float | None,
) -> tuple[PoolUse, ...]:
    """Return what pools did, in bins that begin at ``start_s``. [s]

    The last bin takes what comes after it begins, up to ``end_s``, the last token; None
    where it was stopped: later bins are left out. ``preemptions`` are of all bins, and
    of several pools count as the last one's.
    """
    uses = []
    for pool in pools:
        of_pool = preemptions if pool is pools[-1] else np.zeros(len(preemptions))
        used = None if end_s is not None else len(start_s)
        ranks = pool.row_count // pool.replica_count
        uses.append(
            PoolUse(
                replica_count=pool.replica_count,
                iteration_count=pool.iteration_count,
                busy_s=float(pool.state.bins["busy_s"][:used].sum()) / ranks,
                series=_series(pool, start_s, of_pool, end_s),
                iterations=pool.iterations(),
                tier=tier_use(pool),
            )
        )
    return tuple(uses)


def _series(
    pool: ServingPool, start_s: np.ndarray, preemptions: np.ndarray, end_s: float | None
) -> Series:
    used = len(start_s)
    bins, width_s = pool.state.bins, pool.bins.width_s
    bin_s = np.full(used, width_s)
    totals = {name: np.array(bins[name][:used]) for name in bins.dtype.names or ()}
    preemptions = np.array(preemptions)
    if end_s is not None and used:
        for name, total in totals.items():
            total[-1] += bins[name][used:].sum()
        preemptions[used - 1] += preemptions[used:].sum()
        bin_s[-1] = max(width_s, end_s - start_s[-1])
    replica_s = bin_s * pool.row_count
    busy_s = np.maximum(totals["busy_s"], 1e-300)
    blocks = pool.engine.kv_blocks - 1
    return Series(
        start_s=start_s,
        busy_share=np.minimum(totals["busy_s"] / replica_s, 1.0),
        batch_requests=totals["batch_s"] / busy_s,
        waiting_requests=totals["waiting_s"] / busy_s,
        kv_share=np.minimum(totals["kv_block_s"] / (replica_s * blocks), 1.0),
        preemptions=preemptions[:used],
    )
