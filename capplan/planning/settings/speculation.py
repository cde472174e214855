"""Settings of speculative decoding."""

from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field

from capplan.planning.settings.engine import ENGINE, MOST_MS
from capplan.setting_values import as_json, parts
from capplan.settings import Settings, setting


class SpeculationSettings(Settings):
    """Speculative decoding."""

    needs: ClassVar = dict.fromkeys(
        ("acceptance_rates", "draft_ms"), "--speculative-config"
    )

    speculative_config: Annotated[str | None, BeforeValidator(as_json)] = setting(
        None,
        ENGINE,
        "JSON",
        'Drafts as vLLM takes them: {"method":"mtp","num_speculative_tokens":3}; '
        "a plan without the number tries 0 to 3.",
    )
    acceptance_rates: Annotated[
        tuple[Annotated[float, Field(allow_inf_nan=False)], ...] | None,
        BeforeValidator(parts),
    ] = setting(
        None,
        ENGINE,
        "R1,R2",
        "How often the first drafted token, the first two, ... are all accepted "
        "(default: as measured of the LLM's family).",
    )
    draft_ms: float | None = setting(
        None,
        ENGINE,
        "MS",
        "Time of each drafted token in an iteration (default: by its weights).",
        ge=0,
        le=MOST_MS,
    )
