"""Names that clusters and clouds have for the GPUs of the catalog."""

from typing import NamedTuple

from capplan.errors import InputError


class GpuNames(NamedTuple):
    """Names of a GPU; empty where it has none there."""

    product: str  # label nvidia.com/gpu.product of NVIDIA's GPU Feature Discovery
    skypilot: str  # AcceleratorName of SkyPilot's catalogs
    ray: str  # of ray.util.accelerators


GPU_NAMES = {
    "A100-40GB-SXM": GpuNames("NVIDIA-A100-SXM4-40GB", "A100", "A100-40G"),
    "A100-80GB-SXM": GpuNames("NVIDIA-A100-SXM4-80GB", "A100-80GB", "A100-80G"),
    "A100-80GB-PCIe": GpuNames("NVIDIA-A100-80GB-PCIe", "A100-80GB", "A100-80G"),
    "H100-SXM": GpuNames("NVIDIA-H100-80GB-HBM3", "H100", "H100"),
    "H100-PCIe": GpuNames("NVIDIA-H100-PCIe", "H100", "H100"),
    "H100-NVL": GpuNames("NVIDIA-H100-NVL", "H100", "H100"),
    "H200-SXM": GpuNames("NVIDIA-H200", "H200", "H200"),
    "B200-SXM": GpuNames("NVIDIA-B200", "B200", "B200"),
    "B300-SXM": GpuNames("", "B300", "B300"),
    "GB200": GpuNames("", "GB200", "GB200"),
    "GB300": GpuNames("", "GB300", "GB300"),
    "L4": GpuNames("NVIDIA-L4", "L4", "L4"),
    "L40S": GpuNames("NVIDIA-L40S", "L40S", "L40S"),
    "A10G": GpuNames("NVIDIA-A10G", "A10G", "A10G"),
    "V100-32GB-SXM2": GpuNames("Tesla-V100-SXM2-32GB", "V100-32GB", "V100"),
    "V100-16GB-SXM2": GpuNames("Tesla-V100-SXM2-16GB", "V100", "V100"),
    "A800-80GB-SXM": GpuNames("NVIDIA-A800-SXM4-80GB", "A800-80GB", ""),
    "H800-SXM": GpuNames("NVIDIA-H800", "H800", ""),
    "H20": GpuNames("NVIDIA-H20", "H20", "H20"),
    "L40": GpuNames("NVIDIA-L40", "L40", ""),
    "L20": GpuNames("NVIDIA-L20", "L20", ""),
    "A10": GpuNames("NVIDIA-A10", "A10", ""),
    "A40": GpuNames("NVIDIA-A40", "A40", ""),
    "T4": GpuNames("Tesla-T4", "T4", "T4"),
    "GB10": GpuNames("NVIDIA-GB10", "GB10", ""),
    "RTX5090": GpuNames("NVIDIA-GeForce-RTX-5090", "RTX5090", ""),
    "RTX3090": GpuNames("NVIDIA-GeForce-RTX-3090", "RTX3090", ""),
    "RTX4090": GpuNames("NVIDIA-GeForce-RTX-4090", "RTX4090", ""),
    "RTX-A6000": GpuNames("NVIDIA-RTX-A6000", "RTXA6000", ""),
    "RTX-PRO-6000": GpuNames("", "RTXPRO6000", "RTX-PRO-6000"),
}
"""Ray's are compared with its constants in the tests; the others nobody verified."""


def gpu_names(gpu: str) -> GpuNames:
    """Return the names of a GPU."""
    if gpu not in GPU_NAMES:
        raise InputError(
            f"{gpu[:60]!r}: exported deployments are of NVIDIA's GPUs of the catalog; "
            "--to vllm gives the commands"
        )
    return GPU_NAMES[gpu]
