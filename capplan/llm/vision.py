"""Vision encoders: a transformer over patches, whose merged patches are image tokens.

Shapes from ``vision_config`` of a Hugging Face ``config.json``, as vLLM 0.32 builds
them (``qwen3_vl.py``, also of Qwen3.5; ``kimi_k25_vit.py``): every patch of an image
attends to all of it, and ``merge`` x ``merge`` patches become a token in two linear
layers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from capplan.errors import InputError, check_at_least
from capplan.llm.config_fields import Fields

_ELEMENT_BYTES = 2
_QWEN = frozenset(
    {"qwen3_vl_text", "qwen3_vl_moe_text", "qwen3_5_text", "qwen3_5_moe_text"}
)
_QWEN_PIXELS = 16_777_216
"""Largest image of Qwen3-VL and Qwen3.5 (preprocessor_config.json, longest_edge)."""
_KIMI_PATCHES = 16_384
"""Most patches of an image of Kimi-K2.5 (preprocessor_config.json, in_patch_limit)."""


@dataclass(frozen=True)
class VisionEncoder:
    """Shapes of a vision encoder."""

    layers: int
    hidden: int
    heads: int
    ffn: int  # inner width of the feed-forward, of two matrices
    patch_values: int  # that a patch has: pixels, colours, repetitions
    merge: int  # side of the square of patches that become a token
    out: int  # width of a token, that of the LLM
    outputs: int  # tokens beside each other: one, and one for each layer of deepstack
    max_image_tokens: int  # larger images are scaled down [tokens]

    def __post_init__(self) -> None:
        """Refuse shapes that make no encoder."""
        shapes = "layers", "hidden", "heads", "ffn", "merge", "out", "outputs"
        check_at_least(1, self, *shapes, where="vision encoder: ")

    @property
    def _layer_matrices(self) -> int:
        return 4 * self.hidden**2 + 2 * self.hidden * self.ffn

    @property
    def _merged(self) -> int:
        return self.merge**2 * self.hidden

    @property
    def _merger(self) -> int:
        return self._merged * (self._merged + self.out)

    @property
    def parameter_count(self) -> int:
        """Parameters, but norms, biases and positions."""
        patches = self.patch_values * self.hidden
        return (
            self.layers * self._layer_matrices + self.outputs * self._merger + patches
        )

    def weight_bytes_per_gpu(self, tp: int) -> int:
        """Return the weights on each of ``tp`` GPUs that split them. [bytes]"""
        return -(-self.parameter_count // tp) * _ELEMENT_BYTES

    @property
    def token_bytes(self) -> int:
        """Memory of a token in the encoder cache. [bytes]"""
        return self.outputs * self.out * _ELEMENT_BYTES

    @property
    def token_flops(self) -> float:
        """Arithmetic of the matrices for an image token. [FLOP]"""
        patch = self.layers * self._layer_matrices + self.patch_values * self.hidden
        return 2.0 * (self.merge**2 * patch + self.outputs * self._merger)

    @property
    def pair_flops(self) -> float:
        """Arithmetic of attention for a pair of tokens of one image. [FLOP]"""
        return 4.0 * self.layers * self.hidden * self.merge**4

    @property
    def reduced_bytes(self) -> int:
        """Bytes of an image token that an all-reduce sums. [bytes]"""
        return self.merge**2 * self.hidden * _ELEMENT_BYTES

    def check_split(self, tp: int) -> None:
        """Refuse GPUs among which the heads do not divide."""
        if self.heads % tp:
            raise InputError(
                f"the {self.heads} heads of the vision encoder do not divide into TP "
                f"{tp}; expected --mm-encoder-tp-mode data"
            )


def vision_encoder(
    config: Mapping[str, Any], kind: str, source: str
) -> VisionEncoder | None:
    """Return the vision encoder of a config; None without one that is modelled.

    ``kind`` is the ``model_type`` of the text part.
    """
    given = config.get("vision_config")
    if not isinstance(given, Mapping):
        return None
    fields = Fields(given, f"{source}: vision_config")
    if fields.whole("vt_hidden_size", 0):
        (merge, *_) = fields.several("merge_kernel_size") or [2]
        patch = fields.whole("patch_size", 14)
        return VisionEncoder(
            layers=fields.whole("vt_num_hidden_layers"),
            hidden=fields.whole("vt_hidden_size"),
            heads=fields.whole("vt_num_attention_heads"),
            ffn=fields.whole("vt_intermediate_size"),
            patch_values=3 * patch**2,
            merge=merge,
            out=fields.whole("text_hidden_size"),
            outputs=1,
            max_image_tokens=_KIMI_PATCHES // merge**2,
        )
    if kind not in _QWEN:
        return None
    patch = fields.whole("patch_size", 16)
    merge = fields.whole("spatial_merge_size", 2)
    return VisionEncoder(
        layers=fields.whole("depth"),
        hidden=fields.whole("hidden_size"),
        heads=fields.whole("num_heads"),
        ffn=fields.whole("intermediate_size"),
        patch_values=3 * fields.whole("temporal_patch_size", 2) * patch**2,
        merge=merge,
        out=fields.whole("out_hidden_size"),
        outputs=1 + len(fields.several("deepstack_visual_indexes")),
        max_image_tokens=_QWEN_PIXELS // (patch * merge) ** 2,
    )
