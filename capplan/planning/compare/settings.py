"""Settings of ``capplan compare``."""

from typing import Annotated, Any

from pydantic import BeforeValidator

from capplan.planning.compare.systems import SYSTEMS, check_system
from capplan.planning.settings.groups import (
    MOST_REPLICAS,
    ExecutorSettings,
    OutputSettings,
)
from capplan.planning.settings.plan import FleetSettings
from capplan.planning.settings.speculation import SpeculationSettings
from capplan.planning.settings.traffic import Rate, TrafficSettings, UserSettings
from capplan.setting_values import parts, policy_texts
from capplan.settings import common, setting, validated_with

COMPARISON = "Comparison"


def _systems(value: Any) -> Any:
    systems = policy_texts(value, "[sarathi, orca:max_len=4096]")
    if not systems:
        raise ValueError("is empty; expected systems, or leave it out for all")
    return tuple(systems)


def _check_systems(value: tuple[str, ...]) -> None:
    for system in value:
        check_system(system)


class CompareSettings(
    SpeculationSettings,
    OutputSettings,
    ExecutorSettings,
    FleetSettings,
    UserSettings,
    TrafficSettings,
):
    """Settings of a comparison of serving systems."""

    systems: Annotated[
        tuple[str, ...], BeforeValidator(_systems), validated_with(_check_systems)
    ] = common(
        (),
        COMPARISON,
        "A,B",
        "Systems or schedulers: sarathi,orca:max_len=4096 (default: all). Systems are "
        f"{', '.join(SYSTEMS)}.",
    )
    published: bool = common(
        False,
        COMPARISON,
        "",
        "Seats and token budgets as published. By default all have the same seats, and "
        "tuned budgets.",
    )
    max_model_len: int | None = setting(
        None,
        COMPARISON,
        "N",
        "Longest request of systems that reserve KV for it or do not cut prompts "
        "(default: leaves out a tenth of the requests that may miss).",
        ge=1,
    )
    replicas: int | None = common(
        None,
        COMPARISON,
        "N",
        "Replicas that all run on (default: what the first system needs).",
        ge=1,
        le=MOST_REPLICAS,
    )
    rates: Annotated[tuple[Rate, ...], BeforeValidator(parts)] = setting(
        (),
        COMPARISON,
        "R,R",
        "Arrival rates of the curves, requests/s (default: near what each holds).",
    )
