"""Settings of ``capplan search``."""

from typing import ClassVar

from capplan.planning.setting_groups import (
    ConfigurationSettings,
    OutputSettings,
    PriceSettings,
)
from capplan.planning.settings import PlanSettings
from capplan.planning.traffic_settings import LimitSettings, RequestSettings


class SearchSettings(
    OutputSettings,
    PriceSettings,
    ConfigurationSettings,
    LimitSettings,
    RequestSettings,
):
    """Settings of the comparison of TP degrees at a full batch."""

    scenario_of: ClassVar = PlanSettings
