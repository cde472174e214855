"""More replicas serve the same requests no worse."""

import numpy as np
import pytest

from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import linear_tables
from capplan.simulator.routers import ROUTERS
from capplan.simulator.simulate import simulate
from capplan.workload.slo import RequestSlo, Slo
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

LIMITS = EngineSettings(
    max_num_batched_tokens=2048, max_num_seqs=64, block_size=16, kv_blocks=1500
)
TABLES = linear_tables(7e-3, 2.5e-5, 6e-11, 2e-5, 4e-9, max_batch=64, max_tokens=2048)
SLO = Slo(RequestSlo(ttft_s=0.5, tpot_s=0.02))


def trace_of(seed: int, n: int = 1500) -> Trace:
    rng = np.random.default_rng(seed)
    return Trace(
        np.clip(rng.lognormal(5.5, 1.0, n), 1, 4000).astype(int),
        np.clip(rng.lognormal(4.5, 0.8, n), 1, 1000).astype(int),
        np.cumsum(rng.exponential(1 / 30, n)),
        session=rng.integers(0, 400, n),
    )


@pytest.mark.parametrize("router", sorted(ROUTERS))
@pytest.mark.parametrize(("fewer", "more"), [(1, 2), (2, 3), (3, 5)])
def test_attainment_does_not_fall_with_more_replicas(router, fewer, more):
    # Paired on the same draws: the mean rise may be below 0 by chance alone,
    # at most 3 of its standard errors.
    rises = []
    for seed in range(8):
        trace = trace_of(seed)
        limits_s = SLO.columns(trace.request_class, trace.class_names)
        shares = [
            np.logical_and.reduce(
                simulate(
                    trace, fleet_of(TABLES, LIMITS, count, router=router), slo=SLO
                ).table.met(limits_s)
            ).mean()
            for count in (fewer, more)
        ]
        rises.append(shares[1] - shares[0])

    mean, error = np.mean(rises), np.std(rises, ddof=1) / np.sqrt(len(rises))
    assert mean >= -3 * error - 1e-12
