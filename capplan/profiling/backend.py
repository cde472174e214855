"""The interface of an engine that can be measured, and the facts it reports."""

import math
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import Any, Protocol

from capplan.errors import InputError
from capplan.profiling.scenes import Sample, Scene

BACKENDS = {
    "vllm": "capplan.profiling.vllm_backend:VllmBackend",
    "torch": "capplan.profiling.torch_backend:TorchBackend",
}


@dataclass(frozen=True)
class EngineRequest:
    """The engine to start."""

    llm: str  # model name, or a folder with its config.json
    tp: int
    options: dict[str, Any] = field(default_factory=dict)  # engine's own names


@dataclass(frozen=True)
class EngineFacts:
    """Facts that a started engine reports of itself."""

    device: str  # as its driver names it
    backend: str
    backend_version: str
    torch_version: str
    driver: str
    dtype: str
    quantization: str
    kv_cache_dtype: str
    max_model_len: int  # longest prompt plus output [tokens]
    max_num_batched_tokens: int  # token budget of an iteration [tokens]
    max_num_seqs: int  # most requests running at once
    block_size: int  # tokens in a KV block
    kv_blocks: int  # null block included
    kv_bytes_per_token: float  # on one GPU [bytes]
    async_scheduling: bool  # iteration k + 1 is scheduled while k runs
    layers: int  # each reduces twice over the GPUs of a replica
    graph_batches: tuple[int, ...] = ()  # batch sizes with a CUDA graph
    load_s: float = 0.0  # whole start [s]
    compile_s: float | None = None  # of it; None where the engine does not say [s]
    capture_s: float | None = None  # of it, capturing CUDA graphs [s]
    expert_rate: float | None = None  # of a mixture of experts; None if dense
    flags: dict[str, Any] = field(default_factory=dict)  # settings and environment
    note: str = ""  # caveat of this measurement

    @property
    def kv_capacity_tokens(self) -> int:
        """Tokens whose KV fits. [tokens]"""
        return (self.kv_blocks - 1) * self.block_size

    def as_document(self) -> dict[str, Any]:
        """Return the facts as plain data."""
        return asdict(self) | {"graph_batches": list(self.graph_batches)}


def facts_from_document(document: dict[str, Any]) -> EngineFacts:
    """Return the facts that ``as_document`` wrote."""
    known = {name: document[name] for name in EngineFacts.__dataclass_fields__}
    return EngineFacts(**known | {"graph_batches": tuple(document["graph_batches"])})


def expert_rate(experts_per_token: int, experts: int) -> float | None:
    """Return ``-log(1 - experts_per_token / experts)``; None for a dense model.

    A batch of b tokens leaves a share ``exp(-rate * b)`` of the experts unused.

    Examples
    --------
    >>> expert_rate(0, 0) is None, round(expert_rate(2, 8), 4)
    (True, 0.2877)
    """
    if not 0 < experts_per_token < experts:
        return None
    return -math.log1p(-experts_per_token / experts)


class Backend(Protocol):
    """An engine that runs scenes and times every iteration."""

    def device(self) -> str:
        """Return the name of the hardware, before anything is loaded."""

    def load(self) -> EngineFacts:
        """Start the engine; the text of an exception is recorded as the reason."""

    def run(self, scene: Scene) -> list[Sample]:
        """Run a scene and return its timed iterations."""

    def all_reduce_s(self, tokens: int) -> float | None:
        """Return the time of one all-reduce of this many tokens; None at TP 1. [s]"""

    def close(self) -> None:
        """Stop the engine and the processes it started."""


def backend_class(name: str) -> type:
    """Return the class of a backend, by name or ``module:Class``; import its engine."""
    if name not in BACKENDS and ":" not in name:
        known = ", ".join(BACKENDS)
        raise InputError(f"--backend is {name!r}; expected one of {known}")
    module, _, attribute = BACKENDS.get(name, name).partition(":")
    return getattr(import_module(module), attribute)
