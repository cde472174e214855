"""The fleet over time, from the bins that the core fills."""

import numpy as np

from capplan.simulator.fleet import Fleet
from capplan.simulator.times import Series


def fleet_series(
    fleet: Fleet, start_s: np.ndarray, preemptions: np.ndarray, end_s: float | None
) -> Series:
    """Return the series of a fleet after it served, in bins that begin at ``start_s``.

    The last bin takes what comes after it begins, up to ``end_s``, the last token; None
    where it was stopped: later bins are left out. ``preemptions`` are of all bins. [s]
    """
    used = len(start_s)
    bins, width_s = fleet.state.bins, fleet.bins.width_s
    bin_s = np.full(used, width_s)
    totals = {name: np.array(bins[name][:used]) for name in bins.dtype.names or ()}
    preemptions = np.array(preemptions)
    if end_s is not None and used:
        for name, total in totals.items():
            total[-1] += bins[name][used:].sum()
        preemptions[used - 1] += preemptions[used:].sum()
        bin_s[-1] = max(width_s, end_s - start_s[-1])
    replica_s = bin_s * len(fleet.state.replicas)
    busy_s = np.maximum(totals["busy_s"], 1e-300)
    blocks = fleet.engine.kv_blocks - 1
    return Series(
        start_s=start_s,
        busy_share=np.minimum(totals["busy_s"] / replica_s, 1.0),
        batch_requests=totals["batch_s"] / busy_s,
        waiting_requests=totals["waiting_s"] / busy_s,
        kv_share=np.minimum(totals["kv_block_s"] / (replica_s * blocks), 1.0),
        preemptions=preemptions[:used],
    )
