"""How long a replica takes from being ordered to its first request.

The sum of four parts: a node, the container's image on it, the weights on the GPUs, and
the engine's own start (memory profile, compilation, CUDA graphs). All defaults are
assumed: they lie within what is published, and vary by a factor of ten.
"""

from dataclasses import dataclass

from capplan.errors import InputError, check_at_least
from capplan.units import parse_duration_s

NODE_S = 240.0
"""A node from a cloud; published: 2 to 8 min (BEE-30068). [s]"""
IMAGE_BYTES = 10e9
"""A vLLM image; published: 10 to 20 GB (dev.to, GPU cold starts). [bytes]"""
PULL_BYTES_PER_S = 0.5e9
"""Rate at which an image comes from a registry near. [bytes/s]"""
LOAD_BYTES_PER_S = 2e9
"""Rate at which weights come onto the GPUs. It varies by the disk and the loader: the
same LLM took 48 s by safetensors and 14.3 s by Run:ai's streamer from a gp3 volume, and
7.5 s from io2 (run.ai, Model Streamer: Performance Benchmarks, 2024-10). [bytes/s]"""
ENGINE_S = 60.0
"""The engine below ``LARGE_PARAMETERS``: the first answer of a small LLM came after
59 s with a compile cache (vllm-project/vllm#20264). [s]"""
LARGE_ENGINE_S = 150.0
"""The engine from there on: Llama-70B FP8 on 8 GPUs compiled and captured graphs for
145 s, after 60 s of checking peer access (vllm-project/vllm#19824). [s]"""
LARGE_PARAMETERS = 10_000_000_000
"""Parameters from which an LLM takes the longer start."""


@dataclass(frozen=True)
class ColdStart:
    """Parts of a cold start."""

    node_s: float
    image_s: float
    weights_s: float
    engine_s: float
    assumed: tuple[str, ...] = ()  # names of parts that rest on a default

    def __post_init__(self) -> None:
        parts = "node_s", "image_s", "weights_s", "engine_s"
        check_at_least(0, self, *parts, where="cold start: ")

    @property
    def cold_start_s(self) -> float:
        """Time from the order of a replica to its first request. [s]"""
        return self.node_s + self.image_s + self.weights_s + self.engine_s


def cold_start(weight_bytes: float, parameter_count: int) -> ColdStart:
    """Return the cold start of a replica by its parts, all of them assumed.

    Of the weights on all its GPUs, and of all parameters of the LLM. [bytes]

    Examples
    --------
    >>> cold = cold_start(141e9, 70_600_000_000)
    >>> cold.cold_start_s, cold.weights_s, cold.assumed
    (480.5, 70.5, ('node', 'image', 'weights', 'engine'))
    """
    large = parameter_count >= LARGE_PARAMETERS
    return ColdStart(
        node_s=NODE_S,
        image_s=IMAGE_BYTES / PULL_BYTES_PER_S,
        weights_s=weight_bytes / LOAD_BYTES_PER_S,
        engine_s=LARGE_ENGINE_S if large else ENGINE_S,
        assumed=("node", "image", "weights", "engine"),
    )


def parse_cold_start_s(text: str) -> float:
    """Return the seconds of a cold start given as one time, such as ``4m``."""
    given_s = parse_duration_s(text)
    if given_s < 0:
        raise InputError(f"cold start {text!r} is negative; expected a time >= 0")
    return given_s
