"""Settings of ``capplan compare``."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator

from capplan.planning.setting_groups import (
    CHOICES,
    METHOD,
    MOST_REPLICAS,
    ExecutorSettings,
    OutputSettings,
)
from capplan.planning.settings import FleetSettings
from capplan.planning.systems import SYSTEMS, check_system
from capplan.planning.traffic_settings import (
    WORKLOAD,
    Rate,
    TrafficSettings,
    UserSettings,
)
from capplan.setting_values import parts
from capplan.settings import SettingError, setting, validated_with


def _systems(value: Any) -> Any:
    """Return the systems of ``A,B:x=1,y=2``: two, the second with two settings."""
    if isinstance(value, Mapping):
        raise ValueError("expected a list such as [sarathi, orca:max_len=4096]")
    systems: list[Any] = []
    for part in parts(value):
        is_setting = isinstance(part, str) and "=" in part and ":" not in part
        if is_setting and systems and ":" in systems[-1]:
            systems[-1] += f",{part}"
        else:
            systems.append(part)
    if not systems:
        raise ValueError("is empty; expected systems, or leave it out for all")
    return tuple(dict.fromkeys(systems))


def _check_systems(value: tuple[str, ...]) -> None:
    for system in value:
        check_system(system)


class CompareSettings(
    OutputSettings, ExecutorSettings, FleetSettings, UserSettings, TrafficSettings
):
    """Settings of a comparison of serving systems."""

    systems: Annotated[
        tuple[str, ...], BeforeValidator(_systems), validated_with(_check_systems)
    ] = setting(
        (),
        METHOD,
        "A,B",
        f"Systems: {', '.join(SYSTEMS)} (default: all); or schedulers with settings: "
        "orca:max_len=4096.",
    )
    published: bool = setting(
        False,
        METHOD,
        "",
        "Seats and token budgets as published (default: the same, and tuned).",
    )
    max_model_len: int | None = setting(
        None,
        METHOD,
        "N",
        "Longest request of systems that reserve room for one or do not cut prompts "
        "(default: all but a tenth of those that may miss).",
        ge=1,
    )
    replicas: int | None = setting(
        None,
        CHOICES,
        "N",
        "Replicas on which all are compared (default: what the first system needs).",
        ge=1,
        le=MOST_REPLICAS,
    )
    rates: Annotated[tuple[Rate, ...], BeforeValidator(parts)] = setting(
        (),
        WORKLOAD,
        "R,R",
        "Arrival rates of the curves, requests/s (default: near what each holds).",
    )

    def __init__(self, **values: Any) -> None:
        """Refuse settings that contradict each other."""
        super().__init__(**values)
        if self.users is not None and self.rates:
            raise SettingError(
                "rates",
                "users and rates are both given; the curves of users are about the "
                "most that each system holds, expected no rates",
            )
