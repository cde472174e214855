"""Groups of settings of what happens between replicas, and of how many there are."""

from typing import Annotated, ClassVar

from pydantic import BeforeValidator

from capplan.deployment.changes import parse_absence, parse_loss_per_month
from capplan.deployment.cold_start import parse_cold_start_s
from capplan.planning.settings.groups import METHOD, MOST_REPLICAS
from capplan.setting_values import Text, parts
from capplan.settings import Settings, common, setting, validated_with
from capplan.simulator.autoscalers import AUTOSCALERS
from capplan.simulator.hand_offs import HAND_OFFS
from capplan.simulator.rebalancers import REBALANCERS

DEFAULT_HAND_OFF = "nixl"
COPYING = ("rebalancer", "prefill_replicas", "disaggregated")
"""Settings with which KV is copied between replicas."""

POOLS = "Disaggregated prefill and decode"
MOTION = "Replicas that come and go"


class RebalancerSettings(Settings):
    """Requests that move between replicas."""

    rebalancer: str | None = setting(
        None,
        METHOD,
        "NAME",
        f"Move running requests between replicas: {', '.join(REBALANCERS)}; "
        "llumnix:theta=3,period=50ms.",
    )


class HandOffSettings(Settings):
    """How prompts get from the replicas that compute them to those that decode."""

    hand_off: str | None = setting(
        None,
        POOLS,
        "NAME",
        f"How their KV moves: {', '.join(HAND_OFFS)} (default {DEFAULT_HAND_OFF}).",
    )
    decode_router: str | None = setting(
        None, POOLS, "NAME", "Router of the decode replicas (default: as --router)."
    )
    prefill_gpu: Annotated[tuple[str, ...], BeforeValidator(parts)] = setting(
        (), POOLS, "A,B", "GPU types of the prefill replicas (default: as --gpu)."
    )
    prefill_tp: int | None = setting(
        None,
        POOLS,
        "T",
        "Tensor-parallel degree of the prefill replicas, without ranks of their own "
        "(default: as --tp).",
        ge=1,
    )


class DisaggregationSettings(HandOffSettings):
    """Whether two pools of replicas are planned too."""

    needs: ClassVar = dict.fromkeys(
        (*HandOffSettings.model_fields, "decode_gpu"), "--disaggregated"
    )

    disaggregated: bool = setting(
        False,
        POOLS,
        "",
        "Plan disaggregated prefill and decode too, beside replicas that do both.",
    )
    decode_gpu: Annotated[tuple[str, ...], BeforeValidator(parts)] = setting(
        (),
        POOLS,
        "A,B",
        "GPU types of the decode replicas, of other types than those for prompts too "
        "(default: each type by itself).",
    )


class PoolSettings(HandOffSettings):
    """Two pools of replicas: one for prompts, one for decoding."""

    needs: ClassVar = {
        "prefill_replicas": "--decode-replicas",
        "decode_replicas": "--prefill-replicas",
        **dict.fromkeys(
            HandOffSettings.model_fields, "--prefill-replicas and --decode-replicas"
        ),
    }

    prefill_replicas: int | None = setting(
        None,
        POOLS,
        "P",
        "Replicas for prompts alone; --gpu and --tp are those of both pools, unless "
        "--prefill-gpu and --prefill-tp say otherwise.",
        ge=1,
        le=MOST_REPLICAS,
    )
    decode_replicas: int | None = setting(
        None, POOLS, "D", "Replicas for decoding alone.", ge=1, le=MOST_REPLICAS
    )

    @property
    def is_disaggregated(self) -> bool:
        """Whether prompts are computed on other replicas than those that decode."""
        return self.prefill_replicas is not None


class OrderSettings(Settings):
    """How long a replica takes to come, and how often its cloud takes one back."""

    cold_start: Annotated[Text | None, validated_with(parse_cold_start_s)] = common(
        None,
        MOTION,
        "TIME",
        "From the order of a replica to its first request (default: assumed). "
        "Node, image, weights and engine.",
    )
    spot: Annotated[Text | None, validated_with(parse_loss_per_month)] = setting(
        None,
        MOTION,
        "SHARE/month",
        "Interruptions of each replica by its cloud: 15%/month.",
    )


class LossSettings(OrderSettings):
    """Replicas that are away for a time, and how long others take to come."""

    outage: Annotated[
        tuple[Annotated[str, validated_with(parse_absence)], ...],
        BeforeValidator(parts),
    ] = common(
        (),
        MOTION,
        "N@WHEN:TIME",
        "Replicas or nodes that die: 2@peak:4h, 1@8h:30m, 1node@peak:4h.",
        repeated=True,
    )
    rolling_update: Annotated[Text | None, validated_with(parse_absence)] = setting(
        None,
        MOTION,
        "TIME",
        "Update all replicas one after another, each away so long: 10m, 2@8h:10m.",
    )


class LifeSettings(LossSettings):
    """Replicas that come and go."""

    needs: ClassVar = {"cold_start": "--autoscaler or --spot"}

    autoscaler: str | None = setting(
        None,
        MOTION,
        "NAME",
        f"Decides how many replicas there are: {', '.join(AUTOSCALERS)}; "
        "ray:target=20,max=16.",
    )

    @property
    def changes_replicas(self) -> bool:
        """Whether replicas come or go."""
        losses = (self.outage, self.rolling_update, self.spot)
        return bool(self.autoscaler) or any(losses)
