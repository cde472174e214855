"""Time from one stage of a pipeline to the next, by data sheets.

vLLM sends two tensors of the hidden width for each token, the hidden state and the
residual (0.32, model_executor/models/llama.py, ``make_empty_intermediate_tensors``).
Each GPU of a TP group sends its part to its peer, and the receivers gather them
(distributed/parallel_state.py, ``isend_tensor_dict``). Nothing of it was measured.
"""

from capplan.fleet.gpu import Gpu
from capplan.latency.roofline import efficiency_of
from capplan.llm.architecture import Architecture

P2P_S = 10e-6
"""Latency of a transfer between two GPUs. [s] aiconfigurator-core 0.12, p2p_latency."""
_TENSORS = 2
_ELEMENT_BYTES = 2


def hop_times_s(
    llm: Architecture, gpu: Gpu, tp: int, *, spans_nodes: bool
) -> tuple[float, float]:
    """Return the fixed time of a hop and that of each token. [s], [s/token]

    Over the network where a replica spans nodes, else over NVLink or PCIe.
    """
    efficiency = efficiency_of(gpu)
    inside = gpu.nvlink_bytes_per_s_per_direction * efficiency.link
    inside = inside or gpu.pcie_bytes_per_s(2)
    between = inside
    if spans_nodes:
        assert gpu.network_bytes_per_s_per_direction is not None
        between = gpu.network_bytes_per_s_per_direction
    token_bytes = _TENSORS * _ELEMENT_BYTES * llm.hidden
    fixed_s, token_s = P2P_S, token_bytes / tp / between
    if tp > 1:
        fixed_s += _TENSORS * efficiency.all_reduce_s
        token_s += (tp - 1) / tp * token_bytes / inside
    return fixed_s, token_s
