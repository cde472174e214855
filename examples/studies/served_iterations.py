"""Hold plans' iterations on B300 against those of vLLM 0.20.1, nothing fitted.

``served_accuracy.py`` writes the table. The files (``fpm_*`` of ``served/2026-07``)
have iterations of a sweep, of requests of one length, and of a real trace. Those of
Qwen3.6-35B-A3B are not read: iterations with 1,000 prompt tokens take 2 ms beside
others that take 40, so times are not of the iterations that they stand beside.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from capplan.fleet.catalog import gpu as find_gpu
from capplan.latency.catalog import known_profile
from capplan.latency.contract import LatencyTables
from capplan.latency.estimate import estimated_profile
from capplan.latency.with_engine import as_planned
from capplan.llm.catalog import llm as find_llm

GPU = "B300-SXM"
SEATS, TOKENS = 512, 8192
FEW = 16
"""Decoding requests from which the engine's attention no longer takes what the sum of
their contexts takes."""
LEAST_PREFILL = 512
"""Prompt tokens below which launches are told rather than kernels."""


class File(NamedTuple):
    """Iterations of an LLM at a TP degree."""

    name: str
    llm: str
    tp: int


FILES = (
    File("fpm_qwen3-32b_b300_vllm0.20.1_tp2.csv.gz", "Qwen3-32B", 2),
    File("fpm_qwen3-32b_b300_vllm0.20.1_tp8.csv.gz", "Qwen3-32B", 8),
)


def planned(file: File) -> LatencyTables:
    """Return the times that a plan takes, the engine's included."""
    llm, at = find_llm(file.llm), find_gpu(GPU)
    profile = known_profile(llm, at, file.tp) or estimated_profile(llm, at, file.tp)
    return as_planned(profile).tables(SEATS, TOKENS)


def predicted_s(times: LatencyTables, rows: pd.DataFrame) -> np.ndarray:
    """Return the planned times of measured iterations. [s]"""
    decoding = rows["num_decode_requests"].to_numpy(int)
    context = rows["sum_decode_kv_tokens"].to_numpy(float) + decoding
    tokens = rows["sum_prefill_tokens"].to_numpy(int)
    prompts = np.maximum(rows["num_prefill_requests"].to_numpy(float), 1)
    before = rows["sum_prefill_kv_tokens"].to_numpy(float) / prompts
    squares = prompts * (tokens / prompts) ** 2 + rows["var_prefill_length"] * prompts
    work = tokens * before + squares.to_numpy(float) / 2
    alone_s = times.decode_s[decoding] + times.decode_context_s[decoding] * context
    fused_s = (
        times.fused_s[np.minimum(tokens + decoding, TOKENS)]
        + times.fused_decode_s[decoding]
        + times.fused_context_s[decoding] * context
        + times.attention_s * work
    )
    return np.where(tokens > 0, fused_s, alone_s)


def table(folder: Path) -> Iterator[str]:
    """Yield predicted ÷ measured of each file, the median by kind of iteration."""
    files = [file for file in FILES if (folder / file.name).exists()]
    if not files:
        return
    yield (
        f"| LLM on {GPU}, vLLM 0.20.1 | 1 to {FEW} decoding | more, of one length | "
        f"more, of a trace | prompts above {LEAST_PREFILL} tokens | beside decoding |"
    )
    yield "|---|---|---|---|---|---|"
    for file in files:
        rows = pd.read_csv(folder / file.name)
        measured_s = rows["latency_ms"].to_numpy(float) / 1e3
        ratio = predicted_s(planned(file), rows) / measured_s
        decoding, tokens = rows["num_decode_requests"], rows["sum_prefill_tokens"]
        alone, many = tokens == 0, decoding > FEW
        of_trace = rows["workload_segment"] == "real"
        kinds = (
            alone & ~many,
            alone & many & ~of_trace,
            alone & many & of_trace,
            (tokens > LEAST_PREFILL) & (decoding == 0),
            (tokens > LEAST_PREFILL) & (decoding > 0),
        )
        cells = [
            f"{np.median(ratio[kind]):.2f} ({kind.sum():,})" if kind.any() else "–"
            for kind in kinds
        ]
        yield f"| {file.llm}, TP {file.tp} | {' | '.join(cells)} |"


if __name__ == "__main__":
    print(__doc__)
