"""Points from the kernel times measured by aiconfigurator-core, without a GPU.

It is optional: ``pip install "aiconfigurator-core==0.12.*"``. It sums kernels that were
measured one by one; the time of the CPU, of launches and of the scheduler is not
included, so these profiles are marked ``kernel-sum``. Its table of vLLM's block-FP8
matrix products is wrong in 0.12 (no less than 60 µs on Hopper and 170 µs on Blackwell,
however small the matrix, which is the host's time): models in block FP8 take the
kernels of SGLang. DeepSeek's attention in vLLM is taken as measured whole: the sum of
its parts is up to eight times as long at long contexts.
"""

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import numpy as np

from capplan.engines.catalog import ENGINES, title_of
from capplan.errors import InputError
from capplan.latency.fitted_profile import Identity
from capplan.latency.measurements import Points, points_from_rows

_BATCHES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_CONTEXTS = (128, 512, 1024, 2048, 4096, 8192)
_TOKENS = (128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096, 8192, 16384)
_PREFIXES = (0, 2048, 8192)
_CHUNKS = (128, 512, 2048, 8192)
_BESIDE = (1, 8, 32, 128, 512)

_UNDERCUT = 0.8
"""A larger iteration may take this share of the time of a smaller one: matrix products
change their kernel with the tokens. Below it the smaller one was measured cold."""

_DTYPES = {"bfloat16": "none", "w4a16_mxfp4": "mxfp4", "int4_wo": "int4"}
"""Names of weight types in a profile, where the package calls them otherwise."""

_DEEPSEEK_PRODUCTS = "bfloat16"
_LATENT = ("DEEPSEEK", "KIMIK25")
"""Families with latent attention, by the package's names."""

PREFIX = "aiconfigurator:"
_NUMBERS = ("dp", "ep", "nextn")
_OPTIONS = {"engine", "weights", "a2a", *_NUMBERS}


class Source(NamedTuple):
    """Parts of ``aiconfigurator:SYSTEM/MODEL[@VERSION][?engine=…&weights=…&dp=…]``."""

    system: str
    model: str
    version: str | None
    engine: str = "vllm"  # whose kernels
    weights: str = ""  # type of the weights, where it is not that of the model
    dp: int = 1  # ranks of DP attention
    ep: int = 1  # GPUs that hold different experts
    a2a: str = ""  # all-to-all of the experts; that of the engine when empty
    nextn: int = 0  # tokens that MTP drafts

    @property
    def has_parts(self) -> bool:
        """Whether it is of a layout other than TP alone, whose parts are apart."""
        return (self.dp, self.ep, self.a2a, self.nextn) != (1, 1, "", 0)


def parse_source(text: str) -> Source:
    """Return the parts of ``aiconfigurator:h100_sxm/meta-llama/Meta-Llama-3.1-8B``."""
    place, _, query = text.removeprefix(PREFIX).partition("?")
    system, _, rest = place.partition("/")
    model, _, version = rest.partition("@")
    options = dict(parse_qsl(query, keep_blank_values=True))
    if not system or not model or set(options) - _OPTIONS:
        raise InputError(
            f"{text!r} names no kernels; expected {PREFIX}SYSTEM/MODEL such as "
            f"{PREFIX}h100_sxm/meta-llama/Meta-Llama-3.1-8B, and no options but "
            "?engine=sglang&weights=nvfp4&dp=8&ep=8&a2a=deepep&nextn=1"
        )
    for name in _NUMBERS:
        if name in options and not options[name].isdecimal():
            raise InputError(
                f"{text!r}: {name} is {options[name]!r}; expected a whole number"
            )
    source = Source(
        system,
        model,
        version or None,
        options.get("engine", "vllm"),
        options.get("weights", ""),
        int(options.get("dp", 1)),
        int(options.get("ep", 1)),
        options.get("a2a", ""),
        int(options.get("nextn", 0)),
    )
    if source.engine not in ENGINES:
        raise InputError(
            f"{text!r}: engine is {source.engine!r}; expected {' or '.join(ENGINES)}"
        )
    return source


