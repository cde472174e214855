"""Print how good and how fast placements are.

    python examples/studies/placement_quality.py
    python examples/studies/placement_quality.py --large

Heartbeats of ShareGPT lengths on replicas of a shipped profile, where the SLO binds,
and on replicas with little KV, where KV binds. For each: lower bound, best placement,
best fit (Aladdin's Algorithm 1), JSQ and the time taken. Then GPU mixes with known
optima, and the speed of Algorithm 1.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

from capplan.latency.catalog import find_profile
from capplan.placement.heuristics import heuristic
from capplan.placement.heuristics.open_replicas import OpenReplicas
from capplan.placement.mip import solve
from capplan.placement.mix import MixProblem, NodeKind, ReplicaKind, allocate_mix
from capplan.placement.problem import PlacementProblem
from capplan.placement.replica import PlacementReplica, replica_of_tables
from capplan.workload.catalog import shipped_workload

MIX = Path(__file__).parents[2] / "tests" / "placement" / "data"


def replica(llm: str, gpu: str, tp: int, kv_tokens: int) -> PlacementReplica:
    profile = find_profile(llm, gpu, tp)
    assert profile is not None
    return replica_of_tables(profile.tables(512, 8192), kv_tokens, max_batch=512)


def heartbeat(
    template: PlacementReplica,
    requests: int,
    ttft_s: float,
    tpot_s: float,
    seed: int = 0,
) -> PlacementProblem:
    """Draw requests of ShareGPT lengths that fit the replica alone."""
    trace = shipped_workload("sharegpt")
    total = trace.prompt_tokens + trace.output_tokens
    rows = np.flatnonzero(total <= min(4096, template.kv_capacity_tokens))
    drawn = np.random.default_rng(seed).choice(rows, requests)
    return PlacementProblem(
        template,
        trace.prompt_tokens[drawn],
        trace.output_tokens[drawn],
        np.full(requests, ttft_s),
        np.full(requests, tpot_s),
    )


def snapshots(large: bool) -> None:
    h100 = replica("Llama-3.1-8B", "H100-SXM", 1, 440_000)
    a100 = replica("Llama-2-7B", "A100-80GB-SXM", 1, 110_000)
    small_kv = replica("Llama-3.1-8B", "H100-SXM", 1, 12_000)
    cases = [
        ("TPOT 8 ms, H100, Llama-3.1-8B", h100, 2.0, 0.0080),
        ("TPOT 7 ms, fixed time 6.5 ms", h100, 2.0, 0.0070),
        ("TPOT 15, TTFT 400 ms, A100, 7B", a100, 0.4, 0.0150),
        ("KV of 12,000 tokens", small_kv, 2.0, 0.0300),
    ]
    print(
        f"{'what binds':32}{'requests':>9}{'bound':>7}{'best':>6}{'gap':>8}"
        f"{'best fit':>10}{'over best':>11}{'JSQ':>6}{'time':>9}  status, found by"
    )
    for name, template, ttft_s, tpot_s in cases:
        for requests in (400, 2000, 20_000) if large else (400, 2000):
            problem = heartbeat(template, requests, ttft_s, tpot_s)
            limit_s = {400: 5.0, 2000: 60.0}.get(requests, 120.0)
            placement = solve(problem, time_limit_s=limit_s)
            jsq = "–"
            if requests <= 2000:
                jsq = str(len(np.unique(heuristic("jsq")(problem, 0))))
            best, fit = placement.replica_count, placement.heuristic_counts["best-fit"]
            assert best is not None
            print(
                f"{name:32}{requests:>9,}{placement.lower_bound:>7}{best:>6}"
                f"{placement.gap:>8.2%}{fit:>10}{fit / best - 1:>11.1%}{jsq:>6}"
                f"{placement.runtime_s:>8.2f}s  {placement.status}, "
                f"{placement.found_by}",
                flush=True,
            )


def melange(file: Path, requests_per_s: float, slices: int) -> MixProblem:
    content = json.loads(file.read_text())
    gpus = content["gpus"]
    capacity = np.array([gpu["requests_per_s"] for gpu in gpus.values()], float)
    return MixProblem(
        np.ravel(content["share_of_requests"]) * requests_per_s,
        tuple(ReplicaKind(name, 1, index) for index, name in enumerate(gpus)),
        tuple(NodeKind(name, 1, gpu["usd_per_h"]) for name, gpu in gpus.items()),
        capacity.reshape(len(gpus), -1).T,
        slices,
    )


def mixes() -> None:
    file = MIX / "mix_allocation.json"
    if not file.exists():
        print("\nGPU mixes: the test data is not here")
        return
    print(f"\n{'GPU mix':32}{'$/h':>10}{'bound':>10}{'time':>9}  status")
    for rate in (32, 128):
        for slices in (4, 8):
            mix = allocate_mix(melange(file, rate, slices))
            print(
                f"{f'{rate} requests/s, {slices} slices':32}{mix.usd_per_h:>10.3f}"
                f"{mix.lower_bound_usd_per_h:>10.3f}{mix.runtime_s:>8.2f}s  "
                f"{mix.status}"
            )


def median_s(call, times: int = 9) -> float:
    taken = []
    for _ in range(times):
        start = time.process_time()
        call()
        taken.append(time.process_time() - start)
    return float(np.median(taken))


def speeds() -> None:
    template = replica("Llama-3.1-8B", "H100-SXM", 1, 440_000)
    print("\nprocessor time, median of nine")
    for requests, target in ((2700, "100 replicas"), (400, "15 replicas")):
        problem = heartbeat(template, requests, 2.0, 0.0070)
        count = len(np.unique(heuristic("best-fit")(problem, 0)))
        request_s = median_s(lambda p=problem: heuristic("best-fit")(p, 0)) / requests
        print(
            f"  Algorithm 1, {requests:,} requests on up to {count} replicas "
            f"(about {target}): {request_s * 1e6:.1f} µs per request"
        )
    problem = heartbeat(template, 2700, 2.0, 0.0070)
    state = OpenReplicas(problem)
    settled = heuristic("best-fit")(problem, 0)
    for row in range(len(problem) - 100):
        while settled[row] >= state.count:
            state.open()
        state.add(int(settled[row]), row)
    print(f"  ({state.count} replicas open before the last hundred requests)")
    for rate in (25, 250, 2500):
        problem = heartbeat(template, rate, 2.0, 0.0070)
        heartbeat_s = median_s(lambda p=problem: heuristic("best-fit")(p, 0))
        print(
            f"  scheduling one second at {rate:,} requests/s: "
            f"{heartbeat_s * 1e3:.2f} ms ({heartbeat_s / rate * 1e6:.1f} µs per "
            "request)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true", help="20,000 requests as well")
    arguments = parser.parse_args()
    snapshots(arguments.large)
    mixes()
    speeds()


if __name__ == "__main__":
    main()
