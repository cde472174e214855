"""Read the shapes of an LLM from its Hugging Face ``config.json``."""

from collections.abc import Mapping
from typing import Any

from capplan.errors import warn
from capplan.llm.architecture import Architecture
from capplan.llm.config_attention import TYPES, attention, check_attention
from capplan.llm.config_fields import NAMES, Fields
from capplan.llm.quantization_config import kv_dtype, weight_dtypes
from capplan.llm.vision import vision_encoder

_NEMOTRON_H = {"mamba": "M", "attention": "*", "moe": "E", "mlp": "-"}


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
    if kind not in TYPES:
        named = str(*(config.get("architectures") or ("",))[:1])
        kind = NAMES["classes"].get(named, kind)
    if kind not in TYPES:
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
    for name, usual in NAMES["renamed"].items():
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
    of = TYPES.get(kind, {})
    ffn = of.get("ffn", "intermediate_size")
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
        "dense_ffn": fields.whole(ffn, 0 if of.get("no_ffn") else None),
        "tied_embeddings": fields.flag("tie_word_embeddings", tied_by_default),
        "max_positions": fields.whole("max_position_embeddings", positions),
    }
    if kind == "opt":
        shapes["learned_positions"] = shapes["max_positions"] + 2  # two padding rows
    return shapes


def _biases_and_norms(kind: str, fields: Fields) -> dict[str, Any]:
    of = TYPES.get(kind, {})
    attention_bias = fields.flag("attention_bias", kind in ("opt", "gpt_oss"))
    return {
        "gated": kind != "opt",
        "qkv_bias": attention_bias or kind.startswith("qwen2"),
        "out_bias": attention_bias and kind not in ("glm4_moe", "glm4v_moe_text"),
        "head_norm": kind.startswith("qwen3")
        or of.get("head_norm", False)
        or (kind == "glm4_moe" and fields.flag("use_qk_norm", False)),
        "heads_norm": kind == "minimax_m2",
        "norms_per_layer": of.get("norms", 2),
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
        "router_bias": TYPES.get(kind, {}).get("router_bias", False),
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
