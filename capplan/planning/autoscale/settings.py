"""Settings of ``capplan autoscale``."""

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator

from capplan.planning.settings.fleet import MOTION, LossSettings
from capplan.planning.settings.groups import (
    MOST_REPLICAS,
    OutputSettings,
    SchedulerSettings,
)
from capplan.planning.settings.layouts import TP_ALONE, LayoutSettings
from capplan.planning.settings.plan import FleetSettings, PlanSettings
from capplan.planning.settings.speculation import SpeculationSettings
from capplan.planning.settings.traffic import TrafficSettings
from capplan.setting_values import policy_texts
from capplan.settings import common, setting, validated_with
from capplan.simulator.autoscalers import AUTOSCALERS, parse_autoscaler

PERFECT = "perfect"
DEFAULT_POLICIES = ("schedule", "hpa", "keda", "wva-v2", "dynamo")
"""One of each kind that people run: planned hours, in flight, a queue, tokens, rate."""


def policy_names(value: Any) -> Any:
    """Return autoscalers with their settings, as a list or ``A,B:x=1``."""
    return tuple(policy_texts(value, "[hpa, ray:target=20]", is_bare=True))


Policies = Annotated[
    tuple[Annotated[str, validated_with(parse_autoscaler)], ...],
    BeforeValidator(policy_names),
]
"""Autoscalers by name, with their settings."""


class AutoscaleSettings(
    LayoutSettings,
    SpeculationSettings,
    OutputSettings,
    LossSettings,
    SchedulerSettings,
    FleetSettings,
    TrafficSettings,
):
    """Settings of the comparison of autoscalers with fleets of a fixed size."""

    scenario_of: ClassVar = PlanSettings
    searches_layouts: ClassVar[bool] = False

    policies: Policies = common(
        (),
        MOTION,
        "A,B",
        f"Autoscalers (default: {','.join(DEFAULT_POLICIES)}). Of "
        f"{', '.join(AUTOSCALERS)}; perfect comes too; hpa:target=20,max=16.",
    )
    replicas: int | None = common(
        None,
        MOTION,
        "N",
        "Replicas at the start (default: the smallest fixed fleet that holds).",
        ge=1,
        le=MOST_REPLICAS,
    )
    break_even: bool = setting(
        True,
        MOTION,
        "",
        "Also find the cold start at which each policy stops paying (default: on).",
    )

    @property
    def compared(self) -> tuple[str, ...]:
        """Policies that are compared, besides the one that knows the arrivals."""
        return self.policies or DEFAULT_POLICIES

    def of_plan(self) -> PlanSettings:
        """Return the settings of a plan of the same requests."""
        shared = self.shared_with(PlanSettings)
        given = {
            name: value for name, value in shared.items() if value not in ((), None)
        }
        return PlanSettings(**{**TP_ALONE, **given})

    def without_losses(self) -> "AutoscaleSettings":
        """Return the settings of fleets that lose no replica."""
        none = {"outage": (), "rolling_update": None, "spot": None}
        return self.model_copy(update=none)
