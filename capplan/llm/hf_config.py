"""Read the shapes of an LLM from its Hugging Face ``config.json``."""

import warnings
from collections.abc import Mapping
from typing import Any

from capplan.errors import CapplanWarning, InputError
from capplan.llm.architecture import Architecture
from capplan.llm.compressed_attention import CompressedAttention
from capplan.llm.config_fields import Fields
from capplan.llm.quantization_config import kv_dtype, weight_dtypes
from capplan.llm.sparse_index import SparseIndex
from capplan.llm.state_layer import StateLayer
from capplan.llm.vision import vision_encoder

_PLAIN = ("llama", "mistral", "qwen2", "qwen3", "phi3", "gemma")
_KNOWN = frozenset(_PLAIN) | {"gemma2", "gemma3_text", "mixtral", "qwen3_moe"}
_KNOWN |= {"gpt_oss", "opt", "deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe"}
_STATEFUL = frozenset({"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "nemotron_h"})
_KNOWN |= _STATEFUL | {"llama4_text", "qwen3_vl_text", "qwen3_vl_moe_text"}
_SPARSE_LATENT = frozenset({"deepseek_v32", "glm_moe_dsa"})
_SPARSE = _SPARSE_LATENT | {"minimax_m3"}
_KNOWN |= _SPARSE | {"gemma4_text", "minimax_m2", "glm4_moe_lite", "deepseek_v4"}
_BY_CLASS = {"DeepseekV4ForCausalLM": "deepseek_v4"}
"""Types of models by ``architectures``, where ``model_type`` is not known."""

_WINDOWED = ("sliding_attention", "chunked_attention")
_LAYERS = ("full_attention", *_WINDOWED)
"""Kinds of layers whose KV is modelled."""
_OTHER_ATTENTION = {
    "mamba": "state-space layers",
    "ssm": "state-space layers",
    "state_size": "state-space layers",
    "hybrid_override_pattern": "state-space layers",
    "linear_num_": "linear attention",
    "linear_attn": "linear attention",
    "full_attention_interval": "linear attention",
    "attn_type_list": "linear attention",
    "rwkv": "linear attention",
    "index_topk": "sparse attention with an index",
    "sparse_attention_config": "sparse attention with an index",
    "global_head_dim": "attention of two widths",
    "num_kv_shared_layers": "layers that share their KV",
    "hidden_size_per_layer_input": "an embedding in each layer",
    "swa_num_key_value_heads": "attention of two widths",
    "block_configs": "layers of different widths",
    "moe_latent_size": "experts of a latent width",
}
"""What fields that begin so say of the layers."""
_STATES = ("state-space layers", "linear attention")
_READ: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_STATEFUL, _STATES),
    **dict.fromkeys(_SPARSE, ("sparse attention with an index",)),
    "gemma4_text": ("attention of two widths",),
    "deepseek_v4": ("sparse attention with an index",),
}
"""What is read of the layers of some types of models."""
_SPARSE_LAYERS = ["deepseek_sparse_attention", "minimax_m3_sparse"]

_FOUR_NORMS = ("gemma2", "gemma3_text", "gemma4_text")
_BIASED_ROUTERS = frozenset({"gpt_oss", "deepseek_v3", "kimi_k2", "glm4_moe"})
_BIASED_ROUTERS |= {"nemotron_h", *_SPARSE, "gemma4_text", "minimax_m2"}
_BIASED_ROUTERS |= {"glm4_moe_lite", "deepseek_v4"}

_ALL_EXPERTS = frozenset(kind for kind in _KNOWN if "moe" in kind) | {"deepseek_v4"}

_FFN = {
    "opt": "ffn_dim",
    "llama4_text": "intermediate_size_mlp",
    "minimax_m3": "dense_intermediate_size",
}
"""Names of ``intermediate_size`` in some types of models."""


