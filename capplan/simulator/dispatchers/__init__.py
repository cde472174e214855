"""Dispatchers: requests wait for a beat, at which all are placed. One file each.

A dispatcher is ``dispatch(state, motion, now_s) -> placed``, compiled for ``DISPATCH``;
at each beat, ``beat`` apart, all replicas stand at ``now_s``. It sends the first of
those that are held (``Index.HELD_FIRST``) to replicas by ``enqueue`` and returns how
many; the others wait for the next beat. It takes the place of a router. Its settings
stand in ``motion.settings`` from ``DISPATCHER_SETTINGS`` on in the order of its
``RULES``, which have ``beat``.
"""

from capplan.deployment.policy import Family

DISPATCHERS = {"aladdin": "aladdin"}

_FAMILY = Family("dispatcher", DISPATCHERS, __name__)
dispatcher, parse_dispatcher = _FAMILY.module, _FAMILY.parse
