"""How many replicas are wanted, tick after tick: one file per policy.

An autoscaler is ``start(settings, known) -> decide`` in plain Python. ``decide(view)``
is called at each tick, every ``period``, and returns how many replicas are wanted:
those ready and those starting, never fewer than ``min`` or more than ``max``. What it
remembers is its own, so that each simulation starts a fresh one. ``RULES`` in its file
are its settings, ``min``, ``max`` and ``period`` among them. ``view.py`` says what it
sees and what it may know.

A policy keeps the count that it asked for: a replica that was lost is asked for again.
"""

from types import ModuleType

from capplan.deployment.policy import Policy, parse_policy, policy_module
from capplan.simulator.autoscalers.settings import check_bounds
from capplan.simulator.autoscalers.view import Decide as Decide
from capplan.simulator.autoscalers.view import Known as Known
from capplan.simulator.autoscalers.view import View as View

AUTOSCALERS = {
    "schedule": "schedule",
    "hpa": "hpa",
    "keda": "keda",
    "wva": "wva",
    "wva-v2": "wva_v2",
    "dynamo": "dynamo",
    "dynamo-load": "dynamo_load",
    "ray": "ray",
    "llumnix": "llumnix",
    "aladdin": "aladdin",
    "perfect": "perfect",
}


def autoscaler(name: str) -> ModuleType:
    """Return the module of the named policy, with ``start`` and ``RULES``."""
    return policy_module("autoscaler", name, AUTOSCALERS, __name__)


def parse_autoscaler(given: str) -> Policy:
    """Return the policy of ``NAME`` or ``NAME:setting=number,...``.

    Examples
    --------
    >>> parse_autoscaler("ray:up_delay=1m").settings["up_delay"]
    60.0
    >>> str(parse_autoscaler("schedule:0=3,8=10,20=4"))
    'schedule:min=1,max=100,period=60.0s,0=3,8=10,20=4'
    """
    name = given.partition(":")[0]
    policy = parse_policy("autoscaler", given, name, autoscaler(name).RULES)
    check_bounds(given, policy)
    return policy


def start(policy: Policy, known: Known) -> Decide:
    """Return a fresh decider of a policy.

    Raises
    ------
    InputError
        When it needs something that is neither given nor known.
    """
    return autoscaler(policy.name).start(policy.settings, known)
