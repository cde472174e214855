"""Settings of ``capplan fleet``: several LLMs on shared nodes."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator

from capplan.errors import InputError
from capplan.fleet.gpu_file import GpuFileSettings
from capplan.planning.settings.groups import OutputSettings
from capplan.planning.settings.spares import SPARES, RepairSettings, share_or_percent
from capplan.planning.settings.traffic import WORKLOAD
from capplan.setting_values import PathText, parts
from capplan.settings import setting, validated_with
from capplan.units import parse_duration_s

_HOUR_S = 3600.0


def whole_hours(text: str) -> int:
    """Return the hours of a time such as ``9h``; -9h is nine hours earlier.

    Examples
    --------
    >>> whole_hours("9h"), whole_hours("-1h"), whole_hours("0")
    (9, -1, 0)
    """
    bare = text.strip()
    sign = -1 if bare.startswith("-") else 1
    bare = bare.lstrip("-+")
    hours = 0.0 if bare == "0" else parse_duration_s(bare) / _HOUR_S
    if hours != round(hours):
        raise InputError(f"{text!r}: expected whole hours, such as 9h")
    return sign * round(hours)


def _shifts(value: Any) -> Any:
    """Return the times of ``LLM=9h`` texts, by the name of the LLM."""
    if isinstance(value, Mapping):
        return {str(name): str(time) for name, time in value.items()}
    found: dict[str, str] = {}
    for text in value if isinstance(value, list | tuple) else [value]:
        name, equals, time = (part.strip() for part in str(text).rpartition("="))
        if not (equals and name and time):
            raise ValueError(f"{text!r} is no shift; expected LLM=9h")
        if name in found:
            raise ValueError(f"{name} is given twice; expected once")
        found[name] = time
    return found


class SharedFleetSettings(OutputSettings, RepairSettings, GpuFileSettings):
    """Settings of several LLMs on shared nodes."""

    availability: Annotated[float, BeforeValidator(share_or_percent)] = setting(
        0.999,
        SPARES,
        "SHARE",
        "Share of the time in which enough nodes must be up, spares included: 99.9% "
        "(default 99.9%).",
        gt=0,
        lt=1,
    )
    plans: tuple[PathText, ...] = setting(
        (), WORKLOAD, "PLAN...", "plan.json, or a folder with one."
    )
    trace: Annotated[tuple[PathText, ...], BeforeValidator(parts)] = setting(
        (),
        WORKLOAD,
        "FILE",
        "Trace of a plan, recognised by its SHA-256 (default: beside its plan.json).",
        repeated=True,
    )
    shift: Annotated[
        dict[str, Annotated[str, validated_with(whole_hours)]], BeforeValidator(_shifts)
    ] = setting(
        {},
        WORKLOAD,
        "LLM=TIME",
        "Begin the trace of this LLM so many hours later than the others: 9h, -5h "
        "(default: all begin together).",
        repeated=True,
    )