def from_config(config: Mapping[str, Any], name: str, source: str) -> Architecture:
    """Return the architecture that a Hugging Face config describes.

    Warn when the model type is unknown, and read like Llama's, or only the text part
    of a model is read. ``source`` is the path of the config, for messages.
    """
    whole = config
    if isinstance(config.get("text_config"), Mapping):
        warnings.warn(
            f"{source}: only the text part is counted; a vision tower's weights "
            "come on top",
            CapplanWarning,
            stacklevel=2,
        )
        quantized = config.get("quantization_config")
        config = dict(config["text_config"])
        config.setdefault("quantization_config", quantized)
    kind = str(config.get("model_type", ""))
    if kind not in _KNOWN:
        kind = _BY_CLASS.get(str(*(config.get("architectures") or ("",))[:1]), kind)
    if kind not in _KNOWN:
        warnings.warn(
            f"{source}: model_type {kind!r} is not known; its shapes are read as "
            "those of a model like Llama",
            CapplanWarning,
            stacklevel=2,
        )
    _check_attention(kind, config, source)
    fields = Fields(config, source)
    shapes = _llama_like(kind, fields) | _biases_and_norms(kind, fields)
    if experts := fields.first("num_local_experts", "num_experts", "n_routed_experts"):
        shapes |= _experts(kind, fields, experts)
    shapes["mtp_layers"] = fields.first(
        "num_nextn_predict_layers", "mtp_num_hidden_layers"
    )
    if fields.whole("kv_lora_rank", 0):
        shapes |= _latent_attention(fields)
    if kind == "deepseek_v4":
        shapes |= _compressed(fields)
    else:
        shapes |= _sliding(kind, fields, shapes["layers"])
    if kind in _SPARSE:
        shapes["index"] = _index(kind, fields)
    if kind == "gemma4_text":
        shapes |= _two_widths(fields)
    if kind in _STATEFUL:
        shapes |= _mixers(kind, fields)
    shapes["vision"] = vision_encoder(whole, kind, source)
    shapes = {"kv_dtype": kv_dtype(fields)} | weight_dtypes(fields) | shapes
    return Architecture(name=name, source=source, **shapes)


def _check_attention(model: str, config: Mapping[str, Any], source: str) -> None:
    """Refuse attention whose KV is not that of a token in each layer."""
    layer_types = Fields(config, source).several("layer_types")
    kinds = dict.fromkeys(str(kind) for kind in layer_types)
    read = _READ.get(model, ())
    known = list(_LAYERS)
    known += ["linear_attention"] if model in _STATEFUL else []
    known += _SPARSE_LAYERS if model in _SPARSE else []
    unknown = [f"{kind} layers" for kind in kinds if kind not in known]
    unknown += [
        f"{what} ({name})"
        for name, value in config.items()
        for start, what in _OTHER_ATTENTION.items()
        if name.startswith(start)
        and value not in (None, 0)
        and what not in read
        and not (name == "attn_type_list" and set(value) == {1})  # all full attention
    ]
    if config.get("is_encoder_decoder"):
        unknown.append("cross-attention (is_encoder_decoder)")
    if unknown:
        raise InputError(
            f"{source}: has {unknown[0]}; capplan knows the KV of "
            f"{', '.join(_LAYERS)} layers, of linear attention in "
            f"{', '.join(sorted(_STATEFUL))}, and of sparse attention in "
            f"{', '.join(sorted(_SPARSE))}"
        )


