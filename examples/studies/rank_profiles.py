"""Write the shipped profiles of ranks that step together, and of experts by EP.

Without arguments: the list of LLMs, GPU types and layouts. With ``--out FOLDER``, every
profile is fitted again and written, or why it is not; ``--llm NAME`` and ``--gpu NAME``
restrict both, ``--imbalance`` prints the load of experts that the tables show, and
``--wide`` tokens per second of SGLang's DeepSeek-R1 over many nodes, ``--errors``
those recorded in the shipped profiles. All but the last and the list need
``pip install "aiconfigurator-core==0.12.*"``:

    python examples/studies/rank_profiles.py --out profiles --llm gpt-oss-120b

They are of the kernels that ``kernel_profiles.py`` takes, block FP8 those of SGLang;
DeepSeek-R1 also of TensorRT-LLM's.
"""

import argparse
import logging
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from kernel_profiles import (
    LEAST_KV_TOKENS,
    LLMS,
    MOST_HELD_OUT,
    VERSIONS,
    away_from_step,
)

from capplan.deployment.engine import EngineSettings
from capplan.deployment.memory import MemoryShare, memory_budget
from capplan.errors import InputError
from capplan.fleet.catalog import gpu as find_gpu
from capplan.latency.aiconfigurator import parse_source
from capplan.latency.catalog import rank_profiles
from capplan.latency.measurements import PHASES
from capplan.latency.profile_file import save_profile
from capplan.latency.rank_fit import fit_ranks
from capplan.latency.rank_kernels import read_parts
from capplan.latency.rank_profile import PARTS, RankProfile
from capplan.latency.rank_tables import RankWork
from capplan.llm.catalog import llm as find_llm
from capplan.llm.layout import Layout, parse_layout

SYSTEMS = ("h200_sxm", "b200_sxm", "b300_sxm", "gb200", "gb300")
NODE = ("tp8-ep8", "dp8-ep8", "dp8", "tp4-ep4", "dp4-ep4")
RACK = ("tp4-ep4", "dp4-ep4", "dp4", "tp8-ep8", "dp8-ep8", "dp16-ep16", "dp32-ep32")
"""Layouts in a node of eight GPUs, and of four that NVLink joins to others."""

OF = (
    *("DeepSeek-R1", "DeepSeek-R1-NVFP4", "DeepSeek-V3.2"),
    *("Kimi-K2.5", "Kimi-K2.5-NVFP4", "GLM-5.2-FP8_BLOCK", "GLM-5.2-NVFP4"),
    *("Qwen3.5-122B-A10B", "Qwen3.5-122B-A10B-NVFP4"),
    *("Qwen3.5-397B-A17B", "Qwen3.5-397B-A17B-NVFP4"),
    *("Qwen3-235B-A22B", "Qwen3-235B-A22B-FP8_BLOCK", "Qwen3-235B-A22B-NVFP4"),
    *("gpt-oss-120b", "MiniMax-M3"),
)
TRTLLM = {
    "DeepSeek-R1": "deepseek-ai/DeepSeek-R1?engine=trtllm",
    "DeepSeek-R1-NVFP4": "nvidia/DeepSeek-V3.1-NVFP4?engine=trtllm",
}
SGLANG = {"DeepSeek-R1-NVFP4": "nvidia/DeepSeek-V3.1-NVFP4?engine=sglang"}
"""Models of other engines than the first."""

VERSIONS = VERSIONS | {"trtllm": "1.3.0rc20"}
LEAST_OF_WEIGHTS = 0.9
MOST_OF_WEIGHTS = 12.0
"""Time of a decode of 64 requests on each rank over that of reading the rank's weights
once, outside which a profile is not written."""

LEAST_WIDE = 300e9
"""Parameters of an LLM that is spread over more than eight GPUs."""

CONTEXT = 2050
"""Mean context of prompts of 2,000 tokens and answers of 100."""


