"""Settings of LoRA adapters."""

from typing import ClassVar

from capplan.planning.settings.parallel import ENGINE, MOST_MS
from capplan.settings import Settings, setting


class AdapterSettings(Settings):
    """LoRA adapters that an engine serves."""

    needs: ClassVar = dict.fromkeys(
        [
            "max_loras",
            "max_cpu_loras",
            "max_lora_rank",
            "lora_rank",
            "lora_slowdown",
            "lora_load_ms",
            "lora_fetch_ms",
        ],
        "--enable-lora",
    )

    enable_lora: bool = setting(
        False, ENGINE, "", "Serve LoRA adapters: column adapter of a trace."
    )
    max_loras: int | None = setting(
        None, ENGINE, "N", "Most adapters of an iteration (default 1).", ge=1
    )
    max_cpu_loras: int | None = setting(
        None, ENGINE, "N", "Adapters in host memory (default: max_loras).", ge=1
    )
    max_lora_rank: int | None = setting(
        None, ENGINE, "N", "Rank that a slot has room for (default 16).", ge=1
    )
    lora_rank: int | None = setting(
        None, ENGINE, "N", "Rank of the adapters (default: max_lora_rank).", ge=1
    )
    lora_slowdown: float | None = setting(
        None,
        ENGINE,
        "SHARE",
        "Share by which an iteration with an adapter is longer (default 0).",
        ge=0,
        le=100,
    )
    lora_load_ms: float | None = setting(
        None,
        ENGINE,
        "MS",
        "Time to load an adapter from host memory (default: its bytes over the link).",
        ge=0,
        le=MOST_MS,
    )
    lora_fetch_ms: float | None = setting(
        None,
        ENGINE,
        "MS",
        "Time to read an adapter into host memory (default: its bytes at 2 GB/s).",
        ge=0,
        le=MOST_MS,
    )
