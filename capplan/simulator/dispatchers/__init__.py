"""Dispatchers: requests wait for a beat, at which all are placed. One file each.

A dispatcher is ``dispatch(state, motion, now_s) -> placed``, compiled for ``DISPATCH``;
at each beat, ``beat`` apart, all replicas stand at ``now_s``. It sends the first of
those that are held (``Index.HELD_FIRST``) to replicas by ``enqueue`` and returns how
many; the others wait for the next beat. It takes the place of a router. Its settings
stand in ``motion.settings`` from ``DISPATCHER_SETTINGS`` on in the order of its
``RULES``, which have ``beat``.
"""

from types import ModuleType

from capplan.deployment.policy import Policy, parse_policy, policy_module

DISPATCHERS = {"aladdin": "aladdin"}


def dispatcher(name: str) -> ModuleType:
    """Return the module of the named policy, with ``dispatch`` and ``RULES``."""
    return policy_module("dispatcher", name, DISPATCHERS, __name__)


def parse_dispatcher(given: str) -> Policy:
    """Return the policy of ``NAME`` or ``NAME:setting=number,...``."""
    name = given.partition(":")[0]
    return parse_policy("dispatcher", given, name, dispatcher(name).RULES)
