"""Roofline estimate of iteration times, from the LLM's shapes and GPU data sheets.

An iteration takes the longer of reading the weights its tokens touch and multiplying
with them; attention reads the KV of decoding requests and multiplies for the prefill;
tensor parallelism adds two all-reduces per layer. The shares of the data sheet rates
that kernels reach were fitted by least squares to the shipped profiles (see
docs/internals/latency.md); the residuals give the error band.
"""

from typing import NamedTuple

import numpy as np

from capplan.errors import ProfileError
from capplan.fleet.gpu import Gpu
from capplan.latency.profile import ErrorRecord, Profile
from capplan.latency.terms import DecodeTerms, FusedTerms
from capplan.llm.architecture import Architecture


class Efficiency(NamedTuple):
    """Shares of data sheet rates that kernels reach, and fixed times per layer."""

    bandwidth: float  # of the memory bandwidth, reading weights
    arithmetic: float  # of the dense tensor-core rate, multiplying with weights
    kv_bandwidth: float  # of the memory bandwidth, reading KV
    attention: float  # of the dense tensor-core rate, in prefill attention
    link: float  # of the NVLink bandwidth in one direction, in an all-reduce
    layer_s: float  # time of the small kernels of a layer [s]
    all_reduce_s: float  # latency of one all-reduce [s]
    fp4: float = 1.0  # of the dense FP4 rate, multiplying with NVFP4 weights
    quantize_s: float = 0.0  # of quantizing a layer's activations to FP4 [s]


KERNELS = Efficiency(0.71, 0.75, 0.79, 0.44, 0.41, 48e-6, 4.6e-6)
"""Fitted to kernel sums of eight LLMs on A100, H100 and H200 at TP 1 to 8."""

_CDNA = KERNELS._replace(arithmetic=0.3, kv_bandwidth=0.53, attention=0.22)
"""Nearest to load tests of engines on MI300X, MI325X and MI355X, of which no kernels
were measured: prompts and long contexts take more than on NVIDIA's GPUs."""

_NEWER = {
    "Ada": KERNELS._replace(bandwidth=0.82, arithmetic=0.6, layer_s=34e-6),
    "Hopper": KERNELS._replace(bandwidth=0.82, arithmetic=0.75, layer_s=34e-6),
    "Blackwell": KERNELS._replace(
        bandwidth=0.82, arithmetic=0.55, layer_s=40e-6, fp4=0.3, quantize_s=15e-6
    ),
    "Blackwell GDDR": KERNELS._replace(fp4=0.55),
    "CDNA 3": _CDNA,
    "CDNA 4": _CDNA,
}
"""Fitted to kernel sums of dense LLMs on L40S; H100, H200; B200, GB200.

What NVFP4 needs, to those of three LLMs on B200, B300, GB200, GB300; RTX PRO 6000.
"""

SIGMA = {"prefill": 0.17, "decode": 0.16, "mixed": 0.17}
"""Root mean square of the relative error on the profiles fitted to."""

SIGMA_FP8 = {"prefill": 0.14, "decode": 0.21, "mixed": 0.30}
"""The same for FP8 weights, which were not in the fit."""

_LONG_WINDOW = 2048
"""Beyond it, most contexts are taken to lie within the window. [tokens]"""

_BATCH = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024]
TOKENS = [1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536]
TOKENS += [2048, 3072, 4096, 6144, 8192, 12288, 16384]


def efficiency_of(gpu: Gpu) -> Efficiency:
    """Return what kernels reach on a GPU's architecture, or on most."""
    return _NEWER.get(gpu.architecture, KERNELS)


