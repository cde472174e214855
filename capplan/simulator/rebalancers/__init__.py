"""Rebalancers: which requests move to another replica. One file each.

A rebalancer is ``rebalance(state, motion, now_s) -> pairs``, compiled for
``REBALANCE``; at each tick, ``period`` apart, all replicas stand at ``now_s``. It
writes source, destination and slot of each request to move to ``motion.pairs`` and
returns how many there are. Neither of a pair may be in a migration (``motion.busy``).
Its settings stand in ``motion.settings`` in the order of its ``RULES``, which begin
with those of every rebalancer, ``MIGRATION``.
"""

from capplan.deployment.policy import Family, Knob

REBALANCERS = {"llumnix": "llumnix"}

MIGRATION = {
    "block": Knob(0.0, 0, 10, is_duration=True),  # to copy a block; 0: by the link
    "handshake": Knob(0.023, 0, 10, is_duration=True),  # of each stage
    "stages": Knob(3, 1, 100),
    "last": Knob(16, 1, 10**6),  # a stage of so many blocks is the last
    "period": Knob(0.05, 1e-3, 3600, is_duration=True),  # between two ticks
}
"""Settings of every rebalancer, in the order of ``migration.py``.

Stages and blocks are the defaults of Llumnix's main branch (config/default.py). The
handshake is what its paper's downtime of 25 ms leaves beside two blocks.
"""

_FAMILY = Family("rebalancer", REBALANCERS, __name__)
rebalancer, parse_rebalancer = _FAMILY.module, _FAMILY.parse
