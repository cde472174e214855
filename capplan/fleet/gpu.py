"""What a GPU is to a planner: memory, bandwidth, arithmetic and links."""

from dataclasses import dataclass

from capplan.errors import InputError

CONFIDENCES = ("high", "medium", "low")


@dataclass(frozen=True)
class Gpu:
    """One type of GPU.

    Parameters
    ----------
    name
        Chip, memory where it differs, and form factor: ``A100-80GB-SXM``.
    memory_bytes
        Memory that the driver shows, not what the box says. [bytes]
    bandwidth_bytes_per_s
        Memory bandwidth. [bytes/s]
    fp16_flops, bf16_flops, fp8_flops
        Dense tensor-core rate (half of the rate advertised with sparsity); None
        where the hardware has none, or no source gives it. [FLOP/s]
    nvlink_bytes_per_s_per_direction
        NVLink of one GPU in one direction (half of the usual advertised sum of
        both); 0 where GPUs meet over PCIe only. [bytes/s]
    max_gpus_per_node
        Most GPUs joined in one node, hence the largest TP degree.
    tdp_w
        Rated power. [W]
    source
        Where the values come from.
    confidence
        "high", "medium" or "low".
    note
        What the sources disagree on; empty when nothing.
    """

    name: str
    memory_bytes: int
    bandwidth_bytes_per_s: float
    fp16_flops: float | None
    bf16_flops: float | None
    fp8_flops: float | None
    nvlink_bytes_per_s_per_direction: float
    max_gpus_per_node: int
    tdp_w: float
    source: str
    confidence: str
    note: str = ""

    def __post_init__(self) -> None:
        """Refuse what no hardware is."""
        for name in ("memory_bytes", "bandwidth_bytes_per_s", "tdp_w"):
            if not getattr(self, name) > 0:
                raise InputError(f"GPU {self.name}: {name} must be more than 0")
        for name in ("fp16_flops", "bf16_flops", "fp8_flops"):
            rate = getattr(self, name)
            if rate is not None and not rate > 0:
                raise InputError(f"GPU {self.name}: {name} must be more than 0")
        if self.nvlink_bytes_per_s_per_direction < 0:
            raise InputError(f"GPU {self.name}: NVLink bandwidth must be >= 0")
        if self.max_gpus_per_node < 1:
            raise InputError(f"GPU {self.name}: max_gpus_per_node must be >= 1")
        if self.confidence not in CONFIDENCES:
            raise InputError(
                f"GPU {self.name}: confidence is {self.confidence!r}; "
                f"expected one of {', '.join(CONFIDENCES)}"
            )
