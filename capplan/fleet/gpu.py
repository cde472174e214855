"""GPU types: memory, bandwidth, arithmetic and links."""

from dataclasses import dataclass

from capplan.errors import InputError

CONFIDENCES = ("high", "medium", "low")

_POSITIVE = (
    "memory_bytes",
    "bandwidth_bytes_per_s",
    "fp16_flops",
    "bf16_flops",
    "fp8_flops",
    "tdp_w",
)


@dataclass(frozen=True)
class Gpu:
    """One type of GPU.

    Parameters
    ----------
    name
        Chip, memory where it differs, and form factor: ``A100-80GB-SXM``.
    memory_bytes
        Memory that the driver reports, below the nominal size. [bytes]
    bandwidth_bytes_per_s
        Memory bandwidth. [bytes/s]
    fp16_flops, bf16_flops, fp8_flops
        Dense tensor-core rate (half of the advertised rate with sparsity); None
        where the hardware or the source has none. [FLOP/s]
    nvlink_bytes_per_s_per_direction
        NVLink of one GPU in one direction (half of the advertised sum); 0 for GPUs
        connected by PCIe only. [bytes/s]
    max_gpus_per_node
        GPUs of the largest node, hence the largest TP degree.
    tdp_w
        Rated power. [W]
    source
        Source of the values.
    confidence
        "high", "medium" or "low".
    note
        What the sources disagree on; may be empty.
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
        """Refuse values that no hardware has."""
        for name in _POSITIVE:
            value = getattr(self, name)
            if not (value is None or value > 0):
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
