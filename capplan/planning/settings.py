"""Settings of ``plan``, ``simulate``, ``search``, ``demand``, and what they share."""

from typing import Annotated, ClassVar

from pydantic import BeforeValidator

from capplan.planning.setting_groups import (
    CHOICES,
    METHOD,
    MOST_REPLICAS,
    OUTPUT,
    ConfigurationSettings,
    ExecutorSettings,
    OutputSettings,
    PriceSettings,
    RouterSettings,
    SchedulerSettings,
    ServerSettings,
    TrialSettings,
)
from capplan.planning.traffic_settings import (
    WORKLOAD,
    ArrivalSettings,
    LimitSettings,
    ObjectiveSettings,
    Rate,
    RequestSettings,
    TrafficSettings,
    UserSettings,
)
from capplan.setting_values import PathText, parts
from capplan.settings import setting

# Fields, and so flags and keys, come in the order of the last base first.


class FleetSettings(
    RouterSettings,
    ServerSettings,
    PriceSettings,
    ConfigurationSettings,
    ObjectiveSettings,
    ArrivalSettings,
    RequestSettings,
):
    """Settings of what is simulated: requests, their SLO and the replicas."""


class PlanningSettings(
    OutputSettings, ExecutorSettings, TrialSettings, SchedulerSettings, FleetSettings
):
    """Settings of a plan but for the rate: of plans at several rates."""


class PlanSettings(PlanningSettings, UserSettings, TrafficSettings):
    """Settings of a plan; a field left None takes capplan's default."""


class SimulateSettings(
    OutputSettings, SchedulerSettings, FleetSettings, UserSettings, TrafficSettings
):
    """Settings of the simulation of one given deployment."""

    replicas: int = setting(
        1, CHOICES, "N", "Replicas of the deployment.", ge=1, le=MOST_REPLICAS
    )
    record_iterations: PathText | None = setting(
        None, OUTPUT, "FILE", "Write one row per engine iteration (CSV, .gz too)."
    )
    per_request: PathText | None = setting(
        None, OUTPUT, "FILE", "Write the times of every request (CSV, .gz too)."
    )
    trace_events: PathText | None = setting(
        None, OUTPUT, "FILE", "Write the schedule for chrome://tracing or Perfetto."
    )
    stream: bool | None = setting(
        None,
        METHOD,
        "",
        "Read a CSV in chunks, in constant memory (default: above 256 MiB).",
    )


class SearchSettings(
    OutputSettings,
    PriceSettings,
    ConfigurationSettings,
    LimitSettings,
    RequestSettings,
):
    """Settings of the comparison of TP degrees at a full batch."""

    scenario_of: ClassVar = PlanSettings


class DemandSettings(PlanningSettings):
    """Settings of plans at several arrival rates."""

    rates: Annotated[tuple[Rate, ...], BeforeValidator(parts)] = setting(
        (), WORKLOAD, "R,R,R,R", "Arrival rates to plan for, requests/s, four or more."
    )
    at: Annotated[tuple[Rate, ...], BeforeValidator(parts)] = setting(
        (), WORKLOAD, "R,R", "Arrival rates to extrapolate to, requests/s."
    )

    def at_rate(self, rate_per_s: float) -> PlanSettings:
        """Return the settings of the plan for one rate."""
        return PlanSettings(**self.shared_with(PlanSettings), rate=rate_per_s)
