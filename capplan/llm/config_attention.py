"""Read the attention and the states of an LLM from its ``config.json``."""

from collections.abc import Mapping
from typing import Any

from capplan.errors import InputError
from capplan.llm.compressed_attention import CompressedAttention
from capplan.llm.config_fields import NAMES, Fields
from capplan.llm.sparse_index import SparseIndex
from capplan.llm.state_layer import StateLayer

TYPES: Mapping[str, Mapping[str, Any]] = NAMES["types"]
"""What is read of types of models, where it is not as of Llama."""
_STATEFUL = sorted(kind for kind, of in TYPES.items() if of.get("state"))
_SPARSE = sorted(kind for kind, of in TYPES.items() if "index" in of)
_REPLACED = ("replace_with_linear", "sparsify", "window_length")

_WINDOWED = ("sliding_attention", "chunked_attention")
_LAYERS = ("full_attention", *_WINDOWED)
"""Kinds of layers whose KV is modelled."""
_SPARSE_LAYERS = ["deepseek_sparse_attention", "minimax_m3_sparse"]


def attention(kind: str, fields: Fields) -> dict[str, Any]:
    """Return the shapes of attention and states by the type of a model."""
    layers = fields.whole("num_hidden_layers")
    shapes = _latent_attention(fields) if fields.whole("kv_lora_rank", 0) else {}
    if kind == "deepseek_v4":
        return shapes | _compressed(fields)
    shapes |= _sliding(kind, fields, layers)
    if kind in _SPARSE:
        shapes["index"] = _index(kind, fields)
    if kind == "gemma4_text":
        shapes |= _two_widths(fields)
    if kind.startswith("mimo_v2"):
        shapes |= _other_windows(fields, layers)
    if kind == "step3p5":
        shapes |= _more_heads(fields)
    if kind == "nemotron-nas":
        shapes |= _pruned(fields, layers)
    if kind == "kimi_linear":
        shapes |= _key_gated(fields)
    elif kind in _STATEFUL:
        shapes |= _mixers(kind, fields)
    return shapes


def check_attention(model: str, config: Mapping[str, Any], source: str) -> None:
    """Refuse attention whose KV is not that of a token in each layer."""
    layer_types = Fields(config, source).several("layer_types")
    kinds = dict.fromkeys(str(kind) for kind in layer_types)
    known, read = list(_LAYERS), list(TYPES.get(model, {}).get("beside", ()))
    if model in _STATEFUL:
        known.append("linear_attention")
        read += ["state-space layers", "linear attention"]
    if model in _SPARSE:
        known += _SPARSE_LAYERS
        read.append("sparse attention with an index")
    unknown = [f"{kind} layers" for kind in kinds if kind not in known]
    unknown += [
        f"{what} ({name})"
        for name, value in config.items()
        for start, what in NAMES["layers"].items()
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
            f"{', '.join(_STATEFUL)}, and of sparse attention in "
            f"{', '.join(_SPARSE)}"
        )


def _latent_attention(fields: Fields) -> dict[str, Any]:
    heads = fields.whole("num_attention_heads")
    width = fields.whole("q_lora_rank", 0)
    return {"kv_heads": heads, "q_lora_rank": width, **fields.shapes("latent")}


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
    if TYPES[kind]["index"] == "latent":
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
            weighted=True,
            **fields.shapes("index"),
        )
    sparse = fields.inside("sparse_attention_config")
    indexed = sparse.several("sparse_attention_freq").count(1)
    return SparseIndex(
        layers=indexed,
        sparse_layers=indexed,
        **sparse.shapes("block_index"),
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
            **fields.shapes("compressed"),
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
                **fields.shapes("delta_state"),
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
            **fields.shapes("mamba_state"), element_bytes=element_bytes
        ),
    }


def _other_windows(fields: Fields, layers: int) -> dict[str, Any]:
    """Return the two kinds of layers of MiMo-V2: those with a window have other KV."""
    pattern = fields.several("hybrid_layer_pattern")  # 1: a window
    if len(pattern) != layers:
        raise InputError(
            f"{fields.source}: hybrid_layer_pattern is of {len(pattern)} layers; "
            f"expected {layers}"
        )
    return {
        "sliding_layers": pattern.count(1),
        "sliding_window": fields.first("sliding_window", "sliding_window_size"),
        **fields.shapes("windows"),
    }


def _more_heads(fields: Fields) -> dict[str, Any]:
    """Return what Step has beside windows: other query heads there, gates of heads."""
    others = fields.inside("attention_other_setting")
    has_others = fields.get("attention_other_setting") is not None
    gated = fields.flag("use_head_wise_attn_gate", has_others)
    return {"sliding_heads": others.whole("num_attention_heads", 0), "head_gate": gated}


def _pruned(fields: Fields, layers: int) -> dict[str, Any]:
    """Return the layers of Llama-Nemotron, some without attention or feed-forward.

    The inner width of the feed-forwards is their mean, as vLLM's ``nemotron_nas.py``
    rounds each to a multiple of 256.
    """
    heads, hidden = fields.whole("num_attention_heads"), fields.whole("hidden_size")
    blocks = fields.several("block_configs")
    attends = [b["attention"] for b in blocks if not b["attention"].get("no_op")]
    ffns = [b["ffn"] for b in blocks if not b["ffn"].get("no_op")]
    kv_heads = {heads // int(part.get("n_heads_in_group") or 1) for part in attends}
    replaced = any(part.get(name) for part in attends + ffns for name in _REPLACED)
    if replaced or len(blocks) != layers or len(kv_heads) != 1 or not ffns:
        raise InputError(
            f"{fields.source}: block_configs are {len(blocks)} layers of KV heads "
            f"{sorted(kv_heads)}; expected {layers} of one number of KV heads, none "
            f"with {', '.join(_REPLACED)}"
        )
    widths = [
        part.get("intermediate_size") or int(2 * part["ffn_mult"] * hidden / 3)
        for part in ffns
    ]
    both = [b["attention"].get("no_op") and b["ffn"].get("no_op") for b in blocks]
    layers -= sum(map(bool, both))
    return {
        "layers": layers,
        "kv_heads": kv_heads.pop(),
        "dense_ffn": round(sum(-(-x // 256) * 256 for x in widths) / len(widths)),
        "ffn_only_layers": layers - len(attends),
        "mixer_only_layers": layers - len(ffns),
    }


def _key_gated(fields: Fields) -> dict[str, Any]:
    """Return the layers of Kimi Delta Attention beside latent attention with a gate."""
    nested = fields.get("linear_attn_config")
    linear = Fields(
        nested if isinstance(nested, Mapping) else {},
        f"{fields.source}: linear_attn_config",
    )
    heads, width = linear.whole("num_heads"), linear.whole("head_dim")
    return {
        "attention_gate": fields.flag("mla_use_output_gate", False),
        # Weights and norms of two more sums over the layers before.
        "norms_per_layer": 6 if fields.whole("attn_res_block_size", 0) else 2,
        "state_layers": len(linear.several("kda_layers")),
        "state": StateLayer(
            heads=heads,
            head_dim=width,
            groups=heads,
            state_dim=width,
            kernel=linear.whole("short_conv_kernel_size"),
            element_bytes=4,
            gated_delta=True,
            key_gate=True,
            full_gate=linear.flag("use_full_rank_gate", False),
        ),
    }
