"""Serve N generated requests chunk by chunk; print speed and peak memory as JSON.

``python streaming.py N``: ShareGPT's lengths and fused latency of Llama-3.1-8B on
one H100, 8 replicas at 70 % load, as in ``test_simulator_speed.py``. Run in a
process of its own, so that the peak is that of the stream.
"""

import json
import resource
import sys
import time

import numpy as np

from capplan.deployment.engine import EngineSettings
from capplan.latency.catalog import find_profile
from capplan.simulator.results.sketches import Sketches
from capplan.simulator.results.windows import WINDOWS
from capplan.simulator.simulate import simulate
from capplan.workload.catalog import shipped_workload
from capplan.workload.slo import RequestSlo, Slo
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

LIMITS = EngineSettings(
    max_num_batched_tokens=8192, max_num_seqs=1024, kv_blocks=27_000
)
SLO = Slo(RequestSlo(ttft_s=1.0, tpot_s=0.03))
REPLICAS = 8
LOAD = 0.7
CHUNK = 200_000


def chunks(n: int, rate_per_s: float):
    """Yield n requests, ``CHUNK`` at a time."""
    rng = np.random.default_rng(0)
    given = shipped_workload("sharegpt")
    last_s = 0.0
    for first in range(0, n, CHUNK):
        count = min(CHUNK, n - first)
        rows = rng.integers(0, len(given), count)
        arrival_s = last_s + np.cumsum(rng.exponential(1 / rate_per_s, count))
        last_s = float(arrival_s[-1])
        yield Trace(given.prompt_tokens[rows], given.output_tokens[rows], arrival_s)


def main(n: int) -> None:
    """Measure a stream of n requests."""
    profile = find_profile("Llama-3.1-8B", "H100-SXM", 1)
    tables = profile.tables(LIMITS.max_num_seqs, LIMITS.max_num_batched_tokens)
    (full,) = chunks(20_000, 1e6)
    ends_s = np.sort(simulate(full, fleet_of(tables, LIMITS, 1)).times.finish_s)
    capacity_per_s = 10_000 / (ends_s[15_000] - ends_s[5_000])
    rate_per_s = LOAD * capacity_per_s * REPLICAS
    simulate(
        chunks(1000, rate_per_s), fleet_of(tables, LIMITS, REPLICAS), sink=Sketches()
    )  # compiles

    processor_s, wall_s = time.process_time(), time.perf_counter()
    fleet = fleet_of(tables, LIMITS, REPLICAS)
    found = simulate(chunks(n, rate_per_s), fleet, slo=SLO, sink=Sketches(SLO))
    processor_s = time.process_time() - processor_s
    tpot = found.windows.histogram("tpot_s", WINDOWS)
    measured = {
        "requests": found.totals.request_count,
        "output_tokens": found.totals.output_tokens,
        "processor_s": processor_s,
        "wall_s": time.perf_counter() - wall_s,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "tpot_p99_s": float(tpot.quantiles_s(np.array(0.99))),
    }
    print(json.dumps(measured))


if __name__ == "__main__":
    main(int(float(sys.argv[1])))
