"""Settings of ``capplan budget``."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from capplan.fleet.grids import grid_of
from capplan.llm.layout import Layout
from capplan.planning.autoscale.settings import AutoscaleSettings, Policies
from capplan.planning.budget.growth import Growth, growth_text, parse_growth
from capplan.planning.budget.scenarios import (
    Scenario,
    parse_scenarios,
    scenarios_by_name,
)
from capplan.planning.load.demand_curve import check_window
from capplan.planning.money.commitments import parse_contract
from capplan.planning.money.ladder import FULL
from capplan.planning.money.owned import parse_owned
from capplan.planning.money.purchase_texts import (
    NO_COMMITMENT,
    parse_commit,
    parse_quota,
)
from capplan.planning.settings.fleet import MOTION, OrderSettings
from capplan.planning.settings.layouts import LayoutSettings
from capplan.planning.settings.plan import PlanningSettings, PlanSettings
from capplan.planning.settings.speculation import SpeculationSettings
from capplan.planning.settings.traffic import TrafficSettings
from capplan.setting_values import Text, pairs_text, parts
from capplan.settings import common, setting, validated_with
from capplan.units import check_duration, parse_duration_s

BUDGET = "Budget"
MOST_MONTHS = 120
SCHEDULED, STATIC = "scheduled", "static"
_ANCHORS = (1, 12, 24)
"""Months whose peaks are simulated, with the last one; in between the law holds."""


class BudgetSettings(
    LayoutSettings,
    SpeculationSettings,
    OrderSettings,
    PlanningSettings,
    TrafficSettings,
):
    """Settings of a budget: months, growth, and the ways to pay for nodes."""

    needs: ClassVar = dict.fromkeys(
        ("spot_price", "spot_return", "spot"), "--spot-share"
    )

    scenario_of: ClassVar = PlanSettings

    horizon_months: int = common(
        36,
        BUDGET,
        "N",
        "Months of the budget.",
        flags=("--horizon-months", "--months"),
        ge=1,
        le=MOST_MONTHS,
    )
    growth: Annotated[
        str, BeforeValidator(growth_text), validated_with(parse_growth)
    ] = common(
        "0%/month",
        BUDGET,
        "RATE",
        "Growth: 3%/month or 40%/year (default: none). Of each part: "
        "users=3%/month,requests=1%/month,tokens=10%/year.",
    )
    window: Annotated[Text, validated_with(check_duration)] = setting(
        "10m",
        BUDGET,
        "TIME",
        "An hour needs what its busiest window of this length needs.",
    )
    fleet: Literal["scheduled", "static"] = setting(
        SCHEDULED,
        BUDGET,
        "scheduled|static",
        "Nodes as each hour needs them, or always as many as the month's peak.",
    )
    commit: Annotated[
        tuple[Annotated[str, validated_with(parse_commit)], ...], BeforeValidator(parts)
    ] = common(
        (),
        BUDGET,
        "KIND:MONTHS",
        "Commitments to choose from, or none (default: 12 and 36 months). "
        "reserved:12,reserved:36=55% (a discount on the price on demand) or =1.90 "
        "($ per GPU-hour).",
    )
    contract: Annotated[
        tuple[Annotated[str, validated_with(parse_contract)], ...],
        BeforeValidator(parts),
    ] = setting(
        (),
        BUDGET,
        "NODES@USD:MONTH",
        "Nodes committed already, at dollars per node-hour until the end of a month: "
        "6@24.60:18.",
        repeated=True,
    )
    charge: Literal["full", "horizon"] = setting(
        FULL,
        BUDGET,
        "full|horizon",
        "Count the whole term of a commitment when choosing, or only its months in the "
        "budget; then more may be owed afterwards.",
    )
    quota: Annotated[
        str | None, BeforeValidator(pairs_text), validated_with(parse_quota)
    ] = setting(
        None,
        BUDGET,
        "KIND=N",
        "Most nodes at once: committed=20,on-demand=8,spot=4 (default: no limits).",
    )
    spares: int = setting(
        0,
        BUDGET,
        "K",
        "Spare nodes at every hour, on top of those needed.",
        ge=0,
        le=10_000,
    )
    spot_share: float = setting(
        0.0,
        BUDGET,
        "SHARE",
        "Most of the nodes of an hour that may be spot.",
        ge=0,
        le=1,
    )
    spot_price: float | None = setting(
        None,
        BUDGET,
        "USD",
        "Price of a spot GPU-hour (default: an offer of the same provider).",
        gt=0,
    )
    spot_return: Annotated[Text | None, validated_with(check_duration)] = setting(
        None,
        BUDGET,
        "TIME",
        "From a spot node's loss to the first request of another (default: a cold "
        "start).",
    )
    owned: Annotated[
        str | None, BeforeValidator(pairs_text), validated_with(parse_owned)
    ] = common(
        None,
        BUDGET,
        "INPUT=N",
        "Compare with nodes that are bought: default, or capex=300000,life=5. Also "
        "residual=0.1,support=0.05,staff=…,pue=1.5,usd_per_kwh=0.15,colocation=200.",
    )
    wacc: float = setting(0.08, BUDGET, "SHARE", "Cost of capital, a year.", ge=0, le=1)
    grid: Annotated[Text, validated_with(grid_of)] = setting(
        "USA",
        BUDGET,
        "COUNTRY|G",
        "Country of the electricity, or its grams of CO2e per kWh.",
    )
    scenarios: Annotated[
        dict[str, dict[str, Any]],
        BeforeValidator(scenarios_by_name),
        validated_with(parse_scenarios),
    ] = common(
        {},
        BUDGET,
        "NAME:KEY=V",
        "More budgets, by name: high:growth=5%/month,scale=1.5. Growth in place "
        "of the budget's, and factors scale (requests), output_scale (answers) and "
        "price.",
        repeated=True,
    )
    anchor_months: Annotated[
        tuple[Annotated[int, Field(ge=1, le=MOST_MONTHS)], ...], BeforeValidator(parts)
    ] = setting(
        (),
        BUDGET,
        "M,M",
        "Months whose peaks are simulated (default: 1, 12, 24 and the last).",
    )
    policies: Policies = setting(
        ("hpa",), MOTION, "A,B", "Autoscalers to compare with, on a trace with times."
    )
    compare_fleets: bool = setting(
        True,
        MOTION,
        "",
        "Simulate autoscaled fleets and the budget's hours on a trace with times "
        "(default: on).",
    )

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield what contradicts in months and commitments."""
        yield from super().contradictions()
        check_window(parse_duration_s(self.window))
        if NO_COMMITMENT in self.commit and len(self.commit) > 1:
            yield "commit", f"commit is {','.join(self.commit)}; expected none alone"
        last = self.horizon_months
        for month in self.anchor_months:
            if month > last:
                after = f"after the {last} months of the budget"
                yield "anchor_months", f"anchor_months has {month}, {after}"

    @property
    def growing(self) -> Growth:
        """Growth by the month."""
        return parse_growth(self.growth)

    @property
    def anchors(self) -> tuple[int, ...]:
        """Months whose peaks are simulated."""
        if self.anchor_months:
            return tuple(sorted(set(self.anchor_months)))
        before = (month for month in _ANCHORS if month < self.horizon_months)
        return (*before, self.horizon_months)

    def under(self, scenario: Scenario) -> "BudgetSettings":
        """Return the settings of the budget under a scenario, by itself."""
        answers = (self.output_scale or 1.0) * scenario.output_scale
        changed: dict[str, Any] = {
            "growth": scenario.growth or self.growth,
            "output_scale": None if answers == 1.0 else answers,
            "scenarios": {},
        }
        if self.spot_price is not None:
            changed["spot_price"] = self.spot_price * scenario.price
        return self.model_copy(update=changed)

    def at_rate(self, rate_per_s: float) -> PlanSettings:
        """Return the settings of a plan of steady arrivals at a rate."""
        shared = self.shared_with(PlanSettings)
        arrivals = self.arrivals or "poisson"
        drawn = {"rate": rate_per_s, "arrivals": arrivals, "attain_in": None}
        return PlanSettings(**{**shared, **drawn})

    def of_fleets(
        self, gpu: str, layout: Layout, policies: tuple[str, ...]
    ) -> AutoscaleSettings:
        """Return the settings of autoscaled fleets on the trace as it is."""
        shared = self.shared_with(AutoscaleSettings)
        chosen = {"gpu": (gpu,), "policies": policies, "spot": None}
        fleets = AutoscaleSettings(
            **{**shared, **chosen, "rate": None, "break_even": False, "out": None}
        )
        return fleets.model_copy(update=self.of(layout))
