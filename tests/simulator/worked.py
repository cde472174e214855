"""Cases worked by hand: T prompt tokens and b decodes take 10 + T + b ms together."""

import numpy as np
import pytest

from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import linear_tables
from capplan.simulator.results.request_times import RequestTimes
from capplan.simulator.simulate import simulate
from capplan.workload.slo import Slo
from capplan.workload.synthesis import with_max_new_tokens
from capplan.workload.trace import Trace
from tests.deployments import fleet_of

TABLES = linear_tables(10e-3, 1e-3, 0, 1e-3, 0, max_batch=8, max_tokens=64)


def engine(blocks: int = 64, **settings) -> EngineSettings:
    """Return an engine with so many KV blocks of 4 tokens, beside the null block.

    A block goes to the host in 1 ms.
    """
    return EngineSettings(
        **{
            "max_num_batched_tokens": 64,
            "max_num_seqs": 8,
            "block_size": 4,
            "kv_blocks": blocks + 1,
            "async_scheduling": False,
            "kv_block_bytes": 10**6,
            "link_gb_per_s": 1.0,
            **settings,
        }
    )


def served(
    scheduler: str,
    requests: list[tuple[float, int, int]],
    blocks: int = 64,
    slo: Slo | None = None,
    max_new_tokens: int = 0,
    **settings,
) -> RequestTimes:
    """Serve requests: arrival [ms], prompt and output [tokens]."""
    arrival_ms, prompts, outputs = np.array(requests).T
    trace = Trace(prompts.astype(int), outputs.astype(int), arrival_ms / 1e3)
    trace = with_max_new_tokens(trace, max_new_tokens)
    given = engine(blocks, **settings)
    return simulate(
        trace, fleet_of(TABLES, given, 1, scheduler=scheduler), slo=slo
    ).table


def ms(times_s: np.ndarray):
    """Return times in milliseconds, equal to others to the microsecond. [ms]"""
    return pytest.approx(times_s * 1e3, abs=1e-3)


THREE = [(0, 4, 3), (5, 6, 2), (30, 2, 4)]
"""Requests A, B and C."""
