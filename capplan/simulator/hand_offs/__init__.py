"""Hand-offs: where a prompt is computed, and how its KV comes to its decode replica.

One file each, with ``where(first, second, slot, d)``, compiled for ``WHERE``: is the
request at ``slot`` of the decode pool, for which its replica ``d`` was chosen, served
by both pools, or by a replica of one of them alone? Its settings stand in
``second.settings`` from ``HAND_OFF_SETTINGS`` on, in the order of its ``RULES``, which
begin with those of every hand-off, ``COPY``. Constants say the rest:

- ``AT_ARRIVAL``: the decode replica is chosen at the arrival, before the prefill
  replica; else when the prompt is done, and ``where`` is not asked.
- ``RECOMPUTES``: the decode replica computes the last prompt token again, and its
  result is the first token; else the first token is the prefill replica's.
- ``SPEED_UP``: by how much the copy is faster than the link, since it overlaps the
  prompt.
"""

from capplan.deployment.policy import Family, Knob

HAND_OFFS = {"nixl": "nixl", "distserve": "distserve", "splitwise": "splitwise"}

MIXING = ("splitwise",)
"""Hand-offs that let a prefill replica serve whole requests."""

BOTH, DECODE_ALONE, PREFILL_ALONE = range(3)
"""Where a request is served."""

COPY = {
    "block": Knob(0.0, 0, 10, is_duration=True),  # to copy a block; 0: by the link
    "handshake": Knob(1e-3, 0, 10, is_duration=True),  # of each copy
    "hop": Knob(1e-3, 0, 10, is_duration=True),  # from the prompt's end to the queue
}
"""Settings of every hand-off; handshake and hop are assumed, nobody published them."""

_FAMILY = Family("hand-off", HAND_OFFS, __name__)
hand_off, parse_hand_off = _FAMILY.module, _FAMILY.parse


def computes_last_again(given: str) -> bool:
    """Return whether the decode replica computes the last prompt token again."""
    return bool(given) and bool(hand_off(given.partition(":")[0]).RECOMPUTES)
