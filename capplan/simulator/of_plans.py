"""What plans of one pool and of two call, compiled: for a wheel, or for a cluster."""

from importlib import import_module
from operator import attrgetter
from typing import Any

_MODULES = (
    "drivers.two_pools",
    "hand_offs.nixl",
    "routers.join_shortest_queue",
    "simulate",
    "fleet.moving_fleet",
)
_SCHEDULERS = ("vllm-v1", "vllm-v1+COPIES")


def compiled_of_plans() -> list[tuple[Any, Any]]:
    """Return these functions with their signatures, compiled where they are not."""
    for name in _MODULES:
        import_module(f"capplan.simulator.{name}")
    from capplan.simulator import jit
    from capplan.simulator.drivers.one_pool import driver
    from capplan.simulator.schedulers import scheduler

    list(map(attrgetter("schedule"), map(scheduler, _SCHEDULERS)))
    driver(moves=False)
    return jit.CALLED_BY_PYTHON
