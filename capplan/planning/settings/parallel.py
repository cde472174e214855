"""Settings of how the GPUs of a replica share its work."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from capplan.setting_values import parts
from capplan.settings import Settings, setting

ENGINE = "Engine (vLLM's names)"

MOST_MS = 1e6
"""Time that may be given in milliseconds: some minutes. [ms]"""


class ParallelSettings(Settings):
    """How the GPUs of a replica share its work, beside tensor parallelism."""

    pipeline_parallel_size: Annotated[
        tuple[Annotated[int, Field(ge=1, le=64)], ...], BeforeValidator(parts)
    ] = setting(
        (),
        ENGINE,
        "1,2",
        "Pipeline stages to compare; each has TP GPUs and a part of the layers "
        "(default: 1; without --tp, where nothing of a GPU type holds the LLM, the "
        "fewest of 2, 4 and 8 that do).",
    )
    decode_context_parallel_size: int | None = setting(
        None,
        ENGINE,
        "N",
        "GPUs of a TP group among which the KV of a request is split (default 1).",
        ge=1,
        le=1024,
    )

    @property
    def has_stages(self) -> bool:
        """Whether more than one stage is asked for."""
        return any(stages > 1 for stages in self.pipeline_parallel_size)
