"""How fast the simulator is: ``pytest -m bench -s tests/bench``. Asserts no time.

Fused latency of Llama-3.1-8B on one H100, vLLM V1's scheduler, lengths of the
shipped ShareGPT workload, Poisson arrivals. "70 % load" is 70 % of the throughput of
a replica that is never without work. Each figure is the best of three runs of the
compiled core with its door (checks and results), without compilation, in processor
time, which other programs on the machine disturb less than the clock on the wall.
"""

import importlib.util
import os
import platform
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from judge import judge

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment
from capplan.latency.catalog import find_profile
from capplan.latency.rank_tables import RankTables
from capplan.simulator.checks import without_unsupported
from capplan.simulator.routers import ROUTERS
from capplan.simulator.schedulers import SCHEDULERS, parse_scheduler
from capplan.simulator.simulate import simulate
from capplan.workload.catalog import shipped_workload
from capplan.workload.slo import RequestSlo, Slo
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

pytestmark = pytest.mark.bench

LIMITS = EngineSettings(
    max_num_batched_tokens=8192,
    max_num_seqs=1024,
    kv_blocks=27_000,
    kv_block_bytes=2 * 2**20,
)
TIGHT = EngineSettings(max_num_batched_tokens=8192, max_num_seqs=1024, kv_blocks=2_000)
CACHING = EngineSettings(
    max_num_batched_tokens=8192,
    max_num_seqs=1024,
    kv_blocks=27_000,
    prefix_caching=True,
)
SLO = Slo(RequestSlo(ttft_s=1.0, tpot_s=0.03, tbt_s=0.05))


def tables():
    profile = find_profile("Llama-3.1-8B", "H100-SXM", 1)
    return profile.tables(LIMITS.max_num_seqs, LIMITS.max_num_batched_tokens)


TABLES = tables()


def sharegpt(n: int, rate_per_s: float, seed: int = 0, groups: int = 0) -> Trace:
    """Return n requests with ShareGPT's lengths."""
    rng = np.random.default_rng(seed)
    given = shipped_workload("sharegpt")
    rows = rng.integers(0, len(given), n)
    columns = {}
    prompts = given.prompt_tokens[rows]
    if groups:
        prompts = prompts + 256
        columns = {
            "prefix_group": rng.integers(0, groups, n),
            "prefix_tokens": np.full(n, 256),
        }
    return Trace(
        prompts,
        given.output_tokens[rows],
        np.cumsum(rng.exponential(1 / rate_per_s, n)),
        **columns,
    )