class Row(NamedTuple):
    """A profile to make."""

    llm: str
    gpu: str
    system: str
    layout: Layout
    model: str  # with the options of a source
    qualities: tuple[str, ...] = ()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder to write the profiles to")
    parser.add_argument("--llm", help="only this LLM")
    parser.add_argument("--gpu", help="only this GPU type")
    parser.add_argument("--imbalance", action="store_true", help="print it and end")
    parser.add_argument("--wide", action="store_true", help="print them and end")
    parser.add_argument("--errors", action="store_true", help="print them and end")
    arguments = parser.parse_args()
    if arguments.errors:
        print_errors()
        return
    if arguments.out or arguments.imbalance or arguments.wide:
        if find_spec("aiconfigurator_core") is None:
            print('No aiconfigurator-core; pip install "aiconfigurator-core==0.12.*"')
            return
        logging.disable(logging.WARNING)
    if arguments.imbalance:
        print_imbalance()
        return
    if arguments.wide:
        print_wide()
        return
    for row in listed(arguments.llm, arguments.gpu):
        name = ".".join((str(row.layout), *row.qualities))
        print(f"{row.llm} on {row.gpu}, {name}: ", end="", flush=True)
        print(written(row, arguments.out) if arguments.out else row.model, flush=True)


def listed(only_llm: str | None, only_gpu: str | None) -> Iterator[Row]:
    """Yield the profiles of each LLM on each GPU type that was asked for."""
    for llm in OF:
        first, systems = LLMS[llm]
        for system in SYSTEMS:
            gpu = find_gpu(system).name
            if only_llm not in (None, llm) or only_gpu not in (None, gpu):
                continue
            if system not in systems:
                continue
            of_node = find_gpu(gpu).max_gpus_per_node
            names = NODE if of_node == 8 else RACK
            for layout in map(parse_layout, names):
                if layout.gpus > 8 and find_llm(llm).parameter_count < LEAST_WIDE:
                    continue
                row = Row(llm, gpu, system, layout, first)
                yield row
                # DeepEP was measured in one node alone.
                if layout.dp > 1 and 1 < layout.ep <= of_node:
                    yield with_option(row, "a2a=deepep", "deepep")
                for engine, models in (("sglang", SGLANG), ("trtllm", TRTLLM)):
                    if llm in models:
                        yield row._replace(model=models[llm], qualities=(engine,))


def with_option(row: Row, option: str, quality: str) -> Row:
    """Return a row whose source has another option."""
    joined = "&" if "?" in row.model else "?"
    return row._replace(
        model=f"{row.model}{joined}{option}", qualities=(*row.qualities, quality)
    )


def written(row: Row, out: Path) -> str:
    """Write one profile if it is sound; return its errors, or why it is not."""
    source = parse_source(f"{row.system}/{row.model}")
    source = source._replace(
        version=VERSIONS[source.engine], dp=row.layout.dp, ep=row.layout.ep
    )
    tp = row.layout.tp
    try:
        kv_tokens = room(row)
        if kv_tokens < LEAST_KV_TOKENS:
            return f"left out: room for {max(0, kv_tokens):,} tokens beside the weights"
        parts = read_parts(source, tp, kv_tokens)
        if find_llm(row.llm).index is not None:
            parts = parts._replace(alone=away_from_step(parts.alone))
        fitted = fit_ranks(parts, source, tp, row.gpu, row.llm)
    except InputError as error:
        return f"left out: {error}"
    profile = fitted.profile
    errors = {name: record.held_out_mean_abs for name, record in profile.errors.items()}
    text = ", ".join(f"{name} {error:.1%}" for name, error in errors.items())
    if max(errors.values()) > MOST_HELD_OUT:
        return f"left out: held-out error {text}"
    ratio = beside_weights(profile)
    text += f"; beside reading its weights {ratio:.2f}"
    if not LEAST_OF_WEIGHTS <= ratio <= MOST_OF_WEIGHTS:
        return f"left out: {text}"
    name = ".".join((str(profile.layout), *row.qualities, "yaml"))
    save_profile(profile, out / profile.gpu / profile.llm / name)
    return text


