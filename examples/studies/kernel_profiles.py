"""Write the shipped profiles that are sums of kernels measured by aiconfigurator-core.

Without arguments: the list of LLMs and GPU types. With ``--out FOLDER``, every profile
is fitted again and written, or why it is not; ``--llm NAME`` and ``--gpu NAME``
restrict both. It needs ``pip install "aiconfigurator-core==0.12.*"``:

    python examples/studies/kernel_profiles.py --out profiles --llm gpt-oss-120b

The profiles of the LLMs that ``accuracy_table.py`` fits are made there.
"""

import argparse
import logging
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from capplan.errors import InputError
from capplan.fleet.catalog import gpu as find_gpu
from capplan.latency.aiconfigurator import (
    Source,
    kernel_dtypes,
    kernel_identity,
    parse_source,
    read_kernels,
)
from capplan.latency.catalog import profile_path
from capplan.latency.fit import fit
from capplan.latency.fitted_profile import profile_of
from capplan.latency.measurements import PHASES, Points
from capplan.latency.profile import Profile
from capplan.latency.profile_file import save_profile
from capplan.latency.roofline import roofline_profile
from capplan.llm.catalog import llm as find_llm

VERSIONS = {"vllm": "0.24.0", "sglang": "0.5.14"}
OLDER = {"a100_sxm": "0.14.0"}  # of vLLM
"""Version of the engine whose kernels were measured."""

MEMORY_SHARE = 0.95
"""Of the GPU's memory, that an engine may take."""

BLACKWELL = ("b200_sxm", "b300_sxm", "gb200", "gb300")
PRO = "rtx_pro_6000_server"
FP4 = (*BLACKWELL, PRO)
NEW = ("h100_sxm", "h200_sxm", *FP4)

LLMS = {
    "Llama-3.1-8B": ("meta-llama/Meta-Llama-3.1-8B", (*FP4, "l40s")),
    "Llama-3.1-8B-NVFP4": ("meta-llama/Meta-Llama-3.1-8B?weights=nvfp4", FP4),
    "Llama-3.1-70B": ("meta-llama/Meta-Llama-3.1-70B", (*FP4, "l40s")),
    "Llama-3.1-70B-FP8": ("nvidia/Llama-3.1-70B-Instruct-FP8", (*FP4, "l40s")),
    "Llama-3.1-70B-NVFP4": ("meta-llama/Meta-Llama-3.1-70B?weights=nvfp4", FP4),
    "Llama-4-Scout": ("meta-llama/Llama-4-Scout-17B-16E-Instruct", NEW),
    "Llama-4-Maverick": ("meta-llama/Llama-4-Maverick-17B-128E-Instruct", NEW),
    "Qwen3-8B": ("Qwen/Qwen3-8B", (*FP4, "l40s")),
    "Qwen3-32B": ("Qwen/Qwen3-32B", (*NEW, "l40s", "a100_sxm")),
    "Qwen3-32B-FP8": ("Qwen/Qwen3-32B-FP8-Static-PerTensor", (*NEW, "l40s")),
    "Qwen3-32B-FP8_BLOCK": ("Qwen/Qwen3-32B-FP8?engine=sglang", NEW),
    "Qwen3-32B-NVFP4": ("Qwen/Qwen3-32B?weights=nvfp4", FP4),
    "Qwen3-30B-A3B": ("Qwen/Qwen3-30B-A3B", (*FP4, "l40s")),
    "Qwen3-30B-A3B-FP8_BLOCK": ("Qwen/Qwen3-30B-A3B-FP8?engine=sglang", NEW),
    "Qwen3-235B-A22B": ("Qwen/Qwen3-235B-A22B", (*NEW, "a100_sxm")),
    "Qwen3-235B-A22B-FP8_BLOCK": ("Qwen/Qwen3-235B-A22B-FP8?engine=sglang", NEW),
    "Qwen3-235B-A22B-NVFP4": ("nvidia/Qwen3-235B-A22B-NVFP4", FP4),
    "gpt-oss-20b": ("openai/gpt-oss-20b", (*NEW, "l40s")),
    "gpt-oss-120b": ("openai/gpt-oss-120b", NEW),
    "DeepSeek-R1": ("deepseek-ai/DeepSeek-R1?engine=sglang", NEW),
    "DeepSeek-R1-NVFP4": ("nvidia/DeepSeek-V3.1-NVFP4", FP4),
    "Kimi-K2.5": ("moonshotai/Kimi-K2.5", NEW),
    "Kimi-K2.5-NVFP4": ("nvidia/Kimi-K2.5-NVFP4", FP4),
    "DeepSeek-V3.2": ("deepseek-ai/DeepSeek-V3.2?engine=sglang", NEW),
    "GLM-5.2-FP8_BLOCK": ("zai-org/GLM-5.2-FP8?engine=sglang", NEW),
    "GLM-5.2-NVFP4": ("nvidia/GLM-5.2-NVFP4?engine=sglang", FP4),
    "MiniMax-M3": ("MiniMaxAI/MiniMax-M3", NEW),
    "Gemma-4-26B-A4B": ("google/gemma-4-26B-A4B", NEW),
    "Gemma-4-26B-A4B-NVFP4": ("nvidia/Gemma-4-26B-A4B-NVFP4", FP4),
    "Gemma-4-31B": ("nvidia/Gemma-4-31B-IT-NVFP4?weights=bfloat16", NEW),
    "Qwen3.5-27B": ("Qwen/Qwen3.5-27B", NEW),
    "Qwen3.5-35B-A3B": ("Qwen/Qwen3.5-35B-A3B", NEW),
    "Qwen3.5-122B-A10B": ("nvidia/Qwen3.5-122B-A10B-NVFP4?weights=bfloat16", NEW),
    "Qwen3.5-122B-A10B-NVFP4": ("nvidia/Qwen3.5-122B-A10B-NVFP4", FP4),
    "Qwen3.5-397B-A17B": ("Qwen/Qwen3.5-397B-A17B", NEW),
    "Qwen3.5-397B-A17B-NVFP4": ("nvidia/Qwen3.5-397B-A17B-NVFP4", FP4),
}
"""Model of the package and its systems, by LLM; Llama 3.3 has the shapes of 3.1, and
DeepSeek-V3 and R1 are one."""

