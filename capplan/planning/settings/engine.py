"""Settings of an engine: how GPUs share its work, its LoRA adapters and images."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from capplan.deployment.tier import parse_size, parse_tier
from capplan.llm.image_limit import parse_image_limit
from capplan.setting_values import Text, parts
from capplan.settings import Settings, parsed_with, setting, validated_with

ENGINE = "Engine (vLLM's names)"

MOST_MS = 1e6
"""Time that may be given in milliseconds: some minutes. [ms]"""


class InputSettings(Settings):
    """LoRA adapters that an engine serves, and images that it encodes."""

    needs: ClassVar = dict.fromkeys(
        ("mm_encoder_tp_mode", "disable_chunked_mm_input", "image_encode_ms"),
        "--limit-mm-per-prompt",
    ) | dict.fromkeys(
        (
            *("max_loras", "max_cpu_loras", "max_lora_rank", "lora_rank"),
            *("lora_slowdown", "lora_load_ms", "lora_fetch_ms"),
        ),
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
    limit_mm_per_prompt: Annotated[str | None, validated_with(parse_image_limit)] = (
        setting(
            None,
            ENGINE,
            "JSON",
            "Serve images, at most so many a request, as '{\"image\": 4}': columns "
            "image_tokens, images and image_offset of a trace.",
        )
    )
    mm_encoder_tp_mode: Literal["weights", "data"] | None = setting(
        None,
        ENGINE,
        "MODE",
        "Whether GPUs of a replica split the encoder or the images (default weights).",
    )
    disable_chunked_mm_input: bool = setting(
        False, ENGINE, "", "Never end a chunk of a prompt in an image."
    )
    image_encode_ms: float | None = setting(
        None,
        ENGINE,
        "MS",
        "Time to encode an image, as measured (default: estimated from its tokens).",
        ge=0,
        le=MOST_MS,
    )


class TierSettings(Settings):
    """Host memory that keeps KV of prompts."""

    tier: Annotated[str | None, validated_with(parse_tier)] = setting(
        None,
        ENGINE,
        "NAME:KEY=VALUE,..",
        "Host memory that keeps KV of prompts: vllm-native@0.33:gib=64,read=50GB/s,"
        "write=50GB/s, or chunks=N,load_block=TIME,store_block=TIME; "
        "blocks_per_chunk, answers=1, latency.",
    )
    kv_offloading_size: Annotated[Text | None, parsed_with(parse_size)] = setting(
        None,
        ENGINE,
        "GIB",
        "Host memory for KV, of all GPUs of a replica (default: none); 50% of what is "
        "free, which is 75 % of a node's. A plan finds the cheapest with auto.",
    )
    tier_price: float | None = setting(
        None,
        ENGINE,
        "USD",
        "What a GiB of host memory costs a month, beyond what is free.",
        ge=0,
    )

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield a price of memory that nothing is put into."""
        yield from super().contradictions()
        if self.tier_price is not None and not (self.tier or self.kv_offloading_size):
            yield "tier_price", "tier_price has no tier; give --kv-offloading-size"


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
