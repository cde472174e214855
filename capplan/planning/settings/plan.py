"""Settings of ``plan``, ``simulate``, ``search``, ``demand``, and what they share."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator

from capplan.errors import InputError
from capplan.fleet.api_price import ApiPrice, parse_api_price
from capplan.fleet.gpu_file import GpuFileSettings
from capplan.fleet.prices import parse_kind
from capplan.planning.settings.engine import TierSettings
from capplan.planning.settings.fleet import (
    DisaggregationSettings,
    LifeSettings,
    PoolSettings,
    RebalancerSettings,
)
from capplan.planning.settings.groups import (
    CHOICES,
    METHOD,
    MOST_REPLICAS,
    OUTPUT,
    ConfigurationSettings,
    ExecutorSettings,
    MarketSettings,
    OutputSettings,
    PriceSettings,
    RouterSettings,
    SchedulerSettings,
    ServerSettings,
    TrialSettings,
)
from capplan.planning.settings.layouts import LayoutSettings
from capplan.planning.settings.mix import MixSettings
from capplan.planning.settings.risk import RiskSettings
from capplan.planning.settings.spares import SpareNodeSettings
from capplan.planning.settings.speculation import SpeculationSettings
from capplan.planning.settings.traffic import (
    OBJECTIVE,
    WORKLOAD,
    ArrivalSettings,
    LimitSettings,
    ObjectiveSettings,
    Rate,
    RequestSettings,
    SessionSettings,
    ThinkSettings,
    TrafficSettings,
    UserSettings,
)
from capplan.setting_values import PathText, parts, slo_texts
from capplan.settings import common, parsed_with, setting, validated_with
from capplan.workload.slo import Slo, parse_slo

CAPACITY = "Capacity"
DEMAND = "Demand"

# Fields, and so flags and keys, come in the order of the last base first.


class FleetSettings(
    RebalancerSettings,
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


class PlanSettings(
    TierSettings,
    LayoutSettings,
    SpeculationSettings,
    MixSettings,
    SpareNodeSettings,
    RiskSettings,
    DisaggregationSettings,
    PlanningSettings,
    SessionSettings,
    UserSettings,
    TrafficSettings,
):
    """Settings of a plan; a field left None takes capplan's default."""

    api_price: Annotated[str | None, validated_with(parse_api_price)] = setting(
        None,
        CHOICES,
        "in=USD,out=USD",
        "Prices of an API by million tokens, to compare: in=0.60,out=2.40,cached=0.15.",
    )
    xlsx: bool = setting(
        False, OUTPUT, "", "Write plan.xlsx too, a workbook with live formulas."
    )

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield an LLM that is named twice."""
        yield from super().contradictions()
        if len(set(self.llms)) < len(self.llms):
            yield "llm", f"llm is {self.llm}; expected each once"

    @property
    def api(self) -> ApiPrice | None:
        """Prices of an API to compare with; None without."""
        return None if self.api_price is None else parse_api_price(self.api_price)

    @property
    def llms(self) -> tuple[str, ...]:
        """LLMs to plan for, each by itself."""
        if self.llm is None or Path(self.llm).exists():
            return () if self.llm is None else (self.llm,)
        return tuple(parts(self.llm))


class SimulateSettings(
    TierSettings,
    LayoutSettings,
    SpeculationSettings,
    OutputSettings,
    LifeSettings,
    PoolSettings,
    SchedulerSettings,
    FleetSettings,
    SessionSettings,
    UserSettings,
    TrafficSettings,
):
    """Settings of the simulation of one given deployment."""

    searches_layouts: ClassVar[bool] = False

    replay: Literal["closed", "open"] | None = setting(
        None,
        WORKLOAD,
        "closed|open",
        "open: turns of a recording arrive when they did, whatever becomes of answers.",
    )

    replicas: int = common(
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
    export_metrics: PathText | None = setting(
        None,
        OUTPUT,
        "DIR[:30s]",
        "Write what each replica would show to Prometheus, scraped each 15 s: vLLM's "
        "names, as its query_range JSON.",
    )
    stream: bool | None = setting(
        None,
        METHOD,
        "",
        "Read a CSV in chunks, in constant memory (default: above 256 MiB).",
    )


class CapacitySettings(
    TierSettings,
    LayoutSettings,
    SpeculationSettings,
    OutputSettings,
    SchedulerSettings,
    SessionSettings,
    ThinkSettings,
    FleetSettings,
):
    """Settings of what given fleets serve: the highest rate, and the most users."""

    scenario_of: ClassVar = PlanSettings

    replicas: int | None = common(
        None, CAPACITY, "N", "Replicas that you have.", ge=1, le=MOST_REPLICAS
    )
    max_gpus: int | None = common(
        None, CAPACITY, "N", "Or GPUs, of which whole replicas are made.", ge=1
    )
    max_usd_per_month: float | None = common(
        None, CAPACITY, "USD", "Or dollars for a month of 730 h.", gt=0
    )
    also_slo: Annotated[
        tuple[str, ...], BeforeValidator(slo_texts), validated_with(parse_slo)
    ] = setting(
        (),
        OBJECTIVE,
        "LIMITS",
        "Answer for these limits too, apart from the others: ttft=2s,tpot=50ms.",
        repeated=True,
    )

    def check_size(self) -> None:
        """Refuse a size of the fleets that is not given, or given twice.

        A scenario alone may have none: a flag gives it.
        """
        sizes = ("replicas", "max_gpus", "max_usd_per_month")
        given = [name for name in sizes if getattr(self, name) is not None]
        if len(given) != 1:
            raise InputError(
                f"{' and '.join(given) or 'no size'} given for the fleets; expected "
                "one of --replicas, --max-gpus and --max-usd-per-month"
            )

    def objectives(self) -> list[Slo]:
        """Return the SLOs to answer for."""
        first = self.objective()
        if first is None:
            raise InputError("no SLO; give --slo such as ttft=1s,tpot=30ms")
        others = (self.model_copy(update={"slo": (text,)}) for text in self.also_slo)
        return [first, *(slo for other in others if (slo := other.objective()))]

    def at_rate(self, rate_per_s: float | None) -> PlanSettings:
        """Return the settings of a plan of the same requests, of arrivals."""
        shared = {**self.shared_with(PlanSettings), "think": None}
        return PlanSettings(**shared, rate=rate_per_s)


class OffersSettings(MarketSettings, GpuFileSettings):
    """Which offers to list."""

    gpu: Annotated[tuple[str, ...], BeforeValidator(parts)] = setting(
        (), CHOICES, "A,B", "GPU types (default: all)."
    )
    tp: int | None = setting(
        None, CHOICES, "N", "Only nodes that hold a replica of N GPUs.", ge=1
    )
    kind: Annotated[str | None, parsed_with(parse_kind)] = setting(
        None, CHOICES, "KIND", "How to pay (default: all ways)."
    )


class SearchSettings(
    OutputSettings, PriceSettings, ConfigurationSettings, LimitSettings, RequestSettings
):
    """Settings of the comparison of TP degrees at a full batch."""

    scenario_of: ClassVar = PlanSettings


class DemandSettings(LayoutSettings, SpeculationSettings, PlanningSettings):
    """Settings of plans at several arrival rates."""

    rates: Annotated[tuple[Rate, ...], BeforeValidator(parts)] = common(
        (),
        DEMAND,
        "R,R",
        "Arrival rates to plan for, requests/s; a line is fitted to four or more.",
    )
    at: Annotated[tuple[Rate, ...], BeforeValidator(parts)] = common(
        (), DEMAND, "R,R", "Arrival rates to extrapolate to, requests/s."
    )

    def at_rate(self, rate_per_s: float) -> PlanSettings:
        """Return the settings of the plan for one rate."""
        shared = self.shared_with(PlanSettings)
        return PlanSettings(**shared, rate=rate_per_s)
