"""Settings of ``capplan search``."""

from capplan.planning.setting_groups import (
    ConfigurationSettings,
    LimitSettings,
    OutputSettings,
    PriceSettings,
    RequestSettings,
)


class SearchSettings(
    OutputSettings,
    PriceSettings,
    ConfigurationSettings,
    LimitSettings,
    RequestSettings,
):
    """Settings of the comparison of TP degrees at a full batch."""
