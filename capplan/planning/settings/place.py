"""Settings of ``capplan place``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from capplan.errors import InputError
from capplan.planning.settings.groups import (
    OUTPUT,
    ConfigurationSettings,
    OutputSettings,
)
from capplan.planning.settings.traffic import LimitSettings, TrafficSettings
from capplan.setting_values import PathText
from capplan.settings import common, setting, validated_with
from capplan.units import parse_duration_s

PLACEMENT = "Placement"


def _moment_s(text: str) -> float | None:
    """Return the time since the first arrival; None for the peak heartbeat. [s]"""
    return None if text == "peak" else parse_duration_s(text)


def _check_export(path: str) -> None:
    """Refuse a file of a form that is not written."""
    suffix = Path(path).suffix
    if suffix not in (".lp", ".mps", ".json", ".csv"):
        raise InputError(
            f"{path}: suffix is {suffix!r}; expected .lp, .mps, .json or .csv"
        )


class PlaceSettings(
    OutputSettings, ConfigurationSettings, LimitSettings, TrafficSettings
):
    """Settings of the placement of one heartbeat."""

    snapshot: PathText | None = common(
        None,
        PLACEMENT,
        "SNAPSHOT",
        "State of a fleet, .json or .csv; or give --trace or --workload.",
    )
    at: Annotated[str, validated_with(_moment_s)] = common(
        "peak", PLACEMENT, "TIME", "Heartbeat of the trace: peak, or a time as 3600s."
    )
    heartbeat: Annotated[str, validated_with(parse_duration_s)] = common(
        "1s", PLACEMENT, "TIME", "Requests that arrive within it are placed together."
    )
    gamma: float | None = setting(
        None,
        PLACEMENT,
        "G",
        "Share of the output that counts as context (default 0.5).",
    )
    theta: float | None = setting(
        None, PLACEMENT, "T", "Share of the decode limits to use (default 0.9)."
    )
    max_replicas: int | None = common(
        None, PLACEMENT, "N", "Most replicas to use; as many as needed if absent."
    )
    solver: str = common(
        "cp-sat", PLACEMENT, "NAME", "cp-sat, scip, highs, or a heuristic: best-fit."
    )
    time_limit: Annotated[str, validated_with(parse_duration_s)] = setting(
        "60s", PLACEMENT, "TIME", "Longest time to search; then the best so far counts."
    )
    out: PathText | None = setting(
        None,
        OUTPUT,
        "DIR",
        "Write the placement as JSON, CSV, HTML and Markdown.",
        flags=("-o", "--out"),
    )
    export: Annotated[PathText | None, validated_with(_check_export)] = setting(
        None, OUTPUT, "FILE", "Write the model (.lp, .mps) or snapshot (.json, .csv)."
    )

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield settings beside a snapshot that have no effect."""
        yield from super().contradictions()
        if self.snapshot is None:
            return
        without = {*TrafficSettings.model_fields, "at", "heartbeat"} - {"seed"}
        for name in sorted(without & self.model_fields_set):
            yield name, f"{name} has no effect with a snapshot"
        if self.llm is None and self.latency_ms is None:
            where = "with a snapshot without llm or latency_ms"
            without = {*ConfigurationSettings.model_fields}
            for name in sorted(without & self.model_fields_set):
                yield name, f"{name} has no effect {where}"

    @property
    def at_s(self) -> float | None:
        """Time since the first arrival; None for the peak heartbeat. [s]"""
        return _moment_s(self.at)

    @property
    def heartbeat_s(self) -> float:
        """Time between placements. [s]"""
        return parse_duration_s(self.heartbeat)

    @property
    def time_limit_s(self) -> float:
        """Longest time to search. [s]"""
        return parse_duration_s(self.time_limit)
