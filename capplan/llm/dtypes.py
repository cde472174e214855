"""Bytes of a number in the weights and in the KV cache."""

from collections.abc import Mapping

from capplan.errors import InputError

KV_BYTES = {"bf16": 2, "fp16": 2, "fp8": 1}
"""Bytes of one number in the KV cache. [bytes]"""

UNQUANTIZED = ("bf16", "fp16")
"""Types of 16 bits."""

QUANTIZED_BYTES = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,  # a scale per tensor or per channel
    "fp8_block": 1 + 4 / 128**2,  # a 32-bit scale per 128 × 128 block
    "int8": 1.0,
    # A 16-bit scale and a 4-bit zero for each group of 128, as AWQ and GPTQ.
    "int4": (4 + (16 + 4) / 128) / 8,
    # An 8-bit scale for each block of 32 (OCP Microscaling, section 5.3).
    "mxfp4": (4 + 8 / 32) / 8,
    # A 16-bit scale for each group of 32, as Kimi-K2-Thinking.
    "int4_g32": (4 + 16 / 32) / 8,
    # An 8-bit scale for each 16, and one per tensor.
    "nvfp4": (4 + 8 / 16) / 8,
    "nvfp4a16": (4 + 8 / 16) / 8,  # multiplied in 16 bits
    # An 8-bit scale for each 32.
    "mxfp8": 1 + 1 / 32,
}
"""Bytes of one number in a quantized matrix. [bytes]

In mxfp4 and int4_g32 only experts are quantized, where there are any; in nvfp4 latent
attention, and attention beside layers with a state, is not.
"""

_ENGINE_NAMES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
}
"""Names in engines and profiles."""

UNQUANTIZED_BYTES = 2
"""Embeddings, norms, biases and routers stay in 16 bits. [bytes]"""


def weight_dtype_named(dtype: str) -> str:
    """Return the short name of a dtype of weights.

    Examples
    --------
    >>> weight_dtype_named("bfloat16")
    'bf16'
    """
    return _checked(dtype, "weight", QUANTIZED_BYTES)


def check_kv_dtype(dtype: str) -> str:
    """Return the short name of a dtype of the KV cache."""
    return _checked(dtype, "KV", KV_BYTES)


def _checked(dtype: str, of: str, known: Mapping[str, float]) -> str:
    dtype = _ENGINE_NAMES.get(dtype, dtype)
    if dtype not in known:
        raise InputError(
            f"{of} dtype {dtype!r} is unknown; expected {', '.join(known)}"
        )
    return dtype