def _llama_like(kind: str, fields: Fields) -> dict[str, Any]:
    heads, hidden = fields.whole("num_attention_heads"), fields.whole("hidden_size")
    tied_by_default = kind == "opt" or kind.startswith("gemma")
    ffn = _FFN.get(kind, "intermediate_size")
    positions = 2048 if kind == "opt" else 4096
    shapes = {
        "layers": fields.whole("num_hidden_layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": fields.whole("num_key_value_heads", heads),
        "head_dim": fields.first("head_dim", "attention_head_dim")
        or hidden // max(heads, 1),
        "vocab": fields.whole("vocab_size"),
        # Of experts alone it may be left out; Architecture checks the others.
        "dense_ffn": fields.whole(
            ffn, 0 if "moe" in kind or kind == "deepseek_v4" else None
        ),
        "tied_embeddings": fields.flag("tie_word_embeddings", tied_by_default),
        "max_positions": fields.whole("max_position_embeddings", positions),
    }
    if kind == "opt":
        shapes["learned_positions"] = shapes["max_positions"] + 2  # two padding rows
    return shapes


def _biases_and_norms(kind: str, fields: Fields) -> dict[str, Any]:
    attention_bias = fields.flag("attention_bias", kind in ("opt", "gpt_oss"))
    return {
        "gated": kind != "opt",
        "qkv_bias": attention_bias or kind == "qwen2",
        "out_bias": attention_bias and kind != "glm4_moe",
        "head_norm": kind.startswith("qwen3")
        or kind in ("gemma3_text", "gemma4_text", "minimax_m3")
        or (kind == "glm4_moe" and fields.flag("use_qk_norm", False)),
        "heads_norm": kind == "minimax_m2",
        "norms_per_layer": 4 if kind in _FOUR_NORMS else 2,
        "norm_width_factor": 2 if kind == "opt" else 1,
        "sinks": kind == "gpt_oss",
        "ffn_bias": fields.flag("mlp_bias", False) or kind == "opt",
    }


def _experts(kind: str, fields: Fields, experts: int) -> dict[str, Any]:
    layers = fields.whole("num_hidden_layers")
    expert_ffn = fields.whole("moe_intermediate_size", 0)
    expert_ffn = expert_ffn or fields.whole("intermediate_size")
    dense_layers = fields.whole("first_k_dense_replace", 0)
    step = fields.first("decoder_sparse_step", "interleave_moe_layer_step") or 1
    only_dense = fields.several("mlp_only_layers")
    dense_layers += sum(i in only_dense or (i + 1) % step != 0 for i in range(layers))
    shared = fields.whole("n_shared_experts", 1 if kind == "llama4_text" else 0)
    shared_ffn = fields.first(
        "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"
    )
    return {
        "experts": experts,
        "experts_per_token": fields.first(
            "num_experts_per_tok", "experts_per_token", "top_k_experts"
        ),
        "expert_ffn": expert_ffn,
        "shared_ffn": max(shared, 1) * shared_ffn or shared * expert_ffn,
        "shared_gate": shared_ffn > 0 and kind.startswith("qwen3"),
        "dense_layers": dense_layers,
        "expert_bias": kind == "gpt_oss",
        "router_bias": kind in _BIASED_ROUTERS,
    }


def _latent_attention(fields: Fields) -> dict[str, Any]:
    heads = fields.whole("num_attention_heads")
    return {
        "kv_heads": heads,
        "head_dim": fields.whole("qk_nope_head_dim"),
        "kv_lora_rank": fields.whole("kv_lora_rank"),
        "q_lora_rank": fields.whole("q_lora_rank", 0),
        "rope_head_dim": fields.whole("qk_rope_head_dim"),
        "value_head_dim": fields.whole("v_head_dim"),
    }


def _sliding(kind: str, fields: Fields, layers: int) -> dict[str, int]:
    window = fields.first("sliding_window", "attention_chunk_size")
    if kind.startswith("qwen") and not fields.flag("use_sliding_window", False):
        window = 0
    if not window or window >= fields.whole("max_position_embeddings", 4096):
        return {}
    kinds = fields.several("layer_types")
    if kinds:
        sliding = sum(1 for layer in kinds if layer in _WINDOWED)
    elif kind in ("gemma2", "gpt_oss"):
        sliding = (layers + 1) // 2
    elif kind in ("gemma3_text", "gemma4_text"):
        sliding = layers - layers // (fields.first("sliding_window_pattern") or 6)
    elif kind == "llama4_text":
        sliding = layers - layers // 4
    else:
        sliding = layers
    return {"sliding_window": window, "sliding_layers": sliding}


def _index(kind: str, fields: Fields) -> SparseIndex:
    """Return the index of sparse attention."""
    layers = fields.whole("num_hidden_layers")
    if kind in _SPARSE_LATENT:
        kinds = fields.several("indexer_types")
        indexed = kinds.count("full")
        if not kinds:  # as in transformers' configuration of GLM-5.2
            step = max(fields.whole("index_topk_freq", 1), 1)
            skipped = fields.whole("index_skip_topk_offset", 2) - 1
            indexed = sum(
                i <= skipped or (i - skipped) % step == 0 for i in range(layers)
            )
        return SparseIndex(
            layers=indexed,
            sparse_layers=layers,
            heads=fields.whole("index_n_heads"),
            head_dim=fields.whole("index_head_dim"),
            topk=fields.whole("index_topk"),
            query_width=fields.whole("q_lora_rank"),
            weighted=True,
        )
    nested = fields.get("sparse_attention_config")
    sparse = Fields(nested if isinstance(nested, Mapping) else {}, fields.source)
    indexed = sparse.several("sparse_attention_freq").count(1)
    return SparseIndex(
        layers=indexed,
        sparse_layers=indexed,
        heads=sparse.whole("sparse_num_index_heads"),
        head_dim=sparse.whole("sparse_index_dim"),
        topk=sparse.whole("sparse_topk_blocks") * sparse.whole("sparse_block_size"),
        query_width=fields.whole("hidden_size"),
        weighted=False,
    )


def _compressed(fields: Fields) -> dict[str, Any]:
    """Return the attention of DeepSeek-V4, whose KV is in FP8 unless told otherwise."""
    layers = fields.whole("num_hidden_layers")
    ratios = fields.several("compress_ratios")[:layers]
    unknown = [ratio for ratio in ratios if ratio not in (0, 1, 4, 128)]
    if unknown or len(ratios) < layers:
        wrong = f"has {unknown[0]!r}" if unknown else f"is of {len(ratios)} layers"
        raise InputError(
            f"{fields.source}: compress_ratios {wrong}; expected 0, 4 or 128 of each "
            f"of the {layers} layers"
        )
    return {
        "kv_dtype": "fp8",
        "rope_head_dim": fields.whole("qk_rope_head_dim"),
        "residual_streams": fields.whole("hc_mult", 1),
        "compressed": CompressedAttention(
            layers=layers,
            indexed_layers=ratios.count(4),
            dense_layers=ratios.count(128),
            window=fields.whole("sliding_window"),
            heads=fields.whole("num_attention_heads"),
            head_dim=fields.whole("head_dim"),
            rope_dim=fields.whole("qk_rope_head_dim"),
            q_lora_rank=fields.whole("q_lora_rank"),
            o_lora_rank=fields.whole("o_lora_rank"),
            o_groups=fields.whole("o_groups"),
            index_heads=fields.whole("index_n_heads"),
            index_head_dim=fields.whole("index_head_dim"),
            topk=fields.whole("index_topk"),
        ),
    }


def _two_widths(fields: Fields) -> dict[str, Any]:
    """Return what Gemma 4 has beside Gemma 3: other heads in its full attention.

    A layer with experts has a feed-forward beside them, like a shared expert, norms of
    its own for both, and a scale of the router's input and of each expert.
    """
    shapes: dict[str, Any] = {
        "full_head_dim": fields.whole("global_head_dim"),
        "full_kv_heads": fields.whole("num_global_key_value_heads", 0)
        or fields.whole("num_key_value_heads"),
        "full_key_is_value": fields.flag("attention_k_eq_v", False),
    }
    if fields.first("num_experts"):
        shapes["shared_ffn"] = fields.whole("intermediate_size")
        shapes["norms_per_layer"] = 8
    return shapes


def _mixers(kind: str, fields: Fields) -> dict[str, Any]:
    """Return the layers with a recurrent state, and those with one part only."""
    single = "float32" in (
        fields.get("mamba_ssm_cache_dtype"),
        fields.get("mamba_ssm_dtype"),
    )
    element_bytes = 4 if single else 2
    layers = fields.whole("num_hidden_layers")
    if kind != "nemotron_h":
        kinds = fields.several("layer_types")
        full = layers // max(fields.whole("full_attention_interval", 4), 1)
        return {
            "attention_gate": fields.flag("attn_output_gate", True),
            "state_layers": kinds.count("linear_attention") if kinds else layers - full,
            "state": StateLayer(
                heads=fields.whole("linear_num_value_heads"),
                head_dim=fields.whole("linear_value_head_dim"),
                groups=fields.whole("linear_num_key_heads"),
                state_dim=fields.whole("linear_key_head_dim"),
                kernel=fields.whole("linear_conv_kernel_dim"),
                element_bytes=element_bytes,
                gated_delta=True,
            ),
        }
    # One letter a layer: M for Mamba-2, * for attention, - and E for feed-forwards.
    pattern = str(fields.get("hybrid_override_pattern") or "")
    if len(pattern) != layers or set(pattern) - set("M*-E"):
        raise InputError(
            f"{fields.source}: hybrid_override_pattern is {pattern!r}; expected "
            f"{layers} of the letters M, *, - and E"
        )
    return {
        "gated": False,
        "norms_per_layer": 1,
        "dense_layers": pattern.count("-"),
        "state_layers": pattern.count("M"),
        "ffn_only_layers": pattern.count("-") + pattern.count("E"),
        "mixer_only_layers": pattern.count("M") + pattern.count("*"),
        "state": StateLayer(
            heads=fields.whole("mamba_num_heads"),
            head_dim=fields.whole("mamba_head_dim"),
            groups=fields.whole("n_groups"),
            state_dim=fields.whole("ssm_state_size"),
            kernel=fields.whole("conv_kernel"),
            element_bytes=element_bytes,
        ),
    }