LEAST_KV_TOKENS = 16_384
"""A configuration with less room beside its weights serves nobody."""

MOST_HELD_OUT = 0.1
MOST_FROM_ROOFLINE = 3.0
MOST_OF_SPARSE = 5.0
"""Mean held-out error of a phase, and factor between it and the data sheet, above
which a fit is not written. The second is another for sparse attention, whose index
takes many small kernels."""

LEAST_AFTER_PREFIX = 4096
"""Fewest new tokens after a prefix that sparse attention is fitted to: where a context
passes the chosen tokens its time takes a step, which no form has."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder to write the profiles to")
    parser.add_argument("--llm", help="only this LLM")
    parser.add_argument("--gpu", help="only this GPU type")
    arguments = parser.parse_args()
    if arguments.out and find_spec("aiconfigurator_core") is None:
        print('No aiconfigurator-core; pip install "aiconfigurator-core==0.12.*"')
        return
    logging.getLogger("aiconfigurator_core").setLevel(logging.ERROR)
    for llm, source, gpu in listed(arguments.llm, arguments.gpu):
        if arguments.out is None:
            print(f"{llm} on {gpu}: {source.model} on {source.system}")
            continue
        largest = min(find_gpu(gpu).max_gpus_per_node, 8)
        for tp in (degree for degree in (1, 2, 4, 8) if degree <= largest):
            print(f"{llm} on {gpu}, TP {tp}: ", end="", flush=True)
            print(written(source, tp, gpu, llm, arguments.out), flush=True)


def listed(only_llm: str | None, only_gpu: str | None) -> Iterator[tuple]:
    """Yield LLM, source and GPU type of each row that was asked for."""
    for llm, (model, systems) in LLMS.items():
        for system in systems:
            gpu = find_gpu(system).name
            if only_llm in (None, llm) and only_gpu in (None, gpu):
                source = parse_source(f"{system}/{model}")
                version = OLDER.get(system, VERSIONS[source.engine])
                yield llm, source._replace(version=version), gpu


def kernel_kv_tokens(source: Source, tp: int) -> int:
    """Return how many tokens of KV fit beside a rank's weights; 0 when these do not."""
    from aiconfigurator_core.sdk import estimate_kv_cache

    try:
        estimate = estimate_kv_cache(
            source.model,
            source.system,
            source.engine,
            source.version,
            max_num_tokens=8192,
            max_batch_size=256,
            memory_fraction_kind="of_total",
            memory_fraction_value=MEMORY_SHARE,
            tp_size=tp,
            attention_dp_size=source.dp,
            moe_tp_size=tp * source.dp // source.ep,
            moe_ep_size=source.ep,
            **kernel_dtypes(source, tp)[2],
        )
    except ValueError:
        return 0
    return int(estimate["total_kv_size_tokens"])


def written(source: Source, tp: int, gpu: str, llm: str, out: Path) -> str:
    """Write one profile if it is sound; return its errors, or why it is not."""
    try:
        kv_tokens = kernel_kv_tokens(source, tp)
        if kv_tokens < LEAST_KV_TOKENS:
            return f"left out: room for {kv_tokens:,} tokens beside the weights"
        points = read_kernels(source, tp, kv_tokens)
    except InputError as error:
        return f"left out: {error}"
    sparse = find_llm(llm).index is not None
    if sparse:
        points = away_from_step(points)
    fitted = fit(points)
    profile = profile_of(fitted, points, kernel_identity(source, tp, gpu, llm))
    errors = {name: record.held_out_mean_abs for name, record in fitted.errors.items()}
    text = ", ".join(f"{name} {error:.1%}" for name, error in errors.items())
    if max(errors.values()) > MOST_HELD_OUT:
        return f"left out: held-out error {text}"
    ratios = beside_roofline(profile)
    text += f"; beside the data sheet {ratios.min():.2f} to {ratios.max():.2f}"
    most = MOST_OF_SPARSE if sparse else MOST_FROM_ROOFLINE
    if ratios.max() > most or ratios.min() < 1 / most:
        return f"left out: {text}"
    save_profile(profile, profile_path(out, gpu, llm, tp))
    return text


def away_from_step(points: Points) -> Points:
    """Return the points of sparse attention that a form can follow."""
    few = (points.context > 0) & (points.prefill_tokens < LEAST_AFTER_PREFIX)
    return points.where((points.phase != PHASES.index("prefill")) | ~few)


def beside_roofline(profile: Profile) -> np.ndarray:
    """Return measured time over that of the data sheet, for decodes and prefills."""
    llm, gpu = find_llm(profile.llm), find_gpu(profile.gpu)
    measured, estimated = (
        each.tables(256, 8192)
        for each in (profile, roofline_profile(llm, gpu, profile.tp))
    )
    batch, tokens = np.array([1, 8, 64, 256]), np.array([128, 512, 2048, 8192])
    context = 1500 * batch

    def seconds(table):
        decode_s = table.decode_s[batch] + table.decode_context_s[batch] * context
        attention = tokens.astype(float) ** 2 / 2
        return np.append(
            decode_s, table.fused_s[tokens] + table.attention_s * attention
        )

    return seconds(measured) / seconds(estimated)


if __name__ == "__main__":
    main()
