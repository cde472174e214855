"""LoRA adapters that an engine serves beside the LLM."""

from dataclasses import dataclass

from capplan.errors import InputError, check_at_least
from capplan.llm.adapters import check_max_rank

MOST_LORAS = 4096
"""Adapters that an engine may hold: the simulator looks at each."""


@dataclass(frozen=True)
class Adapters:
    """Slots for adapters, with vLLM's names, and what they cost."""

    max_loras: int = 1  # adapters of one iteration, and slots on the GPU
    max_cpu_loras: int = 1  # adapters in host memory
    max_lora_rank: int = 16
    lora_rank: int = 16  # of the adapters served
    slot_bytes: int = 0  # on each GPU, at the largest rank [bytes]
    slowdown: float = 0.0  # share by which an iteration with an adapter is longer
    read_s: float = 0.0  # of an iteration, for each of its adapters [s]
    load_s: float = 0.0  # from host memory into a slot [s]
    fetch_s: float = 0.0  # into host memory [s]

    def __post_init__(self) -> None:
        check_max_rank(self.max_lora_rank)
        if not 1 <= self.max_loras <= MOST_LORAS:
            raise InputError(
                f"max_loras is {self.max_loras}; expected 1 to {MOST_LORAS}"
            )
        if not self.max_loras <= self.max_cpu_loras <= MOST_LORAS:
            raise InputError(
                f"max_cpu_loras is {self.max_cpu_loras}; expected max_loras "
                f"({self.max_loras}) to {MOST_LORAS}"
            )
        if not 1 <= self.lora_rank <= self.max_lora_rank:
            raise InputError(
                f"lora_rank is {self.lora_rank}; expected 1 to max_lora_rank "
                f"({self.max_lora_rank})"
            )
        times = "slowdown", "read_s", "load_s", "fetch_s"
        check_at_least(0, self, "slot_bytes", *times)

    @property
    def gpu_bytes(self) -> int:
        """Memory of all slots on each GPU. [bytes]"""
        return self.max_loras * self.slot_bytes