def capacity_per_s(engine: EngineSettings) -> float:
    """Return the throughput of one replica that is never without work."""
    times = simulate(sharegpt(20_000, 1e6), fleet_of(TABLES, engine, 1)).times
    ends_s = np.sort(times.finish_s)
    return (
        0.5
        * len(ends_s)
        / float(ends_s[3 * len(ends_s) // 4] - ends_s[len(ends_s) // 4])
    )


@pytest.fixture(scope="module")
def capacity() -> float:
    """Return requests per second of one replica at full load."""
    return capacity_per_s(LIMITS)


def seconds(call) -> float:
    """Return the least processor time of three calls."""
    return min(processor_s(call) for _ in range(3))


def processor_s(call) -> float:
    """Return the processor time of one call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def wall_s(call) -> float:
    """Return the least wall time of three calls."""
    best = np.inf
    for _ in range(3):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def report(name: str, n: int, took_s: float, note: str = "") -> None:
    print(f"| {name} | {n:,} | {took_s:.3f} | {n / took_s:,.0f} | {note} |")


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":")[1].strip() for line in lines if "model name" in line]
    return f"{os.cpu_count()} × {names[0]}, Python {platform.python_version()}"


def test_table_of_speeds(capacity):
    print(f"\n{machine()}; one replica at full load: {capacity:.1f} requests/s")
    print("| case | requests | s | requests/s | |\n|---|---|---|---|---|")
    for replicas, router, n in (
        (8, "jsq", 400_000),
        (64, "jsq", 400_000),
        (8, "round-robin", 400_000),
        (8, "power-of-two", 400_000),
        (64, "best-fit", 50_000),
    ):
        trace = sharegpt(n, 0.7 * capacity * replicas)
        took_s = seconds(
            lambda t=trace, r=replicas, name=router: simulate(
                t, fleet_of(TABLES, LIMITS, r, router=name), slo=SLO
            )
        )
        report(f"{router}, {replicas} replicas, 70 % load", n, took_s)


@pytest.mark.parametrize("groups", [0, 2000])
@pytest.mark.parametrize("replicas", [8, 64])
def test_speed_of_each_router(capacity, replicas, groups):
    trace = sharegpt(200_000, 0.7 * capacity * replicas, groups=groups)
    session = np.random.default_rng(1).integers(0, 5000, len(trace))
    trace = replace(trace, session=session)
    engine = CACHING if groups else LIMITS
    routers = [name for name in ROUTERS if name not in ("jsq", "best-fit")]
    routers += ["llm-d:index=approximate", "dynamo-kv:events=0"]
    jsq_s = np.nan
    for name in ("jsq", *routers):
        fleet = fleet_of(TABLES, engine, replicas, router=name)
        simulate(trace.select(slice(0, 1000)), fleet)  # compiles
        took_s = seconds(lambda given=fleet: simulate(trace, given, slo=SLO))
        jsq_s = took_s if name == "jsq" else jsq_s
        case = f"{name}, {replicas} replicas, {groups:,} prefixes"
        report(case, len(trace), took_s, f"{took_s / jsq_s:.2f} × jsq")


def test_overload_with_preemption(capacity):
    rate_per_s = 1.2 * capacity_per_s(TIGHT) * 8
    trace = sharegpt(100_000, rate_per_s)
    preemptions = int(
        simulate(trace, fleet_of(TABLES, TIGHT, 8)).times.preemptions.sum()
    )

    took_s = seconds(lambda: simulate(trace, fleet_of(TABLES, TIGHT, 8)))

    note = f"{preemptions:,} preemptions, 2,000 KV blocks a replica"
    report("jsq, 8 replicas, 120 % load", 100_000, took_s, note)


def test_prefix_caching(capacity):
    trace = sharegpt(100_000, 0.6 * capacity * 8, groups=100)
    cached = int(
        simulate(trace, fleet_of(TABLES, CACHING, 8)).times.cached_tokens.sum()
    )

    took_s = seconds(lambda: simulate(trace, fleet_of(TABLES, CACHING, 8)))

    note = f"100 prefixes of 256 tokens, {cached:,} tokens found"
    report("jsq, 8 replicas, prefix caching", 100_000, took_s, note)


def test_cost_of_a_request_does_not_grow_with_the_trace(capacity):
    for n in (10_000, 100_000, 1_000_000, 10_000_000):
        trace = sharegpt(n, 0.7 * capacity * 8)
        took_s = processor_s(lambda t=trace: simulate(t, fleet_of(TABLES, LIMITS, 8)))
        report("jsq, 8 replicas", n, took_s, f"{took_s / n * 1e6:.2f} µs a request")
        del trace


def test_two_threads(capacity):
    trace = sharegpt(400_000, 0.7 * capacity * 8)
    one_s = wall_s(lambda: simulate(trace, fleet_of(TABLES, LIMITS, 8)))

    def both():
        threads = [
            threading.Thread(target=simulate, args=(trace, fleet_of(TABLES, LIMITS, 8)))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    two_s = wall_s(both)
    note = f"{2 * one_s / two_s:.2f} × one, by the clock on the wall"
    report("the same twice, two threads", 800_000, two_s, note)


def short_requests(n, rate_per_s):
    """Return those of n requests that every scheduler serves."""
    given = sharegpt(n, rate_per_s)
    return given.select(given.prompt_tokens + given.output_tokens <= 4096)


def scheduled_by(name, latency=TABLES):
    """Return a scheduler as it is asked for, and a fleet of 8 replicas that has it."""
    room = ":max_len=4096" if "max_len" in parse_scheduler(name).settings else ""
    engine = replace(LIMITS, scheduler=parse_scheduler(name + room))
    # Without a token budget iterations are longer than the tables.
    reaching = latency.reaching(LIMITS.kv_capacity_tokens)
    return name + room, fleet_of(reaching, without_unsupported(engine), 8)


def test_speed_of_each_scheduler(capacity):
    trace = short_requests(200_000, 0.5 * capacity * 8)
    for name in SCHEDULERS:
        asked, fleet = scheduled_by(name)
        took_s = seconds(lambda given=fleet: simulate(trace, given, slo=SLO))
        report(f"{asked}, 8 replicas, 50 % load", len(trace), took_s)


def test_event_jumps_against_single_steps(capacity):
    n = 1000
    trace = sharegpt(n, 0.7 * capacity)

    fast_s = seconds(lambda: simulate(trace, fleet_of(TABLES, LIMITS, 1)))
    slow_s = processor_s(lambda: judge(trace, TABLES, LIMITS, 1, "jsq"))

    report("simulator, 1 replica", n, fast_s)
    report("judge in plain Python", n, slow_s, f"{slow_s / fast_s:,.0f} × slower")


VIDUR = """
import time
from vidur.config import SimulationConfig
from vidur.simulator import Simulator
simulator = Simulator(SimulationConfig.create_from_cli_args())
start = time.perf_counter()
simulator.run()
print("SECONDS", time.perf_counter() - start)
"""


def test_event_jumps_against_vidur(tmp_path):
    python = os.environ.get("CAPPLAN_VIDUR_PYTHON")
    if python is None and importlib.util.find_spec("vidur") is None:
        pytest.skip("vidur is not installed and CAPPLAN_VIDUR_PYTHON names no Python")
    n = 400
    script = tmp_path / "run.py"
    script.write_text(VIDUR)
    count = ["--synthetic_request_generator_config_num_requests", str(n)]
    done = subprocess.run(
        [python or sys.executable, script, *count],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.skip("vidur failed: " + done.stderr.strip().splitlines()[-1])

    took_s = float(done.stdout.split("SECONDS")[1].split()[0])

    report("vidur, its own defaults", n, took_s)


def test_groups_of_ranks(capacity):
    """Ranks with half of the time of an iteration in the experts, none padded."""
    ranks, n = 8, 200_000
    rank = TABLES._replace(decode_s=TABLES.decode_s / 2, fused_s=TABLES.fused_s / 2)
    experts_s, exchange_s = np.repeat(TABLES.fused_s[1:], ranks) / 2, np.zeros(8193)
    experts_s = np.append(experts_s, experts_s[-1])
    of_ranks = RankTables(rank, ranks, experts_s, experts_s, exchange_s, exchange_s)
    engine = replace(LIMITS, data_parallel_size=ranks)
    for groups in (1, 8):
        for load in (0.3, 0.5, 0.7):
            trace = sharegpt(n, load * capacity * ranks * groups)
            configuration = Configuration(engine, rank, rank_tables=of_ranks)
            fleet = Deployment.of(configuration, groups, "jsq")
            simulate(trace.select(slice(0, 1000)), fleet)  # compiles
            took_s = seconds(lambda t=trace, f=fleet: simulate(t, f, slo=SLO))
            report(f"{groups} groups of {ranks} ranks, {load:.0%} load", n, took_s)
