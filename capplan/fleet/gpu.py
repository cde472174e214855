"""GPU types: memory, bandwidth, arithmetic and links."""

import math
from dataclasses import dataclass

PCIE_4 = ((2, 19e9), (4, 3.7e9), (8, 2e9))
"""Rates of all-reduces where none were measured: those of L40S. (degree, [bytes/s])"""


@dataclass(frozen=True)
class Gpu:
    """One type of GPU.

    Rates are dense tensor-core rates, half of the advertised ones with sparsity; None
    where the hardware or the source has none.
    """

    name: str  # chip, memory where it differs, and form factor: A100-80GB-SXM
    architecture: str  # generation, such as Hopper
    memory_bytes: int  # that the driver reports, below the nominal size
    bandwidth_bytes_per_s: float  # of the memory
    fp16_flops: float | None  # [FLOP/s]
    bf16_flops: float | None  # [FLOP/s]
    fp8_flops: float | None  # [FLOP/s]
    fp4_flops: float | None  # of NVFP4 [FLOP/s]
    # of one GPU, half of the advertised sum; 0 for GPUs connected by PCIe only
    nvlink_bytes_per_s_per_direction: float
    max_gpus_per_node: int  # of the largest node, hence the largest TP degree
    tdp_w: float  # rated power
    source: str  # of the values
    confidence: str  # "high", "medium" or "low"
    note: str = ""  # what the sources disagree on
    # (TP degree, rate) that an all-reduce over PCIe reaches: bytes of the ring in one
    # direction, 2 (N - 1) / N of the message, over its time
    all_reduce_bytes_per_s: tuple[tuple[int, float], ...] = ()
    # of one GPU to other nodes, as clouds build them; None where not known
    network_bytes_per_s_per_direction: float | None = None
    network: str = ""  # its kind, such as InfiniBand 400 Gb/s

    def pcie_bytes_per_s(self, tp: int) -> float:
        """Return the rate of an all-reduce over PCIe: of as many GPUs or more."""
        rates = dict(self.all_reduce_bytes_per_s or PCIE_4)
        return rates[min((n for n in rates if n >= tp), default=max(rates))]

    @property
    def vendor(self) -> str:
        """Maker of the chip."""
        return "AMD" if self.architecture.startswith("CDNA") else "NVIDIA"

    def distance(self, other: "Gpu") -> tuple[int, float]:
        """Return how far two GPU types are apart: (0, 0.0) where they are alike.

        0 for one architecture, 1 for two that both have FP8 or both lack it, else 2;
        and the sum of the logarithms of the ratios of bandwidth and of arithmetic.
        """
        rates = [(self.bandwidth_bytes_per_s, other.bandwidth_bytes_per_s)]
        if self.fp16_flops and other.fp16_flops:
            rates.append((self.fp16_flops, other.fp16_flops))
        apart = sum(abs(math.log(own) - math.log(its)) for own, its in rates)
        if self.architecture == other.architecture:
            return 0, apart
        return 1 + ((self.fp8_flops is None) != (other.fp8_flops is None)), apart
