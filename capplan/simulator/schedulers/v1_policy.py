"""V1's scheduler with the capabilities that an engine needs."""

from collections.abc import Mapping
from functools import cached_property
from itertools import chain
from typing import Any

from capplan.deployment.engine import EngineSettings
from capplan.deployment.features import PRIORITY
from capplan.deployment.policy import Policy, Rules
from capplan.simulator.columns import REPLICA_COLUMNS, REQUEST_COLUMNS, columns_up_to
from capplan.simulator.schedulers.refusals import none
from capplan.simulator.schedulers.vllm_v1 import CAPABILITIES, capable


class Scheduler:
    """V1's scheduler with a set of capabilities, as the file of a policy is."""

    refused = staticmethod(none)

    def __init__(self, name: str) -> None:
        """``name``: of a policy, as ``scheduler_name`` gives it."""
        base, *on = name.split("+")
        on += ["PRIORITY"] if base == PRIORITY else []
        self._on = {flag: row for flag, row in CAPABILITIES.items() if flag in on}

    @cached_property
    def schedule(self) -> Any:
        """``schedule(state, replica) -> horizon``, compiled when first asked for."""
        return capable.built(*self._on)["schedule"]

    @property
    def RULES(self) -> Rules:
        """What the door must know of it."""
        on = self._on.values()
        remembers = [flag.lower() for flag in self._on]
        settings = max((row.settings for row in on), key=len, default={})
        knobs = chain(*(row.knobs.items() for row in CAPABILITIES.values()))
        return Rules(
            dict(settings) or dict(knobs),
            async_scheduling=True,
            prefix_caching=True,
            request_columns=columns_up_to(REQUEST_COLUMNS, remembers),
            replica_columns=columns_up_to(REPLICA_COLUMNS, remembers),
            orders=any(row.orders for row in on),
            in_order=all(row.in_order for row in on),
            keeps_batch=all(row.keeps_batch for row in on),
        )


def scheduler_name(engine: EngineSettings, *, pulls: bool = False) -> str:
    """Return the name of V1's scheduler for an engine; users name no capability.

    ``pulls``: prompts are computed by other replicas.
    """
    on = [flag for flag, row in CAPABILITIES.items() if row.is_on(engine)]
    return "+".join((engine.scheduler.name, *on, *(["COPIES"] if pulls else [])))


def v1_policy(
    engine: EngineSettings, given: Mapping[str, float], *, pulls: bool = False
) -> Policy:
    """Return V1's scheduler as an engine needs it.

    ``given``: settings that the engine does not tell, by name; with ``pulls`` those of
    ``kv/copies.py``, of a replica that pulls prompts' KV.
    """
    name = scheduler_name(engine, pulls=pulls)
    rules = Scheduler(name).RULES
    values = dict(given)
    request_columns, replica_columns = rules.request_columns, rules.replica_columns
    for row in CAPABILITIES.values():
        if row.is_on(engine):
            values |= row.values(engine)
            request_columns += row.request_columns(engine)
            replica_columns += row.replica_columns(engine)
    rules = rules._replace(
        request_columns=request_columns, replica_columns=replica_columns
    )
    settings = rules.settings.items()
    return Policy(
        name, rules, tuple(values.get(key, knob.default) for key, knob in settings)
    )
