"""Memory of LoRA adapters: two low-rank matrices beside each matrix of a layer.

vLLM 0.32 allocates ``max_loras`` slots of the largest rank when it starts
(``lora/layers``, ``create_lora_weights``): A of rank x input and B of output x rank.
Without ``--fully-sharded-loras`` TP splits B where it splits the output of the matrix
and A where it splits its input; the other one is whole on each GPU.
"""

from capplan.errors import InputError
from capplan.llm.architecture import Architecture

MAX_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values of ``--max-lora-rank`` (vLLM 0.32, config/lora.py, ``MaxLoRARanks``)."""
_ELEMENT_BYTES = 2


def check_adapters(llm: Architecture) -> None:
    """Refuse an LLM of which the memory of adapters is not modelled."""
    beside = (
        ("experts", llm.experts > 0),
        ("latent attention", llm.is_mla),
        ("recurrent states", llm.state_layers > 0),
        ("layers with other heads", llm.full_head_dim > 0),
    )
    for what, has in beside:
        if has:
            raise InputError(
                f"--enable-lora: adapters of an LLM with {what} are not modelled "
                f"({llm.name}); expected a dense LLM such as Llama-3.1-8B"
            )


def check_max_rank(rank: int) -> None:
    """Refuse a largest rank that vLLM does not take; name the next that holds it."""
    if rank not in MAX_RANKS:
        right = next((known for known in MAX_RANKS if known > rank), MAX_RANKS[-1])
        raise InputError(
            f"max_lora_rank is {rank}; expected one of "
            f"{', '.join(map(str, MAX_RANKS))}, as {right}"
        )


def slot_bytes(llm: Architecture, tp: int, rank: int) -> int:
    """Return the memory of an adapter on each GPU of a replica. [bytes]

    Of all matrices of attention and feed-forward, and of both embeddings, which vLLM
    does not split.
    """
    hidden, queries = llm.hidden, llm.heads // tp * llm.head_dim
    keys = llm.kv_heads_per_gpu(tp) * llm.head_dim
    inner = llm.dense_ffn // tp
    by_output = (queries, keys, keys, *(2 if llm.gated else 1) * (inner,))
    by_input = (queries, inner)
    layer = sum(hidden + width for width in (*by_output, *by_input))
    embeddings = 2 * (llm.vocab + hidden)
    return rank * _ELEMENT_BYTES * (llm.layers * layer + embeddings)
