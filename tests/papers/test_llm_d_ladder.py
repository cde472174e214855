"""EAGLE-3 on Qwen3-32B as llm-d measured it, against a simulation of 1.5 tokens a step.

llm-d pull request 2074 (@b4099d9d): 2 × H200, 3 drafts, 2,048 random prompt tokens and
256 output tokens: mean TPOT 13.2, 15.1 and 24.6 ms without drafts at 1, 2 and 4
requests/s, 9.7, 11.7 and 21.4 ms with; at saturation 1,645 output tokens/s without,
1,442 to 1,473 with. The acceptance is not published: 1.5 is what the first row says.
"""

from dataclasses import replace

import numpy as np
import pytest

from capplan.deployment.configuration import Configuration
from capplan.deployment.engine import EngineSettings
from capplan.deployment.pools import Deployment
from capplan.deployment.speculation import Speculation, rates_of_length
from capplan.latency.catalog import find_profile
from capplan.llm.acceptance import draft_share
from capplan.llm.catalog import llm
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace

PROMPT, OUTPUT = 2048, 256
PLAIN_MS = {1: 13.2, 2: 15.1, 4: 24.6}
RATIO = {1: 9.7 / 13.2, 2: 11.7 / 15.1, 4: 21.4 / 24.6}
ENGINE = EngineSettings(
    max_num_batched_tokens=8192, max_num_seqs=1024, kv_blocks=48_000
)


def served(rate_per_s: float, *, drafts: bool) -> tuple[float, float]:
    """Return the mean TPOT [ms] and output tokens/s of one replica by TP 2."""
    n = 1200
    profile = find_profile("Qwen3-32B", "H200-SXM", 2)
    assert profile is not None
    arrival_s = np.cumsum(np.random.default_rng(0).exponential(1 / rate_per_s, n))
    share = draft_share(llm("Qwen3-32B"), "eagle3", "bf16")
    speculation = Speculation("eagle3", rates_of_length(1.5, 3), draft_share=share)
    engine = replace(ENGINE, speculation=speculation if drafts else None)
    configuration = Configuration(engine, profile.tables(1024, 8192))
    trace = Trace(np.full(n, PROMPT), np.full(n, OUTPUT), arrival_s)
    times = simulate(trace, Deployment.of(configuration, 1)).table
    tpot_s = (times.finish_s - times.first_token_s) / (OUTPUT - 1)
    return float(tpot_s.mean()) * 1e3, n * OUTPUT / float(times.finish_s.max())


@pytest.mark.parametrize("rate_per_s", [1, 2, 4])
def test_drafts_shorten_tpot_as_much_as_measured(rate_per_s):
    plain_ms, _ = served(rate_per_s, drafts=False)
    drafted_ms, _ = served(rate_per_s, drafts=True)

    assert plain_ms == pytest.approx(PLAIN_MS[rate_per_s], rel=0.17)
    # 0.02 above, 0.01 and 0.065 below what was measured
    assert drafted_ms / plain_ms == pytest.approx(RATIO[rate_per_s], abs=0.07)


def test_at_saturation_drafts_cost_as_much_throughput_as_measured():
    _, plain_per_s = served(50, drafts=False)
    _, drafted_per_s = served(50, drafts=True)

    assert plain_per_s == pytest.approx(1645, rel=0.05)
    assert 0.87 - 0.05 <= drafted_per_s / plain_per_s <= 0.92 + 0.05


def test_drafts_stop_paying_between_four_and_eight_requests_a_second():
    plain_ms, _ = served(8, drafts=False)
    drafted_ms, _ = served(8, drafts=True)

    assert drafted_ms > plain_ms
