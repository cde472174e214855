"""Read sweeps of real engines: load tests at several concurrencies.

    python examples/served_sweeps.py [FOLDER]

lists those in ``served/sweeps.csv`` and ``iteration_times/silicon_end_to_end.csv`` of a
folder (default ``../shared/data``). ``served_accuracy.py`` fits and scores them.
"""

import csv
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from capplan.calibration.closed_loop import SweepPoint
from capplan.calibration.sweep_fit import Served
from capplan.deployment import EngineSettings, replica
from capplan.errors import CapplanError
from capplan.fleet.catalog import gpu as find_gpu
from capplan.latency.importers.identity import GPU_NAMES
from capplan.latency.profile import Profile
from capplan.latency.terms import tables
from capplan.llm.architecture import Architecture
from capplan.llm.catalog import llm as find_llm
from capplan.llm.dtypes import KV_BYTES

DATA = Path(__file__).parents[2] / "shared" / "data"

DASHBOARD = "InferenceMAX v1 dashboard of 2025-10-24"
SILICON = "end-to-end runs kept with aiconfigurator-core 0.12"

FP4_LLM = "Llama-3.3-70B-NVFP4"

LLMS = {
    ("Llama 3.3 70B Instruct", "fp8"): ("Llama-3.3-70B-FP8", "0.10.2"),
    ("Llama 3.3 70B Instruct", "fp4"): (FP4_LLM, "0.10.2"),
    ("gpt-oss 120B", "fp4"): ("gpt-oss-120b", "0.10.2"),
    ("DeepSeek R1 0528", "fp8"): ("DeepSeek-R1", ""),
}
"""Name in the catalog and version of vLLM, by model and precision of the dashboard."""

SILICON_LLMS = {
    ("Qwen/Qwen3-32B", ""): "Qwen3-32B",
    ("meta-llama/Llama-3.1-70B", "fp8"): "Llama-3.3-70B-FP8",
    ("openai/gpt-oss-120b", "fp4"): "gpt-oss-120b",
}
"""The same of the end-to-end runs, which state their version."""

FITTED_SILICON = "Qwen3-32B"
"""The LLM of those runs that is fitted: the others are the dashboard's, run again."""

GPUS = {
    "h100": "H100-SXM",
    "h200": "H200-SXM",
    "b200": "B200-SXM",
    "mi300x": "MI300X",
    "mi325x": "MI325X",
    "mi355x": "MI355X",
    **GPU_NAMES,
}

FAMILIES = {
    "Hopper": ("H100", "H200", "GH200"),
    "Blackwell": ("B200", "GB200", "B300", "GB300"),
    "CDNA": ("MI300X", "MI325X", "MI355X"),
}
"""GPUs on which an engine's own time is alike, by the beginning of their names."""


class Sweep(NamedTuple):
    """One engine at several concurrencies."""

    source: str
    gpu: str
    llm: Architecture
    tp: int
    isl: int
    osl: int
    engine: str
    version: str
    points: tuple[SweepPoint, ...]

    @property
    def family(self) -> str:
        """Family of the GPU."""
        for family, names in FAMILIES.items():
            if self.gpu.startswith(names):
                return family
        raise KeyError(self.gpu)

    @property
    def kind(self) -> str:
        """Dense or a mixture of experts."""
        return "experts" if self.llm.experts else "dense"

    def served(self, profile: Profile) -> list[Served]:
        """Return the load tests on the kernels of a profile."""
        kv_dtype = kv_of(self, profile)
        at = find_gpu(self.gpu)
        engine = EngineSettings(max_num_batched_tokens=8192)
        try:
            engine = replica(
                self.llm,
                at,
                self.tp,
                engine,
                gpu_memory_utilization=0.9,
                kv_dtype=kv_dtype,
            ).engine
        except CapplanError:
            engine = replace(engine, kv_blocks=10**6)
        most = max(point.concurrency for point in self.points)
        made = tables(profile.decode, profile.fused, most, 8192)
        bytes_as = KV_BYTES[kv_dtype] / KV_BYTES[profile.kv_element]
        made = made.reading(bytes_as)
        return [Served(point, made, engine) for point in self.points]