def read_kernels(source: Source, tp: int, kv_tokens: int | None = None) -> Points:
    """Return prefill, decode and mixed iterations as sums of measured kernels.

    The model is a known name or a folder with a config.json. Iterations that need more
    than ``kv_tokens`` are left out, and those that were measured cold.
    """
    if source.has_parts:
        raise InputError(
            f"{source.model} with dp, ep, a2a or nextn is measured in parts; expected "
            "TP alone"
        )
    handle = _engine(source, tp)
    try:
        points = swept(
            lambda b, context: handle.predict_decode_latency(b, context, 2) / 1e3,
            lambda n, prefix: (
                handle.predict_prefill_latency(1, n + prefix, prefix) / 1e3
            ),
            lambda chunk, b, context: _mixed_ms(handle, chunk, b, context) / 1e3,
        )
    except (RuntimeError, ValueError) as error:
        raise InputError(f"aiconfigurator-core: {error}") from error
    return points.where(points.kv_tokens <= kv_tokens) if kv_tokens else points


def swept(
    decode_s: Callable[[int, int], float],
    prefill_s: Callable[[int, int], float],
    mixed_s: Callable[[int, int, int], float],
) -> Points:
    """Return the iterations that are asked for, but those that were measured cold.

    By batch and context, by tokens and prefix, by chunk, batch and context; contexts
    are before the new token, as the package counts them.
    """
    rows: list[tuple[str, float, float, float, float]] = []
    for batch, context in product(_BATCHES, _CONTEXTS):
        time_s = decode_s(batch, context - 1)
        rows.append(("decode", batch, batch, context, time_s))
    for tokens, prefix in product(_TOKENS, _PREFIXES):
        rows.append(("prefill", 1, tokens, prefix, prefill_s(tokens, prefix)))
    for chunk, batch, context in product(_CHUNKS, _BESIDE, _CONTEXTS):
        time_s = mixed_s(chunk, batch, context - 1)
        rows.append(("mixed", batch, chunk + batch, context, time_s))
    points = points_from_rows(rows)
    return points.where(~cold(points))


def cold(points: Points) -> np.ndarray:
    """Return a mask of the points that a larger iteration undercuts."""
    chunk = np.where(points.phase == 2, points.prefill_tokens, 0.0)
    key = np.column_stack([points.phase, points.context, chunk])
    alike = (key[:, None] == key).all(axis=2)
    larger = points.new_tokens[:, None] < points.new_tokens
    shorter = points.seconds < _UNDERCUT * points.seconds[:, None]
    return (alike & larger & shorter).any(axis=1)


def kernel_identity(source: Source, tp: int, gpu: str, llm: str) -> Identity:
    """Return what the kernels are of: weight and KV types as the package takes them."""
    weights, kv, changed = kernel_dtypes(source, tp)
    of = "" if source.engine == "vllm" else f" of {title_of(source.engine)}"
    kernels = f"measured kernels{of} summed per iteration"
    if changed.get("gemm_quant_mode") == _DEEPSEEK_PRODUCTS:
        kernels += "; matrix products outside the experts as bf16"
    return Identity(
        gpu=gpu,
        llm=llm,
        tp=tp,
        engine=source.engine,
        engine_version=source.version or "",
        quantization=_DTYPES.get(weights, weights),
        kv_dtype=kv,
        source=f"aiconfigurator-core 0.12.0, {kernels}",
        licence="Apache-2.0",
        how="kernel-sum",
    )


def _mixed_ms(handle: Any, chunk: int, batch: int, context: int) -> float:
    """Return shared matrix products, the chunk's attention and that of decode. [ms]

    Attention measured together with its matrix products is counted among these, without
    that of decode: the time by which a decode grows with the context takes its place.
    """
    _, shared_ms, chunk_ms, _ = handle.mixed_step_breakdown(chunk, batch, chunk, 1)
    *_, decode_ms = handle.mixed_step_breakdown(chunk, batch, context, 2)
    if decode_ms == 0:
        least_ms = handle.predict_decode_latency(batch, 1, 2)
        decode_ms = handle.predict_decode_latency(batch, context, 2) - least_ms
    return shared_ms + chunk_ms + max(decode_ms, 0.0)


