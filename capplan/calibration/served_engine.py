"""Settings of the engine behind a served run, where the file does not say them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from capplan.deployment.engine import EngineSettings, default_engine_settings
from capplan.deployment.replica import replica
from capplan.errors import InputError, warn
from capplan.fleet.catalog import gpu as find_gpu
from capplan.latency.fitted_profile import Identity
from capplan.llm.catalog import llm as find_llm
from capplan.llm.dtypes import weight_dtype_named
from capplan.llm.layout import Layout


def served_engine(
    identity: Identity, given: Mapping[str, int | bool]
) -> tuple[EngineSettings, str]:
    """Return the engine's settings, and how its number of KV blocks was obtained.

    Others default to those of ``vllm serve`` on the GPU, with prefix caching on; KV
    blocks are estimated from LLM, GPU and TP degree, with a warning.
    """
    settings: dict[str, Any] = {"prefix_caching": True, **given}
    try:
        engine = default_engine_settings(find_gpu(identity.gpu), **settings)
    except InputError as error:
        missing = {"max_num_batched_tokens", "max_num_seqs"} - settings.keys()
        if missing:
            flags = " and ".join(f"--{n.replace('_', '-')}" for n in sorted(missing))
            raise InputError(
                f"{error}; the defaults of vllm serve are known for GPUs of the "
                f"catalog only: give {flags}"
            ) from None
        engine = EngineSettings(**settings)
    if "kv_blocks" in given:
        return engine, "given"
    if identity.kv_tokens is not None:
        blocks = identity.kv_tokens // engine.block_size
        return replace(engine, kv_blocks=blocks), "given as tokens"
    return replace(engine, kv_blocks=_estimated_blocks(identity, engine)), "estimated"


def _estimated_blocks(identity: Identity, engine: EngineSettings) -> int:
    try:
        gpu, llm = find_gpu(identity.gpu), find_llm(identity.llm)
    except InputError as error:
        raise InputError(
            f"{error}; the number of KV blocks cannot be estimated: give --kv-blocks "
            "or --kv-tokens as the engine logged it"
        ) from None
    if identity.quantization != "none":
        llm = replace(llm, weight_dtype=weight_dtype_named(identity.quantization))
    blocks = replica(
        llm,
        gpu,
        Layout(identity.tp),
        engine,
        kv_dtype="fp8" if identity.kv_dtype.startswith("fp8") else "bf16",
    ).engine.kv_blocks
    warn(
        f"--kv-blocks is not given: {blocks:,} of {engine.block_size} tokens are "
        f"estimated for {llm.name} on {gpu.name}, TP {identity.tp}; the engine's log "
        "states the exact number"
    )
    return blocks
