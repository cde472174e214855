"""Read the shapes of an LLM from its Hugging Face ``config.json``."""

from collections.abc import Mapping
from typing import Any

from capplan.errors import warn
from capplan.llm.architecture import Architecture
from capplan.llm.config_attention import SPARSE, STATEFUL, attention, check_attention
from capplan.llm.config_fields import Fields
from capplan.llm.quantization_config import kv_dtype, weight_dtypes
from capplan.llm.vision import vision_encoder

_PLAIN = ("llama", "mistral", "qwen2", "qwen3", "phi3", "gemma")
_KNOWN = frozenset(_PLAIN) | {"gemma2", "gemma3_text", "mixtral", "qwen3_moe"}
_KNOWN |= {"gpt_oss", "opt", "deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe"}
_KNOWN |= STATEFUL | {"llama4_text", "qwen3_vl_text", "qwen3_vl_moe_text"}
_KNOWN |= SPARSE | {"gemma4_text", "minimax_m2", "glm4_moe_lite", "deepseek_v4"}
_KNOWN |= {"mimo_v2_flash", "mimo_v2", "step3p5", "nemotron-nas", "ministral3"}
_KNOWN |= {"mistral4", "glm4v_moe_text", "qwen2_5_vl", "qwen2_5_vl_text"}
_BY_CLASS = {
    "DeepseekV4ForCausalLM": "deepseek_v4",
    "MiMoV2FlashForCausalLM": "mimo_v2_flash",
    "MiMoV2ForCausalLM": "mimo_v2",
    "MiniMaxM3SparseForCausalLM": "minimax_m3",
    "Step3p5ForCausalLM": "step3p5",
    "Step3p7FlashForCausalLM": "step3p5",
}
"""Types of models by ``architectures``, where ``model_type`` is not known."""

_RENAMED = {
    "max_seq_len": "max_position_embeddings",
    "moe_num_experts": "num_experts",
    "moe_top_k": "num_experts_per_tok",
    "num_attention_groups": "num_key_value_heads",
    "num_experts_per_token": "num_experts_per_tok",
    "num_mtp_modules": "num_nextn_predict_layers",
    "num_shared_experts": "n_shared_experts",
    "routed_expert_hidden_size": "moe_latent_size",
    "share_expert_dim": "shared_expert_intermediate_size",
}
"""Names of Kimi-Linear, MiniMax and Step for what others name so."""
_NEMOTRON_H = {"mamba": "M", "attention": "*", "moe": "E", "mlp": "-"}

_FOUR_NORMS = ("gemma2", "gemma3_text", "gemma4_text")
_BIASED_ROUTERS = frozenset({"gpt_oss", "deepseek_v3", "kimi_k2", "glm4_moe"})
_BIASED_ROUTERS |= {"nemotron_h", *SPARSE, "gemma4_text", "minimax_m2"}
_BIASED_ROUTERS |= {"glm4_moe_lite", "deepseek_v4", "mimo_v2_flash", "mimo_v2"}
_BIASED_ROUTERS |= {"step3p5", "kimi_linear", "glm4v_moe_text"}

_WITHOUT_FFN = {kind for kind in _KNOWN if "moe" in kind}
_WITHOUT_FFN |= {"deepseek_v4", "nemotron-nas"}

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
        warn(
            f"{source}: only the text part is counted; a vision tower's weights "
            "come on top"
        )
        quantized = config.get("quantization_config")
        config = dict(config["text_config"])
        config.setdefault("quantization_config", quantized)
    kind = str(config.get("model_type", ""))
    if kind not in _KNOWN:
        kind = _BY_CLASS.get(str(*(config.get("architectures") or ("",))[:1]), kind)
    if kind not in _KNOWN:
        warn(
            f"{source}: model_type {kind!r} is not known; its shapes are read as "
            "those of a model like Llama"
        )
    check_attention(kind, config, source)
    fields = Fields(_plainly_named(config, source), source)
    shapes = _llama_like(kind, fields) | _biases_and_norms(kind, fields)
    if experts := fields.first("num_local_experts", "num_experts", "n_routed_experts"):
        shapes |= _experts(kind, fields, experts)
    shapes["mtp_layers"] = fields.first(
        "num_nextn_predict_layers", "mtp_num_hidden_layers"
    )
    shapes |= attention(kind, fields)
    shapes["vision"] = vision_encoder(whole, kind, source)
    shapes = {"kv_dtype": kv_dtype(fields)} | weight_dtypes(fields) | shapes
    return Architecture(name=name, source=source, **shapes)


def _plainly_named(config: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return a config with the names and notations of others."""
    plain = dict(config)
    for name, usual in _RENAMED.items():
        if plain.get(usual) is None and name in plain:
            plain[usual] = plain[name]
    kinds = Fields(config, source).several("layers_block_type")
    if kinds and not plain.get("hybrid_override_pattern"):
        letters = [_NEMOTRON_H.get(str(kind), "?") for kind in kinds]
        plain["hybrid_override_pattern"] = "".join(letters)
        plain.setdefault("num_hidden_layers", len(kinds))
    return plain


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
        "dense_ffn": fields.whole(ffn, 0 if kind in _WITHOUT_FFN else None),
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
        "qkv_bias": attention_bias or kind.startswith("qwen2"),
        "out_bias": attention_bias and kind not in ("glm4_moe", "glm4v_moe_text"),
        "head_norm": kind.startswith("qwen3")
        or kind in ("gemma3_text", "gemma4_text", "minimax_m3", "step3p5")
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
        "dense_layers": _dense_layers(fields, layers),
        "expert_hidden": fields.whole("moe_latent_size", 0),
        "expert_bias": kind == "gpt_oss",
        "router_bias": kind in _BIASED_ROUTERS,
    }


def _dense_layers(fields: Fields, layers: int) -> int:
    """Return the layers without experts, whatever the notation."""
    listed = fields.get("moe_layer_freq")
    if isinstance(listed, list) and len(listed) == layers:
        return listed.count(0)
    if numbers := fields.get("moe_layers_enum"):
        with_experts = {int(n) for n in str(numbers).split(",")}
        return layers - len(with_experts & set(range(layers)))
    step = fields.first("decoder_sparse_step", "interleave_moe_layer_step") or 1
    only_dense = fields.several("mlp_only_layers")
    dense = sum(i in only_dense or (i + 1) % step != 0 for i in range(layers))
    return dense + fields.whole("first_k_dense_replace", 0)