def roofline_terms(
    llm: Architecture,
    gpu: Gpu,
    tp: int,
    *,
    weight_dtype: str | None = None,
    efficiency: Efficiency | None = None,
) -> tuple[DecodeTerms, FusedTerms]:
    """Return decode and fused terms estimated from data sheets.

    ``weight_dtype`` is as published when None, ``efficiency`` that of the GPU's
    architecture.
    """
    dtype = weight_dtype or llm.weight_dtype
    efficiency = efficiency or efficiency_of(gpu)
    kv_bytes_per_s = gpu.bandwidth_bytes_per_s * efficiency.kv_bandwidth
    context_s, request_s = (read / kv_bytes_per_s for read in _read_bytes(llm, tp))
    # Beyond the window, only layers with full attention work on a longer context.
    window = 0 if _grows(llm) else llm.window
    at_window = llm.flops_per_token(window)
    pair_flops = llm.flops_per_token(window + 1) - at_window
    token_flops = at_window - llm.flops_per_token(0) - window * pair_flops
    attention_flops_per_s = tp * dense_flops_per_s(gpu, "bf16") * efficiency.attention
    decode = DecodeTerms(
        per_request_s=request_s,
        batch=_BATCH,
        batch_s=_linear_s(llm, gpu, tp, _BATCH, dtype, efficiency).tolist(),
        per_context_s=context_s,
    )
    fused = FusedTerms(
        per_token_s=token_flops / attention_flops_per_s,
        per_request_s=request_s,
        tokens=TOKENS,
        tokens_s=_linear_s(llm, gpu, tp, TOKENS, dtype, efficiency).tolist(),
        per_context_s=context_s,
        attention_s=pair_flops / attention_flops_per_s,
    )
    return decode, fused


def _grows(llm: Architecture) -> bool:
    """Return whether layers with a window read as if they had none.

    So they do in a context within the window, and where it is long, most contexts are.
    """
    return (
        llm.sliding_window > _LONG_WINDOW or llm.sliding_layers == llm.attention_layers
    )


def _read_bytes(llm: Architecture, tp: int) -> tuple[float, float]:
    """Return the KV that a decode reads on each GPU. [bytes]

    Per token of context; and per request: windows, and states read and written.
    """
    if llm.compressed is not None:
        return llm.compressed.read_bytes("bf16")
    layer_bytes = llm.layer_kv_bytes_per_gpu(tp)
    if _grows(llm):
        return float(llm.attention_layers * layer_bytes), 0.0
    windowed_bytes = llm.layer_kv_bytes_per_gpu(tp, windowed=True)
    context_bytes = llm.kv_bytes_per_token_per_gpu(tp)
    request_bytes = llm.sliding_layers * llm.sliding_window * windowed_bytes
    if llm.index is not None:
        sparse_bytes = llm.index.sparse_layers * layer_bytes
        context_bytes -= sparse_bytes
        request_bytes += sparse_bytes * llm.index.topk
    if llm.state is not None:
        state_bytes = llm.state.state_bytes_per_gpu(tp)
        request_bytes += 2 * llm.state_layers * state_bytes
    return float(context_bytes), float(request_bytes)


def _linear_s(
    llm: Architecture,
    gpu: Gpu,
    tp: int,
    tokens: list[int],
    dtype: str,
    efficiency: Efficiency,
) -> np.ndarray:
    """Return the time of everything but attention, by tokens of the iteration. [s]"""
    n = np.asarray(tokens, np.float64)
    all_bytes = float(llm.weight_bytes_per_gpu(tp, dtype))
    read = np.full(n.shape, all_bytes)
    if llm.experts:
        one_expert = (3 if llm.gated else 2) * llm.routed_hidden * llm.expert_ffn
        parameters = llm.expert_layers * llm.experts * one_expert
        expert_bytes = all_bytes * min(parameters / llm.parameter_count, 1.0)
        # Share of the experts that n tokens touch, each choosing at random.
        touched = -np.expm1(n * np.log1p(-llm.experts_per_token / llm.experts))
        read = all_bytes - expert_bytes * (1 - touched)
    read_s = read / (gpu.bandwidth_bytes_per_s * efficiency.bandwidth)
    multiply_s = n * _token_s(llm, gpu, dtype, efficiency) / tp
    fixed_s = _fixed_s(llm, gpu, tp, n, efficiency)
    if _multiplies_fp4(gpu, dtype):
        fixed_s = fixed_s + llm.layers * efficiency.quantize_s
    return np.maximum(read_s, multiply_s) + fixed_s


