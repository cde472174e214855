"""Settings that a policy is given where its user left them out."""

from collections.abc import Mapping

from capplan.planning.evaluate.replica_load import ReplicaLoad
from capplan.simulator.autoscalers import autoscaler, parse_autoscaler
from capplan.simulator.autoscalers.metrics import METRICS

SHARE = 0.8
"""Part of what a replica sustains that a target is: more would come too late."""
ROOM = 2
"""Times the fixed fleet's replicas that a policy may have, at least."""


def name_of(policy: str) -> str:
    """Return the name of a policy."""
    return policy.partition(":")[0]


def given_to(policy: str) -> set[str]:
    """Return the names of the settings that a policy was given."""
    _, _, rest = policy.partition(":")
    return {part.partition("=")[0] for part in rest.split(",") if part}


def informed(policy: str, sustained: ReplicaLoad | None, fixed: int) -> str:
    """Return a policy with what it needs to know of a replica, and room to grow.

    What its user gave stays. ``fixed`` is the fixed fleet's count of replicas.

    Examples
    --------
    >>> informed("dynamo", ReplicaLoad(2.5, 20.0), 4)
    'dynamo:rate=2.5'
    >>> informed("ray:max=9", ReplicaLoad(2.5, 20.0), 4)
    'ray:max=9,target=16'
    """
    name, given = name_of(policy), given_to(policy)
    rules = autoscaler(name).RULES
    more: dict[str, float | str] = {}
    if sustained is not None:
        more = {
            key: value
            for key, value in _measured(policy, sustained).items()
            if key in rules.settings and key not in given
        }
    most = parse_autoscaler(policy).settings["max"]
    if "max" not in given and most < ROOM * fixed:
        more["max"] = ROOM * fixed
    return with_settings(policy, more)


def with_settings(policy: str, more: Mapping[str, float | str]) -> str:
    """Return a policy with more settings than it was given.

    Examples
    --------
    >>> with_settings("perfect", {"period": "300s", "rate": 0.25})
    'perfect:period=300s,rate=0.25'
    """
    if not more:
        return policy
    texts = [
        f"{key}={value if isinstance(value, str) else f'{value:.6g}'}"
        for key, value in more.items()
    ]
    return f"{policy}{',' if ':' in policy else ':'}{','.join(texts)}"


def _measured(policy: str, sustained: ReplicaLoad) -> dict[str, float]:
    """Return the settings that rest on what a replica sustains."""
    name, settings = name_of(policy), parse_autoscaler(policy).settings
    if name == "schedule" and any(key.isdigit() for key in given_to(policy)):
        return {}
    if name == "aladdin" and "k5" in given_to(policy):
        return {}
    if name == "ray":
        return {"target": SHARE * sustained.in_flight}
    if "metric" not in settings:
        return {"rate": sustained.rate_per_s}
    metric = METRICS[int(settings["metric"])]
    targets = {
        "in-flight": SHARE * sustained.in_flight,
        "running": SHARE * sustained.in_flight,
        "rate": SHARE * sustained.rate_per_s,
    }
    return {"target": targets[metric]} if metric in targets else {}
