"""Settings of how the GPUs of a replica share its work."""

from capplan.settings import Settings, setting

ENGINE = "Engine (vLLM's names)"


class ParallelSettings(Settings):
    """How the GPUs of a replica share its work, beside tensor parallelism."""

    pipeline_parallel_size: int | None = setting(
        None,
        ENGINE,
        "N",
        "Stages of so many GPUs as TP that hold the layers one after the other "
        "(default 1).",
        ge=1,
        le=64,
    )
    decode_context_parallel_size: int | None = setting(
        None,
        ENGINE,
        "N",
        "GPUs of a TP group among which the KV of a request is split (default 1).",
        ge=1,
        le=1024,
    )
