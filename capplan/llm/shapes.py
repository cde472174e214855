"""Shapes of an LLM, checked as they are given."""

from dataclasses import dataclass

from capplan.errors import InputError, check_at_least
from capplan.llm.compressed_attention import CompressedAttention
from capplan.llm.dtypes import check_kv_dtype, weight_dtype_named
from capplan.llm.sparse_index import SparseIndex
from capplan.llm.state_layer import StateLayer
from capplan.llm.vision import VisionEncoder

_COUNTS = ("layers", "hidden", "heads", "kv_heads", "head_dim", "vocab")


@dataclass(frozen=True)
class Shapes:
    """Shapes of a decoder-only transformer, some of whose layers may hold a state."""

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
    expert_hidden: int = 0  # of its input and output, projected; ``hidden`` when 0
    shared_ffn: int = 0  # summed inner width of the shared experts
    dense_layers: int = 0  # layers without experts in a model with experts
    # Multi-head latent attention (DeepSeek); 0 for ordinary attention.
    kv_lora_rank: int = 0  # width of the compressed KV
    q_lora_rank: int = 0  # width of the compressed query
    rope_head_dim: int = 0  # rotary part of a key
    value_head_dim: int = 0  # as ``head_dim`` when 0
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
    attention_gate: bool = False  # a gate as wide as all heads, beside the queries
    head_gate: bool = False  # a gate for each head
    shared_gate: bool = False  # the shared experts have a gate
    sliding_window: int = 0  # or chunk, beyond which such layers do not look [tokens]
    sliding_layers: int = 0
    sliding_heads: int = 0  # query heads of such layers; ``heads`` when 0
    # Of the layers with full attention, where their heads differ from those of layers
    # with a window (Gemma 4); else 0.
    full_head_dim: int = 0
    full_kv_heads: int = 0
    full_key_is_value: bool = False  # one projection gives both
    index: SparseIndex | None = None  # by which layers choose what they attend to
    compressed: CompressedAttention | None = None  # in all layers (DeepSeek-V4)
    residual_streams: int = 1  # mixed before and after each part (hyper-connections)
    state: StateLayer | None = None  # of the layers with a recurrent state
    state_layers: int = 0
    ffn_only_layers: int = 0  # layers without attention and state
    mixer_only_layers: int = 0  # layers without a feed-forward
    mtp_layers: int = 0  # that predict further tokens, not among ``layers``
    vision: VisionEncoder | None = None  # counted where an engine encodes images
    weight_dtype: str = "bf16"  # of the published checkpoint
    # Of a checkpoint in several: attention and states, other matrices but experts, the
    # output embedding; as ``QUANTIZED_BYTES`` says where empty.
    mixer_dtype: str = ""
    matrix_dtype: str = ""
    head_dtype: str = ""
    kv_dtype: str = "bf16"  # that engines take by default, as the checkpoint states
    source: str = ""  # of the shapes

    def __post_init__(self) -> None:
        """Refuse shapes that do not make a transformer."""
        check_at_least(1, self, *_COUNTS, where=f"{self.name}: ")
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
        for dtype in (self.mixer_dtype, self.matrix_dtype, self.head_dtype):
            weight_dtype_named(dtype or self.weight_dtype)
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
    def routed_hidden(self) -> int:
        """Width of the input and output of a routed expert."""
        return self.expert_hidden or self.hidden

    @property
    def expert_layers(self) -> int:
        """Layers with routed experts."""
        with_ffn = self.layers - self.mixer_only_layers
        return with_ffn - self.dense_layers if self.experts else 0

    @property
    def window(self) -> int:
        """Tokens beyond which some layers attend to no more; 0 where there are none."""
        if self.compressed is not None:
            return 4 * self.compressed.topk
        return self.sliding_window or (self.index.topk if self.index else 0)

    @property
    def is_mla(self) -> bool:
        """Whether attention is multi-head latent."""
        return self.kv_lora_rank > 0

    @property
    def attention_width(self) -> int:
        """Width of the input to the output projection of attention."""
        value = self.value_head_dim or max(self.head_dim, self.full_head_dim)
        return max(self.heads, self.sliding_heads) * value

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
        if self.compressed is not None and self.compressed.o_groups % tp:
            raise InputError(
                f"{self.name} has {self.compressed.o_groups} groups of heads; TP {tp} "
                "does not divide them"
            )
        if self.state is not None and self.state.heads % tp:
            raise InputError(
                f"{self.name} has {self.state.heads} heads in its layers with a state; "
                f"TP {tp} does not divide them"
            )

    def kv_heads_per_gpu(self, tp: int) -> int:
        """Return KV heads on each GPU; replicated when there are fewer than GPUs."""
        return max(1, self.kv_heads // tp)