def check_package() -> None:
    """Refuse a missing package, and another version than the supported one."""
    try:
        from importlib.metadata import version

        import aiconfigurator_core.sdk  # noqa: F401
    except ImportError as error:
        raise InputError(
            'aiconfigurator-core is not installed; pip install "aiconfigurator-core'
            '==0.12.*"'
        ) from error
    installed = version("aiconfigurator-core")
    if not installed.startswith("0.12."):
        raise InputError(
            f"aiconfigurator-core is {installed}; expected 0.12, the supported version"
        )


def _engine(source: Source, tp: int) -> Any:
    check_package()
    from aiconfigurator_core.sdk import EngineHandle

    changed: dict[str, Any] = kernel_dtypes(source, tp)[2]
    try:
        return EngineHandle.compile(
            source.model,
            source.system,
            source.engine,
            backend_version=source.version,
            tp_size=tp,
            moe_tp_size=tp,
            **changed,
        )
    except Exception as error:  # a different type for each kind of unknown name
        raise no_kernels(source, error) from error


def no_kernels(source: Source, error: Exception) -> InputError:
    """Return what to raise where the package has none of a source's kernels."""
    reason = " ".join(str(error).split())[:300]
    return InputError(
        f"aiconfigurator-core has no {title_of(source.engine)} kernels of "
        f"{source.model} on {source.system}: {reason}"
    )


def kernel_dtypes(source: Source, tp: int) -> tuple[str, str, dict[str, str]]:
    """Return types of weights and KV, and what of the package's choice is changed.

    Checkpoints in block FP8 name no type of KV; engines then keep it in 16 bits. Those
    in NVFP4 name FP8. DeepSeek's matrix products outside the experts are, in vLLM,
    those that were measured together with its attention, in 16 bits.
    """
    from aiconfigurator_core.sdk.config import ModelConfig
    from aiconfigurator_core.sdk.models import check_is_moe, get_model, get_model_family

    model = source.model
    settings = ModelConfig(
        tp_size=tp,
        attention_dp_size=source.dp,
        moe_tp_size=tp * source.dp // source.ep,
        moe_ep_size=source.ep,
    )
    try:
        config: Any = get_model(model, settings, source.engine).config
    except (ValueError, AssertionError) as error:  # it asserts some degrees
        reason = " ".join(str(error).split())
        raise InputError(f"{model} at TP {tp}: {reason}") from error
    products, kv = config.gemm_quant_mode.name, config.kvcache_quant_mode.name
    # Type of the experts; of all matrices where there are none.
    weights = source.weights or config.moe_quant_mode.name
    if source.weights:
        kv = {"nvfp4": "fp8", "bfloat16": "bfloat16"}.get(weights, kv)
        changed = {"gemm_quant_mode": weights, "kvcache_quant_mode": kv}
        if check_is_moe(model):
            changed["moe_quant_mode"] = weights
        return weights, kv, changed
    if products == "fp8_block":
        if source.engine == "vllm":
            raise InputError(
                f"{model} is quantized to block FP8, whose table of vLLM in "
                "aiconfigurator-core 0.12 is wrong; add ?engine=sglang"
            )
        kv, attention = "bfloat16", "bfloat16"
        if source.engine == "sglang" and source.a2a:
            kv, attention = "fp8", products  # its attention beside DeepEP
        elif source.engine == "trtllm":
            kv = "fp8"  # as NVIDIA's own checkpoints have it
        return (weights, kv, {"kvcache_quant_mode": kv, "fmha_quant_mode": attention})
    family = get_model_family(model)
    if family == "DEEPSEEK" and source.engine == "vllm":
        changed = {"gemm_quant_mode": _DEEPSEEK_PRODUCTS, "kvcache_quant_mode": kv}
        return weights, kv, changed
    if family in _LATENT and source.engine != "vllm":
        # Their attention was measured with activations in 16 bits alone.
        return weights, kv, {"fmha_quant_mode": "bfloat16", "kvcache_quant_mode": kv}
    return weights, kv, {}
