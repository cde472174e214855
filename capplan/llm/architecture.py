"""Weights, KV bytes and arithmetic of an LLM from its shapes."""

from dataclasses import dataclass
from typing import NamedTuple

from capplan.llm.dtypes import (
    KV_BYTES,
    QUANTIZED_BYTES,
    UNQUANTIZED,
    UNQUANTIZED_BYTES,
    check_kv_dtype,
    weight_dtype_named,
)
from capplan.llm.shapes import Shapes


class _Part(NamedTuple):
    """Parameters on one GPU by how they are quantized."""

    mixer: float  # matrices of attention and of layers with a state
    matrix: float  # other matrices, but of routed experts
    expert: float
    head: float  # the output embedding
    plain: float  # never quantized


@dataclass(frozen=True)
class Architecture(Shapes):
    """An LLM of these shapes.

    Sharding follows vLLM's layers: matrices are split over the GPUs of a replica;
    norms, routers and down-projections of latent attention are replicated, and so
    are KV heads when there are fewer than GPUs.
    """

    def _attention(self, tp: int) -> _Part:
        """Return the parameters of all layers with attention."""
        if self.compressed is not None:
            matrix = self.compressed.matrix_parameters(self.hidden, tp)
            plain = self.compressed.plain_parameters(self.hidden, tp)
            return _Part(matrix, 0, 0, 0, plain)
        full = self._attention_layer(
            tp,
            self.heads,
            self.full_head_dim or self.head_dim,
            self.full_kv_heads or self.kv_heads,
            self.full_key_is_value,
        )
        heads = self.sliding_heads or self.heads
        windowed = self._attention_layer(tp, heads, self.head_dim, self.kv_heads, False)
        others = self.attention_layers - self.sliding_layers
        pairs = zip(windowed, full, strict=True)
        return _Part(*(self.sliding_layers * a + others * b for a, b in pairs))

    def _attention_layer(
        self, tp: int, heads: float, head_dim: int, kv_heads: int, key_is_value: bool
    ) -> _Part:
        hidden, heads = self.hidden, heads / tp
        if self.is_mla:
            query_dim = self.head_dim + self.rope_head_dim
            norm = self.kv_lora_rank + self.q_lora_rank
            down = hidden * (norm + self.rope_head_dim)
            query = (self.q_lora_rank or hidden) * heads * query_dim
            up = self.kv_lora_rank * heads * (self.head_dim + self.value_head_dim)
            out = heads * self.value_head_dim * hidden * (1 + self.attention_gate)
            return _Part(down + query + up + out, 0, 0, 0, norm)
        value_dim, keys = self.value_head_dim or head_dim, max(1, kv_heads // tp)
        width = (heads * (1 + self.attention_gate) + keys) * head_dim
        width += 0 if key_is_value else keys * value_dim
        plain = self.qkv_bias * width + self.out_bias * hidden
        plain += self.head_norm * 2 * head_dim + self.sinks * heads
        plain += self.heads_norm * (heads + keys) * head_dim
        plain += self.head_gate * heads * hidden
        return _Part(hidden * width + heads * value_dim * hidden, 0, 0, 0, plain)

    def _ffn(self, inner: int, biased: bool, width: int = 0) -> tuple[float, float]:
        """Return matrix and bias parameters of one feed-forward."""
        ups, width = 2 if self.gated else 1, width or self.hidden
        biases = biased * (ups * inner + width)
        return (ups + 1) * inner * width, biases

    def _layers(self, tp: int, experts: int, expert_gpus: float = 0) -> _Part:
        """Return the parameters of all layers with this number of routed experts.

        They are on ``expert_gpus``; on those of the TP group when 0.
        """
        split = expert_gpus or tp
        attention = self._attention(tp)
        norms = self.norms_per_layer * self.hidden * self.norm_width_factor
        expert_layers = self.expert_layers
        dense_layers = self.layers - self.mixer_only_layers - expert_layers
        dense, dense_bias = self._ffn(self.dense_ffn, self.ffn_bias)
        expert, expert_bias = self._ffn(
            self.expert_ffn, self.expert_bias, self.routed_hidden
        )
        shared, _ = self._ffn(self.shared_ffn, False)
        router = (self.hidden + self.router_bias) * self.experts
        router += self.shared_gate * self.hidden
        mixers = attention.mixer
        matrix = dense_layers * dense / tp + expert_layers * shared / tp
        # Projections to the experts' width and back are on every GPU.
        matrix += expert_layers * 2 * self.hidden * self.expert_hidden
        plain = attention.plain + self.layers * norms
        if (streams := self.residual_streams) > 1:
            mixed = streams * (streams * self.hidden + 1)
            plain += 2 * self.layers * ((2 + streams) * mixed + 3) + mixed + 1
        plain += dense_layers * dense_bias / tp
        plain += expert_layers * (router + experts * expert_bias / split)
        if self.state is not None:
            mixers += self.state_layers * self.state.matrix_parameters(self.hidden) / tp
            plain += self.state_layers * self.state.plain_parameters / tp
        if self.index is not None:
            mixers += self.index.layers * self.index.matrix_parameters(self.hidden)
            plain += self.index.layers * self.index.plain_parameters(self.hidden)
        return _Part(mixers, matrix, expert_layers * experts * expert / split, 0, plain)

    def _per_gpu(self, tp: int, expert_gpus: float = 0) -> _Part:
        layers = self._layers(tp, self.experts, expert_gpus)
        table = self.vocab * self.hidden / tp
        plain = layers.plain + self.hidden * self.norm_width_factor + table
        plain += self.learned_positions * self.hidden
        return layers._replace(head=0 if self.tied_embeddings else table, plain=plain)

    @property
    def parameter_count(self) -> int:
        """Return all parameters."""
        return round(sum(self._per_gpu(1)))

    @property
    def active_parameter_count(self) -> int:
        """Return the parameters that are multiplied with each token.

        They include the output embedding and the experts of the token, not the
        look-up of the input embedding.
        """
        layers = self._layers(1, self.experts_per_token)
        return round(sum(layers) + self.vocab * self.hidden)

    def weight_bytes_per_gpu(
        self, tp: int = 1, dtype: str | None = None, *, expert_gpus: float = 0
    ) -> int:
        """Return the weights on each GPU of a replica. [bytes]

        ``dtype`` is one of ``QUANTIZED_BYTES`` (default: the checkpoint's).
        Embeddings, norms, biases and routers stay in 16 bits. The routed experts are
        on ``expert_gpus``, see :attr:`.layout.Layout.expert_gpus`; on those of the TP
        group when 0.
        """
        self.check_tp(tp)
        part = self._per_gpu(tp, expert_gpus)
        return round(self._bytes(part, dtype or self.weight_dtype))

    def active_quantized_count(self, dtype: str) -> int:
        """Return those of this dtype among the active parameters."""
        active = self._layers(1, self.experts_per_token)
        dtypes = self._dtypes(weight_dtype_named(dtype))
        pairs = zip(active, dtypes, strict=False)
        return round(sum(count for count, of in pairs if of == dtype))

    def active_bytes(self, dtype: str) -> float:
        """Return the active parameters in bytes, of this weight dtype. [bytes]"""
        active = self._layers(1, self.experts_per_token)
        return self._bytes(active._replace(head=self.vocab * self.hidden), dtype)

    def _bytes(self, part: _Part, dtype: str) -> float:
        dtypes = self._dtypes(weight_dtype_named(dtype))
        quantized = sum(
            count * QUANTIZED_BYTES[of] for count, of in zip(part, dtypes, strict=False)
        )
        return quantized + part.plain * UNQUANTIZED_BYTES

    def _dtypes(self, dtype: str) -> tuple[str, str, str, str]:
        """Return the dtypes of mixers, other matrices, experts and the head."""
        plain, others, mixers = UNQUANTIZED[0], dtype, dtype
        if self.experts > 0 and dtype in ("mxfp4", "int4_g32"):
            mixers = others = plain
        unlike = self.is_mla or self.state_layers > 0 or self.full_head_dim > 0
        if dtype == "nvfp4" and unlike:
            mixers = plain
        if dtype != self.weight_dtype:
            return mixers, others, dtype, plain
        mixers, others = self.mixer_dtype or mixers, self.matrix_dtype or others
        return mixers, others, dtype, self.head_dtype or plain

    def weight_bytes(self, tp: int = 1, dtype: str | None = None) -> int:
        """Return the weights of a replica, replicated parts included. [bytes]"""
        return tp * self.weight_bytes_per_gpu(tp, dtype)

    def kv_bytes_per_token_per_gpu(self, tp: int = 1, kv_dtype: str = "bf16") -> int:
        """Return the KV of one token of context on each GPU. [bytes]

        Only of the layers whose KV grows with the context, see :mod:`.kv_groups` for
        the others. Compressed KV (MLA) is replicated.
        """
        if self.compressed is not None:
            block_bytes = self.compressed.block_bytes(check_kv_dtype(kv_dtype))
            return -(-block_bytes // self.compressed.block_tokens)
        layer_bytes = self.layer_kv_bytes_per_gpu(tp, kv_dtype)
        keys_bytes = self.index.layers * self.index.key_bytes if self.index else 0
        return self.growing_layers * layer_bytes + keys_bytes

    def layer_kv_bytes_per_gpu(
        self, tp: int = 1, kv_dtype: str = "bf16", *, windowed: bool = False
    ) -> int:
        """Return the KV of one token in one layer on each GPU. [bytes]

        Of a layer whose KV grows, without the key of an index, or a windowed one.
        """
        self.check_tp(tp)
        element_bytes = KV_BYTES[check_kv_dtype(kv_dtype)]
        if self.compressed is not None:
            return self.compressed.entry_bytes(kv_dtype)
        if self.is_mla:
            return (self.kv_lora_rank + self.rope_head_dim) * element_bytes
        if self.full_head_dim and not windowed:
            kv_heads, head_dim = max(1, self.full_kv_heads // tp), self.full_head_dim
        else:
            kv_heads, head_dim = self.kv_heads_per_gpu(tp), self.head_dim
        return kv_heads * (head_dim + (self.value_head_dim or head_dim)) * element_bytes

    def kv_bytes_per_token(self, kv_dtype: str = "bf16") -> int:
        """Return the KV of one token of context without replication. [bytes]"""
        return self.kv_bytes_per_token_per_gpu(1, kv_dtype)

    def flops_per_token(self, context_tokens: float = 0.0) -> float:
        """Return the arithmetic of one token with this context. [FLOP]

        Two per active parameter, and for each token of context that a layer looks at
        one product with its key and one with its value.
        """
        flops = 2.0 * self.active_parameter_count
        if self.compressed is not None:
            return flops + self.compressed.flops(context_tokens)
        key = self.head_dim + (self.rope_head_dim if self.is_mla else 0)
        value = self.value_head_dim or self.head_dim
        full = key + value
        if self.full_head_dim:
            full = self.full_head_dim + (self.value_head_dim or self.full_head_dim)
        seen = min(context_tokens, self.sliding_window) * (key + value)
        more = (self.sliding_heads or self.heads) / self.heads
        pairs = self.sliding_layers * more * seen
        sparse_layers = self.index.sparse_layers if self.index else 0
        pairs += sparse_layers * min(context_tokens, self.window) * full
        others = self.attention_layers - self.sliding_layers - sparse_layers
        pairs += others * context_tokens * full
        score_flops = self.index.flops(context_tokens) if self.index else 0.0
        return flops + 2 * self.heads * pairs + score_flops
