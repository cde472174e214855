import os
import subprocess
import sys

import pytest
from numba import config

from capplan.simulator import linking

SERVE = """
import sys
import numpy as np
from capplan.simulator import linking
if sys.argv[1] == "numba's own way":
    linking.AVAILABLE = False
from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import linear_tables
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

rng = np.random.default_rng(0)
trace = Trace(*rng.integers(1, 300, (2, 500)), np.cumsum(rng.exponential(0.01, 500)))
tables = linear_tables(7e-3, 2e-5, 0, 2e-5, 1e-8, max_batch=64, max_tokens=512)
engine = EngineSettings(max_num_batched_tokens=512, max_num_seqs=64, kv_blocks=400)
times = simulate(trace, fleet_of(tables, engine, 2)).times
print(times.finish_s.tobytes().hex()[-64:], times.finish_s.sum().hex())
"""


def test_numba_has_what_linking_uses():
    assert linking.AVAILABLE


@pytest.mark.skipif(config.DISABLE_JIT, reason="nothing is compiled")
def test_what_only_compiled_code_calls_has_no_code_of_its_own():
    from capplan.simulator.drivers.open_loop import run
    from capplan.simulator.fleet.serve import advance

    (of_python,) = run.overloads.values()
    libraries = [result.library for result in advance.overloads.values()]

    assert not isinstance(of_python.library, linking._Bitcode)
    assert all(isinstance(library, linking._Bitcode) for library in libraries)


@pytest.mark.slow
def test_numbas_own_way_gives_the_same_results(tmp_path):
    def served(way):
        environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / way)}
        command = [sys.executable, "-c", SERVE, way]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert served("numba's own way") == served("linked")
