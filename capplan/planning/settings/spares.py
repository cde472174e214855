"""Settings of spare nodes: how often nodes fail, for how long, what must stay up."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator

from capplan.fleet.node_failures import FAILURES_PER_1000_NODE_DAYS, REPAIR_H
from capplan.setting_values import Text
from capplan.settings import Settings, setting, validated_with
from capplan.units import parse_duration_s

SPARES = "Spares"


def share_or_percent(value: Any) -> Any:
    """Return the share that ``99.9%`` stands for.

    Examples
    --------
    >>> share_or_percent("99.9%"), share_or_percent(0.99)
    (0.9990000000000001, 0.99)
    """
    text = str(value).strip()
    if not text.endswith("%"):
        return value
    try:
        return float(text[:-1]) / 100
    except ValueError:
        raise ValueError(f"{text!r} is not a share; expected 99.9% or 0.999") from None


class RepairSettings(Settings):
    """How often nodes fail, and for how long."""

    repair: Annotated[Text | None, validated_with(parse_duration_s)] = setting(
        None,
        SPARES,
        "TIME",
        "Time until a failed node serves again (default: 4h, assumed).",
    )
    failures: float | None = setting(
        None,
        SPARES,
        "N",
        "Failures in 1,000 days of a node with 8 GPUs; others fail in proportion "
        f"(default: {FAILURES_PER_1000_NODE_DAYS}, Llama 3's training, all causes).",
        ge=0,
        le=100_000,
    )

    @property
    def repair_h(self) -> float:
        """Time until a failed node serves again. [h]"""
        if self.repair is None:
            return REPAIR_H
        return parse_duration_s(self.repair) / 3600


class SpareNodeSettings(RepairSettings):
    """Whether spare nodes are counted for a plan."""

    needs: ClassVar = dict.fromkeys(("repair", "failures"), "--availability 99.9%")

    availability: Annotated[float | None, BeforeValidator(share_or_percent)] = setting(
        None,
        SPARES,
        "SHARE",
        "Find the spare nodes that keep enough nodes up this share of the time, and "
        "simulate the loss of nodes at the busiest hour: 99.9%.",
        gt=0,
        lt=1,
    )

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield a repair that takes no time."""
        yield from super().contradictions()
        if self.repair is not None and not parse_duration_s(self.repair) > 0:
            yield "repair", f"repair is {self.repair}; expected more than 0, as in 4h"