def _token_s(llm: Architecture, gpu: Gpu, dtype: str, efficiency: Efficiency) -> float:
    """Return the time to multiply one token with its weights on one GPU. [s]

    In NVFP4 the matrices that stay in 16 bits, the output embedding among them, have
    the rate of 16 bits; FP8 is taken as if it held for all.
    """
    flops = 2.0 * llm.active_parameter_count
    time_s = flops / (dense_flops_per_s(gpu, dtype) * efficiency.arithmetic)
    if not _multiplies_fp4(gpu, dtype):
        return time_s
    fp4_flops = 2.0 * llm.active_quantized_count(dtype)
    fp4_s = fp4_flops / ((gpu.fp4_flops or np.inf) * efficiency.fp4)
    return time_s * (1 - fp4_flops / flops) + fp4_s


def _fixed_s(
    llm: Architecture, gpu: Gpu, tp: int, tokens: np.ndarray, efficiency: Efficiency
) -> np.ndarray:
    """Return the time of small kernels and all-reduces. [s]

    The bytes all-reduced grow as (N − 1)/N (Aladdin, section 4.1). An infinite link
    leaves them out.
    """
    fixed_s = np.full(tokens.shape, llm.layers * efficiency.layer_s)
    if tp == 1:
        return fixed_s
    link = link_bytes_per_s(gpu, tp, efficiency)
    reduced_bytes = tokens * llm.hidden * 2
    all_reduce_s = efficiency.all_reduce_s + 2 * (tp - 1) / tp * reduced_bytes / link
    return fixed_s + 2 * llm.layers * all_reduce_s


def link_bytes_per_s(gpu: Gpu, tp: int, efficiency: Efficiency) -> float:
    """Return the rate of an all-reduce among the GPUs of a replica. [bytes/s]"""
    if gpu.nvlink_bytes_per_s_per_direction:
        return gpu.nvlink_bytes_per_s_per_direction * efficiency.link
    return np.inf if np.isinf(efficiency.link) else gpu.pcie_bytes_per_s(tp)


def _multiplies_fp4(gpu: Gpu, weight_dtype: str) -> bool:
    """Return whether a GPU multiplies NVFP4 weights as they are."""
    return weight_dtype == "nvfp4" and gpu.fp4_flops is not None


def dense_flops_per_s(gpu: Gpu, weight_dtype: str) -> float:
    """Return the dense tensor-core rate for weights of a dtype. [FLOP/s]"""
    half = gpu.bf16_flops or gpu.fp16_flops
    rate = (gpu.fp8_flops or half) if weight_dtype.startswith("fp8") else half
    if rate is None:
        raise ProfileError(
            f"{gpu.name}: no rate for 16-bit arithmetic is known; it is needed where "
            "nothing was measured"
        )
    return rate


def roofline_profile(
    llm: Architecture, gpu: Gpu, tp: int, *, weight_dtype: str | None = None
) -> Profile:
    """Return a profile estimated from data sheets, with its error band as sigma."""
    dtype = weight_dtype or llm.weight_dtype
    sigma = SIGMA_FP8 if dtype.startswith("fp8") else SIGMA
    decode, fused = roofline_terms(llm, gpu, tp, weight_dtype=weight_dtype)
    return Profile(
        gpu=gpu.name,
        llm=llm.name,
        tp=tp,
        quantization="none" if dtype in ("bf16", "fp16") else dtype,
        engine="roofline",
        source=f"data sheet of {gpu.name} ({gpu.source}) and shapes of {llm.name}",
        how="estimate",
        kernels_from="roofline",
        decode_form="knots",
        fused_form="knots",
        decode=decode,
        fused=fused,
        errors={phase: ErrorRecord(sigma=value) for phase, value in sigma.items()},
    )
