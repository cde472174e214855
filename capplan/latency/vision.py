"""How long a vision encoder takes, from shapes, data sheets and one that was measured.

The encoder of Qwen3-VL-8B in vLLM 0.26 on an H100, 64 to 16,384 tokens in 1 to 16
images (``examples/studies/h100``): arithmetic of the matrices, with the norms and
rotations between them, takes 1.94 times as long as an LLM's, attention 0.96 times.
Its kernels are launched one by one, 0.5 ms a layer, which is what images of fewer than
a thousand tokens take together. Other GPUs have these factors on their own rates.
"""

from typing import NamedTuple

from capplan.fleet.gpu import Gpu
from capplan.latency.roofline import dense_flops_per_s, efficiency_of, link_bytes_per_s
from capplan.llm.vision import VisionEncoder

_TOKEN_FACTOR, _PAIR_FACTOR = 1.94, 0.96
_LAUNCH_S = 0.5e-3  # of the kernels of a layer [s]


class EncodeTimes(NamedTuple):
    """Times of a vision encoder."""

    least_s: float  # of all images of an iteration, at least [s]
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
    call_s = 0.0
    token_s = _TOKEN_FACTOR * vision.token_flops / (rate * efficiency.arithmetic)
    if split > 1:
        reduced_s = vision.reduced_bytes / link_bytes_per_s(gpu, tp, efficiency)
        call_s = 2 * vision.layers * efficiency.all_reduce_s
        token_s += 2 * vision.layers * 2 * (tp - 1) / tp * reduced_s
    pair_s = _PAIR_FACTOR * vision.pair_flops / (rate * efficiency.attention)
    return EncodeTimes(vision.layers * _LAUNCH_S, call_s, token_s, pair_s)
