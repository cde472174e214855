"""Settings of ``capplan demand``."""

from typing import Annotated

from pydantic import BeforeValidator

from capplan.planning.settings import PlanningSettings, PlanSettings
from capplan.planning.traffic_settings import WORKLOAD, Rate
from capplan.setting_values import parts
from capplan.settings import setting


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
