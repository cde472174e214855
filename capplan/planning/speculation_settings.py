"""Settings of speculative decoding."""

import json
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from capplan.planning.setting_groups import ENGINE, MOST_MS
from capplan.setting_values import parts
from capplan.settings import Settings, setting


def _as_json(value: Any) -> Any:
    """Return a mapping, as a scenario has it, as the flag's text."""
    return json.dumps(value) if isinstance(value, dict) else value


class SpeculationSettings(Settings):
    """Speculative decoding."""

    speculative_config: Annotated[str | None, BeforeValidator(_as_json)] = setting(
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
