"""Attention of DeepSeek-V4: a window, and beside it KV that stands for several tokens.

As vLLM 0.32 builds and stores it (``models/deepseek_v4/attention.py``,
``compressor.py``; ``v1/attention/backends/mla/sparse_swa.py``): each layer has a
window; some also choose among entries of 4 tokens each by an index (CSA), others
attend to all entries of 128 tokens (HCA).
"""

from dataclasses import dataclass

from capplan.errors import InputError

_BLOCK_TOKENS = 256
_FEW, _MANY = 4, 128
"""Tokens that an entry of compressed KV stands for."""
_WINDOW_TOKENS, _FEW_TOKENS, _MANY_TOKENS = 64, 4, 8
"""Of a block of a window, and of the states that compress. [tokens]"""
_STATE_BYTES = 4
"""States that compress are in 32 bits. [bytes]"""


@dataclass(frozen=True)
class CompressedAttention:
    """Shapes of attention that shares one head of keys, which are the values too."""

    layers: int
    indexed_layers: int  # that choose among entries of 4 tokens
    dense_layers: int  # that attend to all entries of 128 tokens
    window: int  # [tokens]
    heads: int
    head_dim: int
    rope_dim: int  # of it, in 16 bits beside FP8
    q_lora_rank: int
    o_lora_rank: int
    o_groups: int  # of heads whose outputs are projected together
    index_heads: int
    index_head_dim: int
    topk: int  # entries that a query of an indexed layer chooses

    def __post_init__(self) -> None:
        """Refuse shapes that attend to nothing."""
        for name, value in vars(self).items():
            if value < 1:
                raise InputError(f"{name} of compressed attention is missing")
        if self.indexed_layers + self.dense_layers > self.layers:
            raise InputError(
                f"{self.indexed_layers + self.dense_layers} layers have compressed KV; "
                f"expected at most {self.layers}"
            )

    def matrix_parameters(self, hidden: int, tp: int) -> float:
        """Return the parameters of the quantized projections of all layers."""
        down = hidden * (self.q_lora_rank + self.head_dim)
        wide = self.heads * self.head_dim * (self.q_lora_rank + self.o_lora_rank)
        out = self.o_groups * self.o_lora_rank * hidden
        index = self.q_lora_rank * self.index_heads * self.index_head_dim
        every = down + (wide + out) / tp
        return self.layers * every + self.indexed_layers * index

    def plain_parameters(self, hidden: int, tp: int) -> float:
        """Return those of norms, sinks, compressors and the heads' weights."""

        def compressor(width: int, tokens: int) -> int:
            wide = width * (1 + (tokens == _FEW))  # neighbours overlap
            return (2 * hidden + tokens) * wide + width

        every = self.q_lora_rank + self.head_dim + self.heads / tp
        index = compressor(self.index_head_dim, _FEW) + hidden * self.index_heads
        indexed = compressor(self.head_dim, _FEW) + index
        dense = compressor(self.head_dim, _MANY)
        return (
            self.layers * every
            + self.indexed_layers * indexed
            + self.dense_layers * dense
        )

    def entry_bytes(self, kv_dtype: str) -> int:
        """Return an entry of KV: in FP8 with its rotary part in 16 bits. [bytes]"""
        if kv_dtype == "fp8":
            return self.head_dim + self.rope_dim + 8  # and 8 scales
        return 2 * self.head_dim

    @property
    def _key_bytes(self) -> int:
        return self.index_head_dim + 4 * self.index_head_dim // 128

    def block_bytes(self, kv_dtype: str) -> int:
        """Return a block of 256 tokens of all layers. [bytes]

        Blocks of all groups are as large as the largest (vLLM,
        ``v1/core/kv_cache_utils.py``, ``_get_packed_kv_cache_groups``).
        """
        step = 576 if kv_dtype == "fp8" else 512

        def page(entries: int, entry_bytes: int) -> int:
            return -(-entries * entry_bytes // step) * step

        entry, few = self.entry_bytes(kv_dtype), _BLOCK_TOKENS // _FEW
        grows = self.indexed_layers * (page(few, entry) + page(few, self._key_bytes))
        grows += self.dense_layers * page(_BLOCK_TOKENS // _MANY, entry)
        states = [2 * 2 * width for width in (self.head_dim, self.index_head_dim)]
        few_states = sum(page(_FEW_TOKENS, _STATE_BYTES * width) for width in states)
        many_state = page(_MANY_TOKENS, _STATE_BYTES * 2 * self.head_dim)
        repeats = self._repeats
        return max(
            grows,
            min(self.layers, repeats) * page(_WINDOW_TOKENS, entry),
            self.indexed_layers * few_states,
            min(self.dense_layers, repeats) * many_state,
        )

    @property
    def _repeats(self) -> int:
        """Layers of a group, so that the least is padded."""
        numbers = self.layers, self.indexed_layers, self.dense_layers
        choices = range(self.indexed_layers, max(numbers) + 1)
        return min(choices, key=lambda n: (sum(-number % n for number in numbers), -n))

    @property
    def group_tokens(self) -> tuple[int, ...]:
        """Tokens of a block in each group that does not grow. [tokens]"""
        repeats = self._repeats
        windows = -(-self.layers // repeats)
        dense = -(-self.dense_layers // repeats)
        return (*(_WINDOW_TOKENS,) * windows, _FEW_TOKENS, *(_MANY_TOKENS,) * dense)

    @property
    def request_blocks(self) -> int:
        """Blocks that a request holds beside those that grow, whatever its length."""
        spans = {
            _WINDOW_TOKENS: self.window,
            _FEW_TOKENS: 2 * _FEW,
            _MANY_TOKENS: _MANY,
        }
        return sum(-(-(spans[size] - 1) // size) + 1 for size in self.group_tokens)

    @property
    def block_tokens(self) -> int:
        """Tokens of a block of what grows. [tokens]"""
        return _BLOCK_TOKENS

    def read_bytes(self, kv_dtype: str) -> tuple[float, float]:
        """Return what a decode reads: per token of context, and per request. [bytes]"""
        entry = self.entry_bytes(kv_dtype)
        context = self.indexed_layers * self._key_bytes / _FEW
        context += self.dense_layers * entry / _MANY
        chosen = self.layers * self.window + self.indexed_layers * self.topk
        return context, float(chosen * entry)

    def flops(self, context_tokens: float) -> float:
        """Return the arithmetic of attention and index for a token. [FLOP]"""
        pairs = self.layers * min(context_tokens, self.window)
        pairs += self.indexed_layers * min(context_tokens / _FEW, self.topk)
        pairs += self.dense_layers * context_tokens / _MANY
        scores = self.index_heads * self.index_head_dim * context_tokens / _FEW
        of_pairs = 2 * self.heads * self.head_dim * pairs
        return 2.0 * (of_pairs + self.indexed_layers * scores)
