"""Write docs/how/speed.md: ``python tests/bench/speed_page.py [--runs 5] [--short]``.

Takes a quarter of an hour of idle cores; ``--short`` leaves out the commands of
minutes. These run once: run them before, so that the cache has what they compile.
Processor time is that of the process and its children, the median of the runs.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
# The paths come first: what is imported after them is in no package.
sys.path[:0] = [str(ROOT), str(Path(__file__).parent), str(ROOT / "tests/simulator")]

import numpy as np  # noqa: E402
from frozen_kernel import serve  # noqa: E402
from test_simulator_speed import (  # noqa: E402
    SLO,
    machine,
    processor_s,
    scheduled_by,
    short_requests,
)
from test_speed_guard import ENGINE, RATE_PER_S, TABLES, TIMES  # noqa: E402
from test_speed_guard import requests as drawn  # noqa: E402

from capplan.deployment.pools import Deployment  # noqa: E402
from capplan.simulator.schedulers import SCHEDULERS  # noqa: E402
from capplan.simulator.simulate import simulate  # noqa: E402
from capplan.workload.trace import Trace  # noqa: E402
from tests.deployments import fleet_of  # noqa: E402

USERS = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
PAGE = ROOT / "docs/how/speed.md"
FIRST = (
    "plan --workload sharegpt --rate 20 --llm Llama-3.1-8B --gpu H100-SXM "
    "--slo ttft=1s,tpot=50ms"
)
SHORT = {
    "the plan above, again": FIRST,
    "`plan examples/plan_sharegpt.yaml`": "plan examples/plan_sharegpt.yaml",
    "`simulate`, 10,000 requests": (
        "simulate --trace {trace} --llm Llama-3.1-8B --gpu H100-SXM --tp 1 "
        "--replicas 4 --slo ttft=1s,tpot=30ms"
    ),
}
LONG = {
    "`compare examples/compare_mixed.yaml`, five systems": (
        "compare examples/compare_mixed.yaml "
        "--systems vllm-v1,sarathi,fastgen,accelgen,alise"
    ),
    "`compare examples/compare_mixed.yaml`, all systems": (
        "compare examples/compare_mixed.yaml"
    ),
    "`plan examples/plan_mix.yaml`": "plan examples/plan_mix.yaml",
    "`budget examples/budget_week.yaml`": "budget examples/budget_week.yaml",
    "`what-if examples/what_if_sharegpt.yaml`": (
        "what-if examples/what_if_sharegpt.yaml"
    ),
    "`plan --disaggregated`, DeepSeek-R1 with MTP on H200, B200, GB200": (
        "plan --workload azure-conv-like --rate 20 --llm DeepSeek-R1 "
        "--gpu H200,B200,GB200 --slo ttft=2s,tpot=20ms --disaggregated "
        """--speculative-config '{{"method":"mtp"}}'"""
    ),
}


def run(command: str, cache: str) -> tuple[float, float]:
    """Run a command of capplan; return its processor seconds and peak of memory, MB."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "requests.csv")
        rows = "".join(
            f"{at:.6f},{p},{o}\n" for at, p, o in zip(*drawn(10_000), strict=True)
        )
        trace.write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")
        given = shlex.split(command.format(trace=trace))
        started = subprocess.Popen(
            [sys.executable, "-m", "capplan", *given, "--out", f"{folder}/out", "-q"],
            cwd=ROOT,
            env={**os.environ, "XDG_CACHE_HOME": cache},
            stdout=subprocess.DEVNULL,
        )
        _, status, used = os.wait4(started.pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 3):
        raise SystemExit(f"capplan {command}: failed")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1000


def folder_mb(path: str) -> float:
    """Return the bytes of a folder's files, in MB."""
    return sum(f.stat().st_size for f in Path(path).rglob("*") if f.is_file()) / 1e6