def room(row: Row) -> int:
    """Return the tokens of KV that fit beside a rank's weights."""
    llm, gpu, tp = find_llm(row.llm), find_gpu(row.gpu), row.layout.tp
    budget = memory_budget(
        llm, gpu, row.layout, EngineSettings(), MemoryShare(has_graphs=False)
    )
    return budget.kv_bytes // llm.kv_bytes_per_token_per_gpu(tp, "fp8")


def beside_weights(profile: RankProfile) -> float:
    """Return the time of 64 requests on each rank over that of reading the weights."""
    llm, gpu = find_llm(profile.llm), find_gpu(profile.gpu)
    layout = profile.layout
    weights = llm.weight_bytes_per_gpu(
        layout.tp, expert_gpus=layout.expert_gpus(llm.experts)
    )
    work = [RankWork(64, 64 * 512)] * layout.dp
    decode_s = profile.rank_tables(64, 64).iteration_time_s(work)
    return decode_s / (weights / gpu.bandwidth_bytes_per_s)


def print_imbalance() -> None:
    """Print the time of experts without over with EPLB, by EP and system."""
    import aiconfigurator_core
    import pandas as pd

    tables = Path(aiconfigurator_core.__file__).parent / "systems" / "data"
    same = ["moe_dtype", "moe_kernel", "num_tokens", "hidden_size", "inter_size"]
    same += ["topk", "num_experts", "moe_ep_size"]
    ratios = {}
    for path in sorted(tables.glob("*/moe/trtllm/1.3.0rc10/wideep_moe_perf.parquet")):
        rows = pd.read_parquet(path)
        rows["law"] = rows.distribution.str.removesuffix("_eplb")
        rows["levelled"] = rows.distribution.str.endswith("_eplb")
        if rows.levelled.nunique() < 2:
            continue
        pairs = rows.pivot_table(
            index=[*same, "law"], columns="levelled", values="latency"
        ).dropna()
        ratios[path.parts[-5]] = (pairs[False] / pairs[True]).droplevel(
            [*same[:-1], "law"]
        )
    by_ep = pd.concat(ratios, names=["system"])
    print(by_ep.groupby(["moe_ep_size", "system"]).median().unstack().round(2))
    print(by_ep.groupby("moe_ep_size").median().round(2).to_string())


def print_errors() -> None:
    """Print the errors recorded in the shipped profiles, part by part."""
    print("| part | held out, median (worst) | knots and forms, median (worst) |")
    print("|---|---|---|")
    profiles = list(rank_profiles())
    for part in (*PHASES, *PARTS):
        records = [profile.errors_of(part) for profile in profiles]
        cells = []
        for name in ("held_out_mean_abs", "mean_abs"):
            values = np.array([getattr(record, name) for record in records])
            cells.append(f"{np.median(values):.1%} ({values.max():.1%})")
        print(f"| {part} | {' | '.join(cells)} |")
    print(f"{len(profiles)} profiles")


def print_wide() -> None:
    """Print decoded tokens per second and GPU without overlap, EPLB and not."""
    for system, ranks in (("h100_sxm", 64), ("h200_sxm", 16)):
        source = parse_source(
            f"{system}/deepseek-ai/DeepSeek-R1?engine=sglang&dp={ranks}&ep={ranks}"
            "&a2a=deepep"
        )
        parts = read_parts(source, 1)
        for is_balanced in (True, False):
            fitted = fit_ranks(
                parts, source, 1, "H100-SXM", "DeepSeek-R1", is_balanced=is_balanced
            )
            tables = fitted.profile.rank_tables(256, 1)
            for batch in (64, 128, 256):
                work = [RankWork(batch, batch * CONTEXT)] * ranks
                per_s = batch / tables.iteration_time_s(work)
                load = fitted.profile.imbalance
                print(
                    f"{system}, {ranks} ranks of {batch} requests, imbalance {load:g}: "
                    f"{per_s:,.0f} tokens/s a GPU"
                )


if __name__ == "__main__":
    main()
