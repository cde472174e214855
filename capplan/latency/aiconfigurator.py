"""Points from the kernel times measured by aiconfigurator-core, without a GPU.

It is optional: ``pip install "aiconfigurator-core==0.12.*"``. It sums kernels that were
measured one by one; the time of the CPU, of launches and of the scheduler is not
included, so these profiles are marked ``kernel-sum``. Its table of block-FP8 matrix
products is wrong in 0.12 (times fall where tokens grow), so such models are refused.
"""

from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from capplan.errors import InputError
from capplan.latency.measurements import Points, points_from_rows

_BATCHES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_CONTEXTS = (128, 512, 1024, 2048, 4096, 8192)
_TOKENS = (128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096, 8192, 16384)
_PREFIXES = (0, 2048, 8192)
_CHUNKS = (128, 512, 2048, 8192)
_BESIDE = (1, 8, 32, 128, 512)

PREFIX = "aiconfigurator:"


class Source(NamedTuple):
    """Parts of ``aiconfigurator:SYSTEM/MODEL[@VERSION]``."""

    system: str
    model: str
    version: str | None


def parse_source(text: str) -> Source:
    """Return the parts of ``aiconfigurator:h100_sxm/meta-llama/Meta-Llama-3.1-8B``."""
    system, _, rest = text.removeprefix(PREFIX).partition("/")
    model, _, version = rest.partition("@")
    if not system or not model:
        raise InputError(
            f"{text!r} names no kernels; expected {PREFIX}SYSTEM/MODEL such as "
            f"{PREFIX}h100_sxm/meta-llama/Meta-Llama-3.1-8B"
        )
    return Source(system, model, version or None)


def read_kernels(source: Source, tp: int, kv_tokens: int | None = None) -> Points:
    """Return prefill, decode and mixed iterations as sums of measured kernels.

    The model is a known name or a folder with a config.json. Iterations that need more
    than ``kv_tokens`` are left out.
    """
    handle = _engine(source, tp)
    rows: list[tuple[str, float, float, float, float]] = []
    try:
        for batch, context in product(_BATCHES, _CONTEXTS):
            # The package counts the context before the new token.
            time_ms = handle.predict_decode_latency(batch, context - 1, 2)
            rows.append(("decode", batch, batch, context, time_ms / 1e3))
        for tokens, prefix in product(_TOKENS, _PREFIXES):
            time_ms = handle.predict_prefill_latency(1, tokens + prefix, prefix)
            rows.append(("prefill", 1, tokens, prefix, time_ms / 1e3))
        for chunk, batch, context in product(_CHUNKS, _BESIDE, _CONTEXTS):
            time_ms = _mixed_ms(handle, chunk, batch, context)
            rows.append(("mixed", batch, chunk + batch, context, time_ms / 1e3))
    except ValueError as error:
        raise InputError(f"aiconfigurator-core: {error}") from error
    points = points_from_rows(rows)
    return points.where(points.kv_tokens <= kv_tokens) if kv_tokens else points


def _mixed_ms(handle: Any, chunk: int, batch: int, context: int) -> float:
    """Return shared matrix products, the chunk's attention and that of decode. [ms]"""
    _, shared_ms, chunk_ms, _ = handle.mixed_step_breakdown(chunk, batch, chunk, 1)
    *_, decode_ms = handle.mixed_step_breakdown(chunk, batch, context - 1, 2)
    return shared_ms + chunk_ms + decode_ms


def _engine(source: Source, tp: int) -> Any:
    try:
        from importlib.metadata import version

        from aiconfigurator_core.sdk import EngineHandle
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
    _refuse_block_fp8(source.model)
    try:
        return EngineHandle.compile(
            source.model,
            source.system,
            "vllm",
            backend_version=source.version,
            tp_size=tp,
            moe_tp_size=tp,
        )
    except Exception as error:  # a different type for each kind of unknown name
        reason = " ".join(str(error).split())[:300]
        raise InputError(
            f"aiconfigurator-core has no vLLM kernels of {source.model} on "
            f"{source.system}: {reason}"
        ) from error


def _refuse_block_fp8(model: str) -> None:
    """Refuse a model whose name or config.json says block-FP8."""
    config = Path(model) / "config.json"
    settings = config.read_text(encoding="utf-8") if config.is_file() else ""
    if "weight_block_size" in settings or model.rstrip("/").upper().endswith("-FP8"):
        raise InputError(
            f"{model} is quantized to block-FP8, whose table in aiconfigurator-core "
            "0.12 is wrong; measure it with capplan profile"
        )
