"""What it is worth that the turns of a session go to the replica that has its KV."""

from dataclasses import dataclass, replace

from capplan.planning.configure.deployments import DEFAULT_ROUTER
from capplan.planning.plan.told import Told
from capplan.planning.size.candidates import evaluate

_MOST = 4
"""Times the replicas of the best that are tried without."""


@dataclass(frozen=True)
class StickyWorth:
    """The best fleet with a router that knows no sessions."""

    router: str  # in place of the plan's
    gpu_count: int | None  # None: so many times the replicas do not hold it
    gpu_count_saved: int | None
    most_replicas: int  # that were tried


def sticky_of(told: Told) -> StickyWorth | None:
    """Return what the best needs where turns go to any replica; None: no sessions."""
    best, inputs = told.best, told.inputs
    is_asked = told.run.sessions is not None and told.may_vary
    if not is_asked or told.run.deployment.router == DEFAULT_ROUTER:
        return None
    told.progress(f"pricing the best with router {DEFAULT_ROUTER}")
    count, gpus = best.replica_count or 0, best.gpu_count or 0
    limited = replace(told.prospect, max_replicas=_MOST * count)
    other = replace(inputs, routers=(DEFAULT_ROUTER,), best_only=True)
    found = evaluate(other, limited)[0].gpu_count
    saved = None if found is None else found - gpus
    return StickyWorth(DEFAULT_ROUTER, found, saved, _MOST * count)
