"""Types of the weights and of the KV cache that a checkpoint's config states."""

from collections.abc import Mapping
from typing import Any

from capplan.errors import InputError
from capplan.llm.config_fields import Fields

_COMPRESSED = {
    "float 8": "fp8",
    "float 8 block": "fp8_block",
    "float 4 tensor_group": "nvfp4",
    "int 8": "int8",
    "int 4": "int4",
}
"""Dtypes of compressed-tensors: kind and bits, with a strategy where that matters."""


def _quant_method(quantized: Mapping[str, Any]) -> str:
    """Return who quantized; ModelOpt may say so under ``producer`` alone."""
    producer = quantized.get("producer")
    made_by = producer.get("name") if isinstance(producer, Mapping) else ""
    return str(quantized.get("quant_method") or made_by or "")


def kv_dtype(fields: Fields) -> str:
    """Return the KV dtype that vLLM's ``--kv-cache-dtype auto`` gives a checkpoint.

    16 bits unless a checkpoint of compressed-tensors or ModelOpt states FP8 (vLLM 0.32,
    utils/torch_utils.py, ``get_kv_cache_quant_algo_string``, and the attention layer).
    """
    quantized = fields.get("quantization_config")
    if not isinstance(quantized, Mapping):
        return "bf16"
    method = _quant_method(quantized)
    scheme = quantized.get("kv_cache_scheme") or quantized.get("kv_cache_quant_algo")
    if method not in ("compressed-tensors", "modelopt") or not scheme:
        return "bf16"
    if isinstance(scheme, Mapping):
        scheme = f"{scheme.get('type')}{scheme.get('num_bits')}"
    if str(scheme).lower() in ("fp8", "float8"):
        return "fp8"
    if method == "modelopt" and str(scheme).lower() not in ("nvfp4", "float4"):
        return "bf16"  # vLLM warns, and takes it as not stated
    raise InputError(f"{fields.source}: KV in {scheme} is not known; expected fp8")


def weight_dtype(fields: Fields) -> str:
    """Return the type of the weights that a config states."""
    quantized = fields.get("quantization_config")
    if not isinstance(quantized, Mapping):
        dtype = fields.get("torch_dtype") or fields.get("dtype")
        return "fp16" if str(dtype) == "float16" else "bf16"
    method = _quant_method(quantized)
    if method == "mxfp4":
        return method
    if method in ("fp8", "fbgemm_fp8"):
        return "fp8_block" if quantized.get("weight_block_size") else "fp8"
    algorithm = str(quantized.get("quant_algo"))
    if method == "modelopt" and algorithm in ("FP8", "NVFP4"):
        return algorithm.lower()
    bits = quantized.get("bits")
    if method in ("awq", "gptq") and bits in (4, 8):
        return f"int{bits}"
    groups = quantized.get("config_groups")
    if method == "compressed-tensors" and isinstance(groups, Mapping) and groups:
        weights = next(iter(groups.values())).get("weights") or {}
        numbers = f"{weights.get('type')} {weights.get('num_bits')}"
        if numbers == "int 4" and weights.get("group_size") == 32:
            return "int4_g32"
        exact = f"{numbers} {weights.get('strategy')}"
        if dtype := _COMPRESSED.get(exact) or _COMPRESSED.get(numbers):
            return dtype
    raise InputError(
        f"{fields.source}: quantization {method!r} is not known; expected fp8, awq, "
        "gptq, mxfp4, modelopt (FP8, NVFP4) or compressed-tensors with 8 or 4 bits"
    )
