"""Names that clusters and clouds have for the GPUs of the catalog."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

from capplan.csv_file import read_rows
from capplan.errors import InputError


class GpuNames(NamedTuple):
    """Names of a GPU; empty where it has none there."""

    product: str  # label nvidia.com/gpu.product of NVIDIA's GPU Feature Discovery
    skypilot: str  # AcceleratorName of SkyPilot's catalogs
    ray: str  # of ray.util.accelerators


@cache
def all_gpu_names() -> dict[str, GpuNames]:
    """Return the names by GPU.

    Ray's are compared with its constants in the tests; the others nobody verified.
    """
    _, rows = read_rows(Path(__file__).with_suffix(".csv"))
    return {row.pop("gpu"): GpuNames(**row) for _, row in rows}


def gpu_names(gpu: str) -> GpuNames:
    """Return the names of a GPU."""
    if gpu not in all_gpu_names():
        raise InputError(
            f"{gpu[:60]!r}: exported deployments are of NVIDIA's GPUs of the catalog; "
            "--to vllm gives the commands"
        )
    return all_gpu_names()[gpu]
