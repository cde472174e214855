"""LoRA adapters of the settings, and what they cost."""

from dataclasses import replace

from capplan.deployment.adapters import Adapters
from capplan.deployment.cold_start import LOAD_BYTES_PER_S
from capplan.deployment.engine import EngineSettings
from capplan.errors import InputError, warn
from capplan.fleet.gpu import Gpu
from capplan.latency.roofline import efficiency_of
from capplan.llm.adapters import check_adapters, slot_bytes
from capplan.llm.architecture import Architecture
from capplan.llm.pipeline import stage_llms
from capplan.planning.settings.asked import Asked

_RANK = 16


def with_adapters(
    engine: EngineSettings,
    settings: Asked,
    llm: Architecture | None,
    gpu: Gpu | None,
    tp: int,
    stages: int,
) -> EngineSettings:
    """Return an engine with the LoRA adapters of the settings.

    An adapter is loaded from host memory over each GPU's link, and read into host
    memory as weights are at a cold start. In an iteration its matrices are read once;
    where iteration times are given, they have that. A stage has those of its layers.
    """
    if not settings.enable_lora:
        return engine
    max_rank = settings.max_lora_rank or _RANK
    rank = settings.lora_rank or max_rank
    slots = settings.max_loras or 1
    adapters = Adapters(
        max_loras=slots,
        max_cpu_loras=settings.max_cpu_loras or slots,
        max_lora_rank=max_rank,
        lora_rank=rank,
        slowdown=settings.lora_slowdown or 0.0,
    )
    if settings.lora_slowdown is None:
        warn(
            "--lora-slowdown is not given: iterations are assumed longer only by the "
            "time to read adapters; measured engines are slower"
        )
    if llm is not None:
        check_adapters(llm)
        part = max(stage_llms(llm, stages), key=lambda part: part.layers)
        adapters = replace(
            adapters,
            slot_bytes=slot_bytes(part, tp, max_rank),
            load_s=slot_bytes(part, tp, rank) / (engine.link_gb_per_s * 1e9),
            fetch_s=slot_bytes(llm, 1, rank) / LOAD_BYTES_PER_S,
        )
        if gpu is not None and settings.latency_ms is None:
            rate = gpu.bandwidth_bytes_per_s * efficiency_of(gpu).bandwidth
            adapters = replace(adapters, read_s=slot_bytes(llm, tp, rank) / rate)
    elif settings.lora_load_ms is None or settings.lora_fetch_ms is None:
        raise InputError(
            "no LLM, so that the bytes of an adapter are not known; give "
            "--lora-load-ms and --lora-fetch-ms"
        )
    for name in ("load", "fetch"):
        given_ms = getattr(settings, f"lora_{name}_ms")
        if given_ms is not None:
            adapters = replace(adapters, **{f"{name}_s": given_ms / 1e3})
    return replace(engine, adapters=adapters)
