"""What is asked of replicas, whichever command asks."""

from typing import ClassVar

from capplan.planning.settings.engine import TierSettings
from capplan.planning.settings.fleet import (
    DisaggregationSettings,
    LifeSettings,
    PoolSettings,
    RebalancerSettings,
)
from capplan.planning.settings.groups import (
    PriceSettings,
    RouterSettings,
    SchedulerSettings,
    ServerSettings,
    TrialSettings,
)
from capplan.planning.settings.layouts import LayoutSettings
from capplan.planning.settings.speculation import SpeculationSettings
from capplan.settings import Settings


class Asked(
    TierSettings,
    LayoutSettings,
    SpeculationSettings,
    PoolSettings,
    DisaggregationSettings,
    LifeSettings,
    RebalancerSettings,
    RouterSettings,
    SchedulerSettings,
    ServerSettings,
    TrialSettings,
    PriceSettings,
):
    """Settings that say what a replica is and costs; those not offered by default."""

    searches_layouts: ClassVar[bool] = False

    offered: frozenset[str] = frozenset()
    """Names of those that the command offers."""


class _Searching(Asked):
    """Those of a command that looks at all layouts."""

    searches_layouts: ClassVar[bool] = True


def asked(settings: Settings) -> Asked:
    """Return what a command asks of replicas; what it does not offer is by default."""
    if isinstance(settings, Asked):
        return settings
    searches = isinstance(settings, LayoutSettings) and settings.searches_layouts
    shared = settings.shared_with(Asked)
    made = _Searching if searches else Asked
    return made.model_construct(**shared, offered=frozenset(shared))
