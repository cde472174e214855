"""Iteration time under decode context parallelism, by data sheets.

No table of it is published for vLLM, so that it is an estimate. Decoding reads 1/DCP of
the context on each GPU, but multiplies as before: a GPU has DCP times the query heads,
and each of them 1/DCP of the tokens. Around it a layer gathers the queries and the
softmax sums and scatters the outputs (vLLM's ``ag_rs``, three collectives).
"""

import numpy as np

from capplan.fleet.gpu import Gpu
from capplan.latency.contract import LatencyTables
from capplan.latency.roofline import dense_flops_per_s, efficiency_of
from capplan.llm.architecture import Architecture

_COLLECTIVES = 3
_ELEMENT_BYTES = 2  # of queries and outputs


def with_context_parallel(
    tables: LatencyTables, llm: Architecture, gpu: Gpu, tp: int, dcp: int
) -> LatencyTables:
    """Return the iteration times of a replica whose GPUs share KV by DCP.

    ``tables`` are those without. A collective takes the fixed time of an all-reduce and
    (DCP - 1)/DCP of its bytes over the link.
    """
    if dcp == 1:
        return tables
    efficiency = efficiency_of(gpu)
    query, value = _widths(llm)
    rate = dense_flops_per_s(gpu, "bf16") * efficiency.attention
    sparse_layers = llm.index.sparse_layers if llm.index else 0
    layers = llm.growing_layers
    pairs = 2 * llm.heads / tp * (query + value)
    least_s = (layers - sparse_layers) * pairs / rate

    heads = llm.heads / tp * dcp
    moved_bytes = heads * ((query + value) * _ELEMENT_BYTES + 4)
    link = gpu.nvlink_bytes_per_s_per_direction * efficiency.link
    link = link or gpu.pcie_bytes_per_s(tp)
    batch = np.arange(len(tables.decode_s))
    fixed_s = layers * _COLLECTIVES * efficiency.all_reduce_s * (batch > 0)
    more_s = fixed_s + batch * layers * (dcp - 1) / dcp * moved_bytes / link
    return tables._replace(
        decode_s=tables.decode_s + more_s,
        fused_decode_s=tables.fused_decode_s + more_s,
        decode_context_s=_shared(tables.decode_context_s, dcp, least_s),
        fused_context_s=_shared(tables.fused_context_s, dcp, least_s),
    )


def _shared(context_s: np.ndarray, dcp: int, least_s: float) -> np.ndarray:
    """Return the time per token of context: that to read 1/DCP, or to multiply."""
    return np.minimum(context_s, np.maximum(context_s / dcp, least_s))


def _widths(llm: Architecture) -> tuple[int, int]:
    """Return the elements of a head's query and of its output, as they are moved."""
    if llm.is_mla:
        return llm.kv_lora_rank + llm.rope_head_dim, llm.kv_lora_rank
    width = llm.full_head_dim or llm.head_dim
    return width, width
