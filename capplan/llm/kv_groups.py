"""KV blocks of an LLM as vLLM's hybrid KV cache manager shares memory between layers.

Layers are put into groups of equal size, each of one kind of attention. A block holds
``block_size`` tokens of one group, and blocks of all groups come from one pool
(vLLM, ``v1/core/kv_cache_utils.py``). Full attention takes a block of each of its
groups as the context grows by a block; a layer with a sliding window or a recurrent
state never takes more than a few.
"""

from typing import NamedTuple

from capplan.llm.architecture import Architecture

_EVEN = 1.5
"""Kinds of layers that differ in number by less than this share make one group each."""
_STATE_STEP, _LATENT_STEP = 16, 128
"""Blocks that must hold a recurrent state have a multiple of these tokens; the second
beside latent attention. [tokens]"""


class KvGroups(NamedTuple):
    """KV blocks of an LLM on each GPU of a replica.

    A block holds the tokens of all groups whose KV grows with the context. The groups
    that a window or a state bounds take blocks of the same memory.
    """

    block_size: int  # [tokens]
    block_bytes: int  # on one GPU [bytes]
    bounded_groups: int  # groups of layers whose KV a window or a state bounds
    bounded_blocks: int  # most blocks that a request holds in each of them
    # Of a block of each, where new tokens take blocks until they have left a window.
    window_tokens: tuple[int, ...] = ()

    def blocks(self, kv_bytes: int, new_tokens: int) -> int:
        """Return the KV blocks that fit, less those that new tokens may take.

        An iteration writes the KV of all its ``new_tokens``, also of those that a
        window has left behind when it ends.
        """
        written = sum(_ceil_div(new_tokens, size) for size in self.window_tokens)
        return kv_bytes // self.block_bytes - written


def kv_groups(
    llm: Architecture,
    tp: int,
    kv_dtype: str,
    block_size: int,
    max_model_len: int,
    *,
    prefix_caching: bool = False,
) -> KvGroups:
    """Return the KV blocks of an LLM.

    ``block_size`` is what the engine is told; with recurrent states it is raised until
    a block holds the state of a layer, as vLLM does. With prefix caching a request
    holds two states (vLLM's ``mamba_cache_mode`` align). An LLM whose layers all have a
    window counts as one with full attention.
    """
    if (parts := llm.compressed) is not None:
        # Blocks of its windows are small: as many for any request. Two iterations are
        # in flight.
        block_bytes = parts.block_bytes(kv_dtype)
        held, written = parts.request_blocks, 2 * parts.group_tokens
        return KvGroups(parts.block_tokens, block_bytes, held, 1, written)
    layer_bytes = llm.layer_kv_bytes_per_gpu(tp, kv_dtype)
    if llm.state is not None:
        tokens = _ceil_div(llm.state.state_bytes_per_gpu(tp), layer_bytes)
        step = _LATENT_STEP if llm.is_mla else _STATE_STEP
        block_size = max(block_size, _ceil_div(tokens, step) * step)
    bounded = llm.attention_layers + llm.state_layers - llm.growing_layers
    if not bounded:
        token_bytes = llm.kv_bytes_per_token_per_gpu(tp, kv_dtype)
        return KvGroups(block_size, token_bytes * block_size, 0, 0)
    # Blocks have the same memory: where a token takes less, a block holds more of them.
    window_bytes = llm.layer_kv_bytes_per_gpu(tp, kv_dtype, windowed=True)
    most_bytes = max(window_bytes, layer_bytes)
    window_block = most_bytes // window_bytes * block_size
    block_size *= most_bytes // layer_bytes
    least, most = sorted((llm.growing_layers, bounded))
    group = most if most < _EVEN * least else least
    growing_groups = _ceil_div(llm.growing_layers, group)
    blocks = 2 if prefix_caching else 1
    if llm.sliding_window:
        # The window may begin inside a block.
        blocks = _ceil_div(llm.sliding_window - 1, window_block) + 1
        blocks = min(blocks, _ceil_div(max_model_len, window_block))
    groups = _ceil_div(_ceil_div(bounded, group), growing_groups)
    return KvGroups(
        block_size,
        growing_groups * group * layer_bytes * block_size,
        groups,
        blocks,
        (block_size,) * groups if llm.sliding_window else (),
    )


def _ceil_div(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)
