"""Which capabilities V1's scheduler needs, what it remembers and is told of them."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from capplan.deployment.engine import EngineSettings
from capplan.deployment.features import PRIORITY
from capplan.deployment.policy import Policy, Rules
from capplan.simulator.columns import (
    REPLICA_COLUMNS,
    REQUEST_COLUMNS,
    columns_up_to,
)
from capplan.simulator.engine import speculation
from capplan.simulator.kv import copies
from capplan.simulator.kv.states import request_columns
from capplan.simulator.kv.worklist import list_columns
from capplan.simulator.schedulers.refusals import none
from capplan.simulator.v1 import adapters, encoder_cache, stages

_CAPABILITIES = (
    "CADENCE",
    "COPIES",
    "DRAFTS",
    "IMAGES",
    "ADAPTERS",
    "STAGES",
    "STATES",
    "PRIORITY",
)
"""Flags of ``schedulers/vllm_v1.py``."""
_SETTINGS = {
    "STAGES": stages.SETTINGS,
    "ADAPTERS": adapters.SETTINGS,
    "IMAGES": encoder_cache.SETTINGS,
    "DRAFTS": speculation.SETTINGS,
    "COPIES": copies.SETTINGS,
}
"""Of those that have any, with all that stand before them."""


class Scheduler:
    """V1's scheduler with a set of capabilities, as the file of a policy is."""

    refused = staticmethod(none)

    def __init__(self, name: str) -> None:
        """``name``: of a policy, as ``scheduler_name`` gives it."""
        base, *on = name.split("+")
        on += ["PRIORITY"] if base == PRIORITY else []
        self._on = tuple(flag for flag in _CAPABILITIES if flag in on)

    @cached_property
    def schedule(self) -> Any:
        """``schedule(state, replica) -> horizon``, compiled when first asked for."""
        from capplan.simulator.schedulers.vllm_v1 import capable

        return capable.built(*self._on)["schedule"]

    @property
    def RULES(self) -> Rules:
        """What the door must know of it."""
        on = {*self._on}
        remembers = [flag.lower() for flag in self._on]
        return Rules(
            next((rows for flag, rows in _SETTINGS.items() if flag in on), {}),
            async_scheduling=True,
            prefix_caching=True,
            request_columns=columns_up_to(REQUEST_COLUMNS, remembers),
            replica_columns=columns_up_to(REPLICA_COLUMNS, remembers),
            orders="PRIORITY" in on,
            in_order=on <= {"CADENCE", "DRAFTS", "STATES"},
            # Iterations are no shorter than without adapters or images.
            keeps_batch=on <= {"CADENCE", "COPIES", "IMAGES", "ADAPTERS"},
        )


def scheduler_name(engine: EngineSettings, *, pulls: bool = False) -> str:
    """Return the name of V1's scheduler for an engine; users name no capability.

    ``pulls``: prompts are computed by other replicas.
    """
    on = {
        "CADENCE": engine.prefill_schedule_interval > 1,
        "COPIES": pulls,
        "DRAFTS": engine.speculation is not None,
        "IMAGES": engine.images is not None,
        "ADAPTERS": engine.adapters is not None,
        "STAGES": engine.pipeline is not None,
        "STATES": engine.keeps_states,
    }
    return "+".join((engine.scheduler.name, *(flag for flag in on if on[flag])))


def v1_policy(
    engine: EngineSettings,
    pulling: Mapping[str, float] | None = None,
    *,
    counts_late: bool = False,
) -> Policy:
    """Return V1's scheduler as an engine needs it.

    ``pulling``: the settings of ``copies.py``, of a replica that pulls prompts' KV.
    ``counts_late``: nobody but it asks for free blocks, or which they are.
    """
    name = scheduler_name(engine, pulls=pulling is not None)
    rules = Scheduler(name).RULES
    if engine.keeps_states:
        rules = rules._replace(
            request_columns=request_columns(engine),
            replica_columns=list_columns(engine.block_size),
        )
    if engine.pipeline is not None:
        rules = rules._replace(
            request_columns=(*rules.request_columns, *stages.in_flight_columns(engine)),
            replica_columns=(
                *rules.replica_columns,
                *stages.stage_columns(engine.pipeline.stages),
            ),
        )
    given = dict(pulling or {})
    if engine.speculation is not None:
        late = counts_late and not engine.keeps_states
        given |= speculation.drafts_values(engine.speculation, eager=not late)
    if engine.images is not None:
        given |= encoder_cache.images_values(engine)
    if engine.adapters is not None:
        given |= adapters.adapters_values(engine.adapters)
    if engine.pipeline is not None:
        given |= stages.stage_values(engine.pipeline)
        given["read_s"] = engine.pipeline.share * given.get("read_s", 0.0)
    values = (given.get(key, knob.default) for key, knob in rules.settings.items())
    return Policy(name, rules, tuple(values))
