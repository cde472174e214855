"""Settings of a backtest."""

from typing import Annotated, ClassVar

from capplan.planning.settings.groups import (
    CHOICES,
    METHOD,
    MOST_REPLICAS,
    ConfigurationSettings,
    OutputSettings,
    PriceSettings,
    RouterSettings,
    SchedulerSettings,
    ServerSettings,
    TrialSettings,
)
from capplan.planning.settings.layouts import LayoutSettings
from capplan.planning.settings.plan import PlanSettings
from capplan.planning.settings.speculation import SpeculationSettings
from capplan.planning.settings.traffic import (
    OBJECTIVE,
    WORKLOAD,
    LimitSettings,
    ObjectiveSettings,
    TrafficSettings,
)
from capplan.setting_values import PathText, Text
from capplan.settings import common, setting, validated_with
from capplan.units import check_duration
from capplan.workload.slo import Slo, parse_slo

_OF_PLANS = (*ObjectiveSettings.model_fields, *TrialSettings.model_fields)
"""What plans have beside traffic and prices."""


class BacktestSettings(
    LayoutSettings,
    SpeculationSettings,
    OutputSettings,
    SchedulerSettings,
    RouterSettings,
    ServerSettings,
    ConfigurationSettings,
    LimitSettings,
):
    """Settings of the comparison of a fleet that runs with its simulation."""

    scenario_of: ClassVar = PlanSettings
    unread: ClassVar = frozenset(
        {*TrafficSettings.model_fields, *PriceSettings.model_fields, *_OF_PLANS}
    )
    of_one_plan: ClassVar = frozenset({"backtest"})
    searches_layouts: ClassVar[bool] = False

    metrics: PathText | None = common(
        None,
        WORKLOAD,
        "FILE|FOLDER",
        "Metrics of the fleet: Prometheus' query_range JSON, texts of /metrics, CSV of "
        "Grafana, or AIPerf's server_metrics_export.csv.",
    )
    requests: PathText | None = common(
        None,
        WORKLOAD,
        "FILE",
        "Its requests with their times, a row each: CSV or JSON of a gateway, spans, "
        "AIPerf, or simulate --per-request.",
    )
    model_name: Text | None = setting(
        None, WORKLOAD, "NAME", "Of several models in the metrics, the one to judge."
    )
    replicas: int | None = common(
        None,
        CHOICES,
        "N",
        "Replicas of the fleet (default: those in the metrics, else 1).",
        ge=1,
        le=MOST_REPLICAS,
    )
    attainment: float = setting(
        0.99, OBJECTIVE, "SHARE", "Share of requests within the limits.", gt=0, le=1
    )
    window: Annotated[Text, validated_with(check_duration)] = setting(
        "10m",
        METHOD,
        "TIME",
        "Length of a window; one of few requests is joined to the next.",
    )
    seed: int = setting(0, METHOD, "N", "Seed of what is drawn.", ge=0)

    def objective(self) -> Slo | None:
        """Return the SLO for which replicas are counted; None without one."""
        return parse_slo(list(self.slo), self.attainment) if self.slo else None
