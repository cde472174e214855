"""How many replicas are wanted, tick after tick: one file per policy.

An autoscaler is ``start(settings, known) -> decide`` in plain Python. ``decide(view)``
is called at each tick, every ``period``, and returns how many replicas are wanted:
those ready and those starting, never fewer than ``min`` or more than ``max``. What it
remembers is its own, so that each simulation starts a fresh one. ``RULES`` in its file
are its settings, ``min``, ``max`` and ``period`` among them. ``view.py`` says what it
sees and what it may know.

A policy keeps the count that it asked for: a replica that was lost is asked for again.
"""

from capplan.deployment.policy import Family, Policy
from capplan.errors import InputError
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


_FAMILY = Family("autoscaler", AUTOSCALERS, __name__)
autoscaler = _FAMILY.module


def parse_autoscaler(given: str) -> Policy:
    """Return the policy of ``NAME`` or ``NAME:setting=number,...``.

    Examples
    --------
    >>> parse_autoscaler("ray:up_delay=1m").settings["up_delay"]
    60.0
    >>> str(parse_autoscaler("schedule:0=3,8=10,20=4"))
    'schedule:min=1,max=100,period=60.0s,0=3,8=10,20=4'
    """
    policy = _FAMILY.parse(given)
    least, most = policy.settings["min"], policy.settings["max"]
    if least > most:
        raise InputError(
            f"autoscaler {given!r}: min is {least} and max {most}; expected min <= max"
        )
    return policy


def start(policy: Policy, known: Known) -> Decide:
    """Return a fresh decider of a policy."""
    return autoscaler(policy.name).start(policy.settings, known)
