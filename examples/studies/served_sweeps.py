"""Read sweeps of real engines: load tests at several concurrencies.

    python examples/studies/served_sweeps.py [FOLDER]

lists those that ``served_sets.py`` reads from a folder (default ``../shared/data``).
``served_accuracy.py`` fits and scores them.
"""

import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from served_sets import DUMP, OLDER, load_tests

from capplan.calibration.load_test import SweepPoint
from capplan.calibration.sweep_fit import Served
from capplan.deployment.engine import EngineSettings
from capplan.deployment.memory import MemoryShare
from capplan.deployment.replica import replica
from capplan.errors import CapplanError
from capplan.fleet.catalog import gpu as find_gpu
from capplan.latency.catalog import known_profile
from capplan.latency.engine_time import Basis
from capplan.latency.estimate import estimated_profile
from capplan.latency.profile import Profile
from capplan.latency.roofline import roofline_profile
from capplan.latency.terms import tables
from capplan.llm.architecture import Architecture
from capplan.llm.dtypes import KV_BYTES
from capplan.llm.layout import Layout

DATA = Path(__file__).parents[3] / "shared" / "data"

_OF_ONE_ENGINE = 1.2
"""Times of long answers over those of short ones above which two engines were run."""

FAMILIES = {
    "Ampere": ("A100",),
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
    tokens: int = 8192  # max_num_batched_tokens
    seats: int | None = None  # max_num_seqs; the users' where None
    kv_dtype: str = "auto"

    @property
    def group(self) -> tuple[str, str, str]:
        """LLM, GPU type, engine and version: what is left out of a fit as a whole."""
        return self.llm.name, self.gpu, f"{self.engine} {self.version}".strip()

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
        most = max(point.concurrency for point in self.points)
        seats = self.seats or most
        engine = EngineSettings(self.tokens, max_num_seqs=seats)
        try:
            engine = replica(
                self.llm,
                at,
                Layout(self.tp),
                engine,
                memory=MemoryShare(0.9),
                kv_dtype=kv_dtype,
            ).engine
        except CapplanError:
            engine = replace(engine, kv_blocks=10**6)
        made = tables(profile.decode, profile.fused, min(seats, most), self.tokens)
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


def base_of(sweep: Sweep) -> tuple[Profile, Basis]:
    """Return the kernels that a plan adds the engine's time to, and what they are."""
    at = find_gpu(sweep.gpu)
    if sweep.family == "CDNA":  # its profiles hold the time of the sweeps
        return roofline_profile(sweep.llm, at, sweep.tp), "roofline"
    profile = known_profile(sweep.llm, at, sweep.tp)
    if profile is None or profile.kernels_from is None:
        profile = estimated_profile(sweep.llm, at, sweep.tp)
    assert profile.kernels_from is not None
    return profile, profile.kernels_from


def read_sweeps(data: Path) -> list[Sweep]:
    """Return the sweeps of a folder; runs made twice count once, as their mean."""
    points: dict[tuple, dict[int, list[SweepPoint]]] = defaultdict(dict)
    for key, point in load_tests(data):
        points[key].setdefault(point.concurrency, []).append(point)
    sweeps = {
        key: Sweep(*key[:8], tuple(_mean(at[users]) for users in sorted(at)), *key[8:])
        for key, at in sorted(points.items(), key=lambda item: str(item[0]))
    }
    short = {key: sweeps.get((*key[:5], 1024, *key[6:])) for key in sweeps}
    return [
        sweep._replace(version=OLDER) if _is_older(sweep, short[key]) else sweep
        for key, sweep in sweeps.items()
    ]


def _is_older(sweep: Sweep, short: Sweep | None) -> bool:
    """Return whether a sweep of long answers is of an engine before its short ones'.

    The dump's medians are over all nights on which a pair of lengths was run. At the
    fewest users one engine takes as long for a token of either: 0.91 to 1.06 times
    where the version is known.
    """
    if short is None or sweep.source != DUMP or sweep.osl <= short.osl:
        return False
    at = {point.concurrency: point.tpot_s for point in short.points}
    first = next((p for p in sweep.points if p.concurrency in at), None)
    return bool(first and first.tpot_s > _OF_ONE_ENGINE * at[first.concurrency])


def _mean(runs: list[SweepPoint]) -> SweepPoint:
    """Return one load test of several with the same settings."""

    def mean(name: str) -> float | None:
        seen = [value for run in runs if (value := getattr(run, name)) is not None]
        return float(np.mean(seen)) if seen else None

    names = ("tpot_s", "ttft_s", "output_tokens_per_s")
    return runs[0]._replace(**{name: mean(name) for name in names})


if __name__ == "__main__":
    for found in read_sweeps(Path(sys.argv[1]) if len(sys.argv) > 1 else DATA):
        users = ", ".join(str(point.concurrency) for point in found.points)
        print(
            f"{found.llm.name} on {found.gpu}, TP {found.tp}, {found.isl}/{found.osl}, "
            f"{found.engine} {found.version}: {users} users"
        )
