"""Weights, KV bytes and arithmetic of an LLM from its shapes."""

from dataclasses import dataclass
from typing import NamedTuple

from capplan.errors import InputError
from capplan.llm.dtypes import (
    KV_BYTES,
    QUANTIZED_BYTES,
    UNQUANTIZED_BYTES,
    check_kv_dtype,
    weight_dtype_named,
)
from capplan.llm.sparse_index import SparseIndex
from capplan.llm.state_layer import StateLayer
from capplan.llm.vision import VisionEncoder

_COUNTS = ("layers", "hidden", "heads", "kv_heads", "head_dim", "vocab")


class _Part(NamedTuple):
    """Parameters on one GPU by how they are quantized."""

    mixer: float  # matrices of attention and of layers with a state
    matrix: float  # other matrices, but of routed experts
    expert: float
    plain: float  # never quantized


@dataclass(frozen=True)
class Architecture:
    """Shapes of a decoder-only transformer, some of whose layers may hold a state.

    Sharding follows vLLM's layers: matrices are split over the GPUs of a replica;
    norms, routers and down-projections of latent attention are replicated, and so
    are KV heads when there are fewer than GPUs.
    """

    name: str
    layers: int
    hidden: int  # width of the residual stream
    heads: int  # query heads
    kv_heads: int
    head_dim: int  # of a query without its rotary part in latent attention
    vocab: int  # tokens of the vocabulary
    dense_ffn: int  # inner width of the feed-forward of a layer without experts
    gated: bool = True  # the feed-forward has three matrices, not two
    tied_embeddings: bool = False  # input and output share one embedding
    max_positions: int = 4096  # longest context [tokens]
    experts: int = 0  # routed experts of a layer; 0 for a dense model
    experts_per_token: int = 0
    expert_ffn: int = 0  # inner width of an expert
    shared_ffn: int = 0  # summed inner width of the shared experts
    dense_layers: int = 0  # layers without experts in a model with experts
    # Multi-head latent attention (DeepSeek); 0 for ordinary attention.
    kv_lora_rank: int = 0  # width of the compressed KV
    q_lora_rank: int = 0  # width of the compressed query
    rope_head_dim: int = 0  # rotary part of a key
    value_head_dim: int = 0
    learned_positions: int = 0  # rows of a learned position embedding [tokens]
    qkv_bias: bool = False
    out_bias: bool = False
    ffn_bias: bool = False
    expert_bias: bool = False
    router_bias: bool = False
    head_norm: bool = False  # queries and keys are normalized per head
    heads_norm: bool = False  # or over all heads at once
    norms_per_layer: int = 2
    norm_width_factor: int = 1  # 2 for norms with a bias
    sinks: bool = False  # each head has a learned sink
    attention_gate: bool = False  # queries are twice as wide, half of it a gate
    shared_gate: bool = False  # the shared experts have a gate
    sliding_window: int = 0  # or chunk, beyond which such layers do not look [tokens]
    sliding_layers: int = 0
    # Of the layers with full attention, where their heads differ from those of layers
    # with a window (Gemma 4); else 0.
    full_head_dim: int = 0
    full_kv_heads: int = 0
    full_key_is_value: bool = False  # one projection gives both
    index: SparseIndex | None = None  # by which layers choose what they attend to
    state: StateLayer | None = None  # of the layers with a recurrent state
    state_layers: int = 0
    ffn_only_layers: int = 0  # layers without attention and state
    mixer_only_layers: int = 0  # layers without a feed-forward
    mtp_layers: int = 0  # that predict further tokens, not among ``layers``
    vision: VisionEncoder | None = None  # counted where an engine encodes images
    weight_dtype: str = "bf16"  # of the published checkpoint
    kv_dtype: str = "bf16"  # that engines take by default, as the checkpoint states
    source: str = ""  # of the shapes

    def __post_init__(self) -> None:
        """Refuse shapes that do not make a transformer."""
        for name in _COUNTS:
            if getattr(self, name) < 1:
                raise InputError(
                    f"{self.name}: {name} is {getattr(self, name)}; expected >= 1"
                )
        if self.heads % self.kv_heads:
            raise InputError(
                f"{self.name}: {self.heads} heads do not divide into "
                f"{self.kv_heads} KV heads"
            )
        if self.experts and not 1 <= self.experts_per_token <= self.experts:
            raise InputError(
                f"{self.name}: experts_per_token is {self.experts_per_token}; "
                f"expected 1 to {self.experts}"
            )
        if self.experts and self.expert_layers < 0:
            raise InputError(
                f"{self.name}: {self.dense_layers} of {self.layers} layers are without "
                "experts; expected no more than there are"
            )
        if self.experts and self.expert_ffn < 1:
            raise InputError(f"{self.name}: expert_ffn is missing; expected >= 1")
        if self.dense_ffn < 1 and self.experts == 0:
            raise InputError(f"{self.name}: dense_ffn is missing; expected >= 1")
        if self.state_layers and (self.state is None or self.sliding_layers):
            raise InputError(
                f"{self.name}: has {self.state_layers} layers with a state; expected "
                "its shapes, and no layers with a window beside them"
            )
        if self.full_head_dim and not 0 < self.sliding_layers < self.attention_layers:
            raise InputError(
                f"{self.name}: full_head_dim is {self.full_head_dim}; expected 0 where "
                "layers are not of two kinds"
            )
        if self.index and self.index.sparse_layers > self.attention_layers:
            raise InputError(
                f"{self.name}: {self.index.sparse_layers} layers have sparse "
                f"attention; expected at most {self.attention_layers}"
            )
        if self.growing_layers < 1:
            raise InputError(f"{self.name}: no layer has attention; expected >= 1")
        weight_dtype_named(self.weight_dtype)
        check_kv_dtype(self.kv_dtype)

    @property
    def attention_layers(self) -> int:
        """Layers with attention, windowed or not."""
        return self.layers - self.state_layers - self.ffn_only_layers

    @property
    def growing_layers(self) -> int:
        """Layers whose KV grows with the context; all, where all have a window."""
        return self.attention_layers - self.sliding_layers or self.sliding_layers

    @property
    def expert_layers(self) -> int:
        """Layers with routed experts."""
        with_ffn = self.layers - self.mixer_only_layers
        return with_ffn - self.dense_layers if self.experts else 0

    @property
    def window(self) -> int:
        """Tokens beyond which some layers attend to no more; 0 where there are none."""
        return self.sliding_window or (self.index.topk if self.index else 0)

    @property
    def is_mla(self) -> bool:
        """Whether attention is multi-head latent."""
        return self.kv_lora_rank > 0

    @property
    def attention_width(self) -> int:
        """Width of the input to the output projection of attention."""
        value = self.value_head_dim if self.is_mla else self.head_dim
        return self.heads * max(value, self.full_head_dim)

    def check_tp(self, tp: int) -> None:
        """Refuse a TP degree that does not divide the heads."""
        if tp < 1:
            raise InputError(f"TP is {tp}; expected >= 1")
        if self.heads % tp:
            raise InputError(
                f"{self.name} has {self.heads} attention heads; TP {tp} does not "
                "divide them"
            )
        if not self.is_mla and self.kv_heads % tp and tp % self.kv_heads:
            raise InputError(
                f"{self.name} has {self.kv_heads} KV heads; TP {tp} neither divides "
                "them nor is a multiple"
            )
        if self.state is not None and self.state.heads % tp:
            raise InputError(
                f"{self.name} has {self.state.heads} heads in its layers with a state; "
                f"TP {tp} does not divide them"
            )

    def kv_heads_per_gpu(self, tp: int) -> int:
        """Return KV heads on each GPU; replicated when there are fewer than GPUs."""
        return max(1, self.kv_heads // tp)

    def _attention(self, tp: int) -> _Part:
        """Return the parameters of all layers with attention."""
        windowed = self._attention_layer(tp, self.head_dim, self.kv_heads, False)
        full = windowed
        if self.full_head_dim:
            full = self._attention_layer(
                tp, self.full_head_dim, self.full_kv_heads, self.full_key_is_value
            )
        others = self.attention_layers - self.sliding_layers
        pairs = zip(windowed, full, strict=True)
        return _Part(*(self.sliding_layers * a + others * b for a, b in pairs))

    def _attention_layer(
        self, tp: int, head_dim: int, kv_heads: int, key_is_value: bool
    ) -> _Part:
        hidden, heads = self.hidden, self.heads / tp
        if self.is_mla:
            query_dim = self.head_dim + self.rope_head_dim
            norm = self.kv_lora_rank + self.q_lora_rank
            down = hidden * (norm + self.rope_head_dim)
            query = (self.q_lora_rank or hidden) * heads * query_dim
            up = self.kv_lora_rank * heads * (self.head_dim + self.value_head_dim)
            out = heads * self.value_head_dim * hidden
            return _Part(down + query + up + out, 0, 0, norm)
        keys = max(1, kv_heads // tp) * (1 if key_is_value else 2)
        width = (heads * (1 + self.attention_gate) + keys) * head_dim
        plain = self.qkv_bias * width + self.out_bias * hidden
        plain += self.head_norm * 2 * head_dim + self.sinks * heads
        plain += self.heads_norm * (heads + keys / 2) * head_dim
        return _Part(hidden * width + heads * head_dim * hidden, 0, 0, plain)

    def _ffn(self, inner: int, biased: bool) -> tuple[float, float]:
        """Return matrix and bias parameters of one feed-forward."""
        ups = 2 if self.gated else 1
        biases = biased * (ups * inner + self.hidden)
        return (ups + 1) * inner * self.hidden, biases

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
        expert, expert_bias = self._ffn(self.expert_ffn, self.expert_bias)
        shared, _ = self._ffn(self.shared_ffn, False)
        router = (self.hidden + self.router_bias) * self.experts
        router += self.shared_gate * self.hidden
        mixers = attention.mixer
        matrix = dense_layers * dense / tp + expert_layers * shared / tp
        plain = attention.plain + self.layers * norms
        plain += dense_layers * dense_bias / tp
        plain += expert_layers * (router + experts * expert_bias / split)
        if self.state is not None:
            mixers += self.state_layers * self.state.matrix_parameters(self.hidden) / tp
            plain += self.state_layers * self.state.plain_parameters / tp
        if self.index is not None:
            mixers += self.index.layers * self.index.matrix_parameters(self.hidden)
            plain += self.index.layers * self.index.plain_parameters(self.hidden)
        return _Part(mixers, matrix, expert_layers * experts * expert / split, plain)

    def _per_gpu(self, tp: int, expert_gpus: float = 0) -> _Part:
        layers = self._layers(tp, self.experts, expert_gpus)
        tables = 1 if self.tied_embeddings else 2
        plain = layers.plain + self.hidden * self.norm_width_factor
        plain += tables * self.vocab * self.hidden / tp
        plain += self.learned_positions * self.hidden
        return layers._replace(plain=plain)

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
        dtype = weight_dtype_named(dtype or self.weight_dtype)
        part = self._per_gpu(tp, expert_gpus)
        quantized = self._quantized(part, dtype)
        plain_bytes = (sum(part) - quantized) * UNQUANTIZED_BYTES
        return round(quantized * QUANTIZED_BYTES[dtype] + plain_bytes)

    def active_quantized_count(self, dtype: str) -> int:
        """Return the quantized ones among the active parameters."""
        return round(self._quantized(self._layers(1, self.experts_per_token), dtype))

    def _quantized(self, part: _Part, dtype: str) -> float:
        """Return the parameters in matrices that a dtype quantizes."""
        if self.experts > 0 and dtype in ("mxfp4", "int4_g32"):
            return part.expert
        unlike = self.is_mla or self.state_layers > 0 or self.full_head_dim > 0
        keeps_mixers = dtype == "nvfp4" and unlike
        return part.expert + part.matrix + (0 if keeps_mixers else part.mixer)

    def weight_bytes(self, tp: int = 1, dtype: str | None = None) -> int:
        """Return the weights of a replica, replicated parts included. [bytes]"""
        return tp * self.weight_bytes_per_gpu(tp, dtype)

    def kv_bytes_per_token_per_gpu(self, tp: int = 1, kv_dtype: str = "bf16") -> int:
        """Return the KV of one token of context on each GPU. [bytes]

        Only of the layers whose KV grows with the context, see :mod:`.kv_groups` for
        the others. Compressed KV (MLA) is replicated.
        """
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
        if self.is_mla:
            return (self.kv_lora_rank + self.rope_head_dim) * element_bytes
        if self.full_head_dim and not windowed:
            kv_heads, head_dim = max(1, self.full_kv_heads // tp), self.full_head_dim
        else:
            kv_heads, head_dim = self.kv_heads_per_gpu(tp), self.head_dim
        return 2 * kv_heads * head_dim * element_bytes

    def kv_bytes_per_token(self, kv_dtype: str = "bf16") -> int:
        """Return the KV of one token of context without replication. [bytes]"""
        return self.kv_bytes_per_token_per_gpu(1, kv_dtype)

    def flops_per_token(self, context_tokens: float = 0.0) -> float:
        """Return the arithmetic of one token with this context. [FLOP]

        Two per active parameter, and for each token of context that a layer looks at
        one product with its key and one with its value.
        """
        key = self.head_dim + (self.rope_head_dim if self.is_mla else 0)
        value = self.value_head_dim if self.is_mla else self.head_dim
        full = 2 * self.full_head_dim or key + value
        seen = min(context_tokens, self.sliding_window) * (key + value)
        pairs = self.sliding_layers * seen
        sparse_layers = self.index.sparse_layers if self.index else 0
        pairs += sparse_layers * min(context_tokens, self.window) * full
        others = self.attention_layers - self.sliding_layers - sparse_layers
        pairs += others * context_tokens * full
        score_flops = self.index.flops(context_tokens) if self.index else 0.0
        return 2.0 * self.active_parameter_count + 2 * self.heads * pairs + score_flops
