"""How fast long traces are served, and in how much memory: ``pytest -m bench -s``.

The memory is asserted, which no other program on the machine disturbs; times are
printed, in processor time, and asserted of no run.
"""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from streaming import LIMITS, REPLICAS, chunks

from capplan.latency.catalog import find_profile
from capplan.simulator.simulate import simulate
from tests.deployments import fleet_of

pytestmark = pytest.mark.bench

SCRIPT = Path(__file__).with_name("streaming.py")


def streamed(n: int) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, SCRIPT, str(n)], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    print(
        f"| streamed, jsq, 8 replicas, 70 % load | {n:,} | {found['processor_s']:.2f} "
        f"| {n / found['processor_s']:,.0f} | {found['peak_gib']:.2f} GiB, "
        f"{found['processor_s'] / n * 1e6:.2f} µs a request, generation included |"
    )
    return found


def test_memory_and_cost_of_a_request_do_not_grow_with_the_trace():
    print()
    found = [streamed(n) for n in (10_000, 100_000, 1_000_000, 10_000_000)]

    assert found[3]["peak_gib"] < 1.5 * found[2]["peak_gib"]


def test_a_hundred_million_requests_in_one_run_under_4_gb():
    print()
    found = streamed(100_000_000)

    assert found["requests"] == 100_000_000
    assert found["peak_gib"] * 2**30 < 4e9


def test_two_threads_take_the_processor_time_of_two_runs():
    """Print it: what two threads gain where two processors are theirs alone."""
    profile = find_profile("Llama-3.1-8B", "H100-SXM", 1)
    tables = profile.tables(LIMITS.max_num_seqs, LIMITS.max_num_batched_tokens)
    (trace,) = chunks(200_000, 100.0)
    took_s = []

    def one():
        began_s = time.thread_time()
        simulate(trace, fleet_of(tables, LIMITS, REPLICAS))
        took_s.append(time.thread_time() - began_s)

    one()
    ratios = []
    for _ in range(5):
        took_s.clear()
        threads = [threading.Thread(target=one) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        beside_s = sum(took_s)
        took_s.clear()
        one()
        one()
        ratios.append(2 * sum(took_s) / beside_s)
    print(f"\ntwo threads, in processor time: {sorted(ratios)[2]:.2f} × one")