def kv_of(sweep: Sweep, profile: Profile) -> str:
    """Return the type of KV that the engine of a sweep ran with.

    The dashboard's Llama runs are configured with FP8. Those on H100 ran with 16 bits:
    at TP 2, 64 users and both long shapes only 28 and 48 requests ran at once, which is
    what 16 bits leave room for, and their TPOT grows with the context as 16 bits do.
    """
    if sweep.llm.name.startswith("Llama-3.3-70B"):
        return "bf16" if sweep.gpu == "H100-SXM" else "fp8"
    return "bf16" if profile.kv_element == "bf16" else "fp8"


def read_sweeps(data: Path) -> list[Sweep]:
    """Return the sweeps of vLLM and SGLang with at least three concurrencies."""
    points: dict[tuple, dict[int, SweepPoint]] = defaultdict(dict)
    again = [(k, p) for k, p in _silicon(data) if k[2].name == FITTED_SILICON]
    for key, point in (*_dashboard(data), *again):
        points[key][point.concurrency] = point
    return [
        Sweep._make((*key, tuple(at[users] for users in sorted(at))))
        for key, at in sorted(points.items(), key=lambda item: str(item[0]))
        if len(at) >= 3
    ]


def _rows(path: Path) -> Iterator[dict[str, str]]:
    if not path.exists():
        print(f"{path.name} is absent: its sweeps are left out")
        return
    with open(path, encoding="utf-8") as file:
        yield from csv.DictReader(file)


def _dashboard(data: Path) -> Iterator[tuple[tuple, SweepPoint]]:
    for row in _rows(data / "served" / "sweeps.csv"):
        known = LLMS.get((row["model"], row["precision"]))
        engine, gpu = row["engine_assumed"], GPUS.get(row["hw"])
        users, tp = int(row["conc"]), int(row["tp"])
        isl, osl = int(row["isl"]), int(row["osl"])
        if known is None or gpu is None or engine == "trtllm":
            continue
        if (row["hw"], row["precision"]) == ("mi355x", "fp4") and known[0] == FP4_LLM:
            continue  # it runs MXFP4 in place of NVFP4
        # These two ran fewer requests at once than users (see kv_of).
        if (row["hw"], tp, users) == ("h100", 2, 64) and max(isl, osl) == 8192:
            continue
        name, version = known
        point = SweepPoint(
            isl,
            osl,
            users,
            float(row["median_tpot_ms"]) / 1e3,
            least_share=0.8,
            median=True,
        )
        key = (DASHBOARD, gpu, find_llm(name), tp, isl, osl, engine, version)
        yield key, point


def _silicon(data: Path) -> Iterator[tuple[tuple, SweepPoint]]:
    for row in _rows(data / "iteration_times" / "silicon_end_to_end.csv"):
        name = SILICON_LLMS.get((row["model"], row["precision"]))
        gpu, users = GPUS.get(row["system"]), int(row["batch"])
        if name is None or gpu is None or row["backend"] != "vllm":
            continue
        if float(row["ttft_ms"]) > 5000:
            continue  # a queue before the engine: not all users were served at once
        isl, osl = int(row["isl"]), int(row["osl"])
        tpot_s, ttft_s = (float(row[name]) / 1e3 for name in ("tpot_ms", "ttft_ms"))
        point = SweepPoint(isl, osl, users, tpot_s, ttft_s, least_share=0.8)
        version = row["measured_version"]
        key = (SILICON, gpu, find_llm(name), int(row["tp"]), isl, osl, "vllm", version)
        yield key, point


def quiet_tests(data: Path) -> list[Sweep]:
    """Return the load tests with a TTFT at up to eight users, where no queue forms."""
    return [
        Sweep._make((*key, (point,)))
        for key, point in _silicon(data)
        if point.concurrency <= 8
    ]


if __name__ == "__main__":
    for found in read_sweeps(Path(sys.argv[1]) if len(sys.argv) > 1 else DATA):
        users = ", ".join(str(point.concurrency) for point in found.points)
        print(
            f"{found.llm.name} on {found.gpu}, TP {found.tp}, {found.isl}/{found.osl}, "
            f"{found.engine} {found.version}: {users} users"
        )
