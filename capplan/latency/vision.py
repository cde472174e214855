"""Roofline estimate of how long a vision encoder takes, from shapes and data sheets.

Matrices and attention have the shares of the tensor-core rate that kernels of LLMs
reach; small kernels and all-reduces of a layer take as long as an LLM's.
"""

from typing import NamedTuple

from capplan.fleet.gpu import Gpu
from capplan.latency.roofline import dense_flops_per_s, efficiency_of, link_bytes_per_s
from capplan.llm.vision import VisionEncoder


class EncodeTimes(NamedTuple):
    """Times of a vision encoder."""

    call_s: float  # whatever is encoded [s]
    token_s: float  # for each image token [s]
    token_pair_s: float  # for each pair of tokens of one image [s]


def encode_times(
    vision: VisionEncoder, gpu: Gpu, tp: int, *, by_image: bool
) -> EncodeTimes:
    """Return the times of an encoder on the GPUs of a replica.

    They split its matrices by heads, with two all-reduces a layer; ``by_image``: each
    has all of it and encodes whole images.
    """
    efficiency = efficiency_of(gpu)
    split = 1 if by_image else tp
    rate = split * dense_flops_per_s(gpu, "bf16")
    call_s = vision.layers * efficiency.layer_s
    token_s = vision.token_flops / (rate * efficiency.arithmetic)
    if split > 1:
        reduced_s = vision.reduced_bytes / link_bytes_per_s(gpu, tp, efficiency)
        call_s += 2 * vision.layers * efficiency.all_reduce_s
        token_s += 2 * vision.layers * 2 * (tp - 1) / tp * reduced_s
    return EncodeTimes(
        call_s, token_s, vision.pair_flops / (rate * efficiency.attention)
    )
