"""Types of the weights and of the KV cache that a checkpoint's config states."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from capplan.errors import InputError
from capplan.llm.config_fields import NAMES, Fields
from capplan.llm.dtypes import UNQUANTIZED

_DTYPES: Mapping[str, str] = NAMES["dtypes"]
_PARTS = {
    "head": re.compile(r"(^|\.)(lm_)?head\b"),
    "matrix": re.compile(r"shared_expert"),
    "expert": re.compile(r"experts"),
    "mixer": re.compile(
        r"attn(?!.*(norm|index))|mixer\.?\*?$|(in_proj|out_proj|[qkvo]_proj)\w*$"
    ),
    "others": re.compile(r"mlp(?!\.gate\b)|ffn|(up|down|gate_up)_proj"),
}
"""Parts of an LLM by the names of their modules; the first that matches."""


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
    if not method.startswith(("compressed-tensors", "modelopt")) or not scheme:
        return "bf16"
    if isinstance(scheme, Mapping):
        scheme = f"{scheme.get('type')}{scheme.get('num_bits')}"
    if str(scheme).lower() in ("fp8", "float8"):
        return "fp8"
    if method.startswith("modelopt") and str(scheme).lower() not in ("nvfp4", "float4"):
        return "bf16"  # vLLM warns, and takes it as not stated
    raise InputError(f"{fields.source}: KV in {scheme} is not known; expected fp8")


def weight_dtypes(fields: Fields) -> dict[str, str]:
    """Return the types of the weights that a config states.

    Of a checkpoint in several, those of attention, of other matrices and of the head
    beside that of the experts, or of the feed-forwards where there are none.
    """
    quantized = fields.get("quantization_config")
    if not isinstance(quantized, Mapping):
        dtype = fields.get("torch_dtype") or fields.get("dtype")
        return {"weight_dtype": "fp16" if str(dtype) == "float16" else "bf16"}
    plain = UNQUANTIZED[0]
    if parts := _parts(fields, quantized):
        rest = "fp8_block" if quantized.get("weight_block_size") else plain
        mixer, matrix = parts.get("mixer", rest), parts.get("matrix", rest)
        return {
            "weight_dtype": parts.get("expert", matrix),
            "mixer_dtype": mixer,
            "matrix_dtype": matrix,
            "head_dtype": parts.get("head", plain),
        }
    dtype = _weight_dtype(fields, quantized)
    if fields.get("expert_dtype") == "fp4":  # as DeepSeek-V4 has it
        return {"weight_dtype": "mxfp4", "mixer_dtype": dtype, "matrix_dtype": dtype}
    left = quantized.get("ignore") or quantized.get("exclude_modules")
    if not isinstance(left, list) or _quant_method(quantized) == "fp8":
        return {"weight_dtype": dtype}
    # What is left out in half of the layers, or in all at once, is not quantized.
    places: dict[str, set[str]] = {}
    for name in map(str, left):
        if part := _part(name):
            layer = re.search(r"\.(\d+)\.", name)
            places.setdefault(part, set()).add(layer.group(1) if layer else "all")
    half = fields.whole("num_hidden_layers") / 2
    out = {part for part, of in places.items() if "all" in of or len(of) >= half}
    found = {"weight_dtype": dtype, "mixer_dtype": plain if "mixer" in out else dtype}
    return found | ({"matrix_dtype": plain} if "matrix" in out else {})


def _part(name: str) -> str | None:
    part = next((part for part, known in _PARTS.items() if known.search(name)), None)
    return "matrix" if part == "others" else part


def _parts(fields: Fields, quantized: Mapping[str, Any]) -> dict[str, str]:
    """Return the dtype of most modules of each part of a checkpoint in several."""
    groups = quantized.get("config_groups")
    if str(quantized.get("quant_algo")) == "MIXED_PRECISION":
        layers = quantized.get("quantized_layers")
        if not isinstance(layers, Mapping) or not layers:
            raise InputError(
                f"{fields.source}: quant_algo is MIXED_PRECISION, and quantized_layers "
                "does not say of which layers; expected it here or in "
                "hf_quant_config.json beside"
            )
        named = [(name, _dtype(fields, how)) for name, how in layers.items()]
    elif isinstance(groups, Mapping) and len(groups) > 1:
        named = [
            (target, _dtype(fields, group.get("weights")))
            for group in groups.values()
            for target in group.get("targets") or ()
        ]
    else:
        return {}
    counts: dict[str, Counter[str]] = {}
    for name, dtype in named:
        if part := _part(str(name)):
            counts.setdefault(part, Counter())[dtype] += 1
    return {part: of.most_common(1)[0][0] for part, of in counts.items()}


def _dtype(fields: Fields, weights: Any) -> str:
    """Return the dtype of weights as ModelOpt or compressed-tensors describe it."""
    weights = weights if isinstance(weights, Mapping) else {}
    numbers = f"{weights.get('type')} {weights.get('num_bits')}"
    small = f"{numbers} {weights.get('group_size')}"
    exact = f"{numbers} {weights.get('strategy')}"
    said = (weights.get("quant_algo"), small, exact, numbers)
    dtype = next((_DTYPES[str(name)] for name in said if str(name) in _DTYPES), None)
    if dtype is None:
        stated = weights.get("quant_algo") or f"{numbers} bits"
        known = ", ".join(_DTYPES)
        raise InputError(
            f"{fields.source}: weights in {stated} are not known; expected {known}"
        )
    return dtype


def _weight_dtype(fields: Fields, quantized: Mapping[str, Any]) -> str:
    method = _quant_method(quantized)
    if method == "mxfp4":
        return method
    if method in ("fp8", "fbgemm_fp8"):
        return "fp8_block" if quantized.get("weight_block_size") else "fp8"
    if method.startswith("modelopt"):
        return _dtype(fields, quantized)
    bits = quantized.get("bits")
    if method in ("awq", "gptq") and bits in (4, 8):
        return f"int{bits}"
    groups = quantized.get("config_groups")
    if method == "compressed-tensors" and isinstance(groups, Mapping) and groups:
        return _dtype(fields, next(iter(groups.values())).get("weights"))
    raise InputError(
        f"{fields.source}: quantization {method!r} is not known; expected fp8, awq, "
        "gptq, mxfp4, modelopt or compressed-tensors with 8 or 4 bits"
    )
