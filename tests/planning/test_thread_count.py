"""The same inputs give the same bytes, however many threads sums may take."""

import os
import subprocess
import sys

_PLANNED = """
import hashlib, sys
from pathlib import Path

import capplan
from capplan.planning.evaluate import saturation

work_done = saturation._work_done


def told(*given):
    done = work_done(*given)
    print(len(given[0]), done.tobytes().hex())
    return done


saturation._work_done = told
capplan.plan(
    workload="sharegpt", rate=60, llm="Llama-3.1-8B", gpu="H100-SXM", tp=[1],
    slo="ttft=1s,tpot=50ms", tune=False, as_of="2026-11-01", out=sys.argv[1],
)
print(hashlib.sha256((Path(sys.argv[1]) / "plan.json").read_bytes()).hexdigest())
"""
_THREADED = 10_000
"""Terms from which on OpenBLAS shares a dot product among threads."""


def test_a_plan_is_the_same_byte_for_byte_with_one_thread_and_with_two(tmp_path):
    def planned(threads: int) -> str:
        variables = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        asked = dict.fromkeys(variables, str(threads))
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", _PLANNED, str(tmp_path)],
            env={**os.environ, **asked},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    one, two = planned(1), planned(2)

    assert max(int(line.split()[0]) for line in one.splitlines()[:-1]) > _THREADED
    assert one == two