def commands(runs: int, *, short: bool) -> Iterator[str]:
    """Yield the rows of the commands."""
    colds = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as cache:
            colds.append((*run(FIRST, cache), folder_mb(cache)))
    cold_s, cold_mb, kept_mb = (median(each) for each in zip(*colds, strict=True))
    name = f"`{FIRST}`, the first after an install"
    yield f"| {name} | {cold_s:.1f} s | {cold_mb:,.0f} MB |"
    for name, command in (SHORT if short else SHORT | LONG).items():
        times = 1
        if name in SHORT:
            run(command, USERS)  # compiles what this user's cache lacks
            times = runs
        took = [run(command, USERS) for _ in range(times)]
        spent_s, most_mb = (median(each) for each in zip(*took, strict=True))
        yield f"| {name} | {spent_s:.1f} s | {most_mb:,.0f} MB |"
    yield f"\nThe first plan leaves {kept_mb:.0f} MB of compiled code in the cache."


def beside(trace: Trace, fleet: Deployment, **known: object) -> tuple[float, float]:
    """Return requests/s, and over those of the frozen loop that ran between."""
    simulate(trace.select(slice(0, 500)), fleet, **known)  # compiles
    kernel_s, core_s = np.inf, np.inf
    arrival_s, prompt, output = drawn(100_000)
    for _ in range(5):
        kernel_s = min(
            kernel_s,
            processor_s(lambda: serve(arrival_s, prompt, output, 8, np.array(TIMES))),
        )
        core_s = min(core_s, processor_s(lambda: simulate(trace, fleet, **known)))
    per_s = len(trace) / core_s
    return per_s, per_s * kernel_s / len(arrival_s)


def core() -> Iterator[str]:
    """Yield the rows of the core: requests/s, and over those of the frozen loop."""
    arrival_s, prompt, output = drawn(200_000)
    trace = Trace(prompt, output, arrival_s)
    rng = np.random.default_rng(1)
    shared = replace(
        trace,
        prefix_group=rng.integers(0, 50, len(trace)),
        prefix_tokens=np.minimum(prompt, 100),
    )
    wide = Trace(prompt, output, arrival_s / 64)
    tight = replace(ENGINE, kv_blocks=900)
    caching = replace(ENGINE, prefix_caching=True)
    for name, given, fleet in (
        ("8 replicas", trace, fleet_of(TABLES, ENGINE, 8)),
        ("8 replicas, KV that is too small", trace, fleet_of(TABLES, tight, 8)),
        ("8 replicas, prefix caching", shared, fleet_of(TABLES, caching, 8)),
        ("512 replicas", wide, fleet_of(TABLES, ENGINE, 512)),
    ):
        per_s, ratio = beside(given, fleet)
        yield f"| {name} | {per_s / 1e6:.2f} M | {ratio:.2f} |"


def policies() -> Iterator[str]:
    """Yield a row for each scheduler."""
    trace = short_requests(200_000, RATE_PER_S)
    for name in SCHEDULERS:
        per_s, ratio = beside(trace, scheduled_by(name, TABLES)[1], slo=SLO)
        yield f"| `{name}` | {per_s / 1e6:.2f} M | {ratio:.2f} |"


def page(runs: int, *, short: bool) -> str:
    """Return the page."""
    serve(*drawn(100), 8, np.array(TIMES))  # compiles
    parts = [
        "# How fast it is",
        "Made by `python tests/bench/speed_page.py` on an idle virtual machine,\n"
        f"{machine()}. Processor time of all threads; short commands are\n"
        f"the median of {runs} run{'s' * (runs != 1)}, those of more than ten seconds "
        "ran once. "
        "All write their files (`--out`).",
        "## Commands",
        "| command | processor | memory |\n|---|---|---|\n"
        + "\n".join(commands(runs, short=short)),
        "## The core",
        "Simulated requests in a second, with checks and results, without compiling.\n"
        "The last column is over the requests in a second of a small loop that never\n"
        "changes (`tests/bench/frozen_kernel.py`), which ran in between: another\n"
        "machine or load slows both alike.",
        "| vLLM V1, shortest queue | requests/s | of the loop's |\n|---|---|---|\n"
        + "\n".join(core()),
        "Lengths of ShareGPT up to 4,096 tokens, 8 replicas:",
        "| scheduler | requests/s | of the loop's |\n|---|---|---|\n"
        + "\n".join(policies()),
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--short", action="store_true")
    asked = parser.parse_args()
    PAGE.write_text(page(asked.runs, short=asked.short), encoding="utf-8")
