"""Latency below which no request comes, in tables of any shape."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.deployment.engine import EngineSettings
from capplan.latency.contract import LatencyTables
from capplan.planning.configure.scheduling import widest_alone
from capplan.planning.load.unbatched import unbatched
from capplan.simulator.schedulers import SCHEDULERS
from capplan.workload.slo import RequestSlo, Slo
from capplan.workload.trace import Trace

sys.path.insert(0, str(Path(__file__).parents[2] / "simulator"))
from cases import EXAMPLES, cases, for_scheduler

ENGINE = EngineSettings(
    max_num_batched_tokens=4,
    max_num_seqs=2,
    block_size=1,
    kv_blocks=100,
    prefix_caching=False,
)
SLO = Slo(RequestSlo(ttft_s=0.3, tpot_s=0.05))
TABLES = LatencyTables(
    decode_s=np.array([0.0, 10.0, 12.0]),
    decode_context_s=np.array([0.0, 1.0, 1.0]),
    fused_s=np.array([0.0, 20.0, 21.0, 22.0, 23.0]),
    fused_decode_s=np.zeros(3),
    fused_context_s=np.array([0.0, 1.0, 1.0]),
    attention_s=0.0,
    request_s=0.0,
)


def least(tables, prompt=(6,), output=(3,)):
    return unbatched(Trace(prompt, output, np.zeros(len(prompt))), tables, ENGINE)


def test_a_request_alone_is_the_fastest_where_the_tables_rise():
    times = least(TABLES)

    assert times.ttft_s[0] == 23 + 21  # 4 tokens, then 2
    assert times.tbt_s[0] == pytest.approx(10 + 8)
    assert times.tpot_s[0] == pytest.approx(10 + 7.5)
    assert times.e2e_s[0] == pytest.approx(44 + 17 + 18)


def test_a_token_may_take_less_beside_a_prompt():
    # Two tokens of which one decodes: 8 and a context of 7 or 8.
    cheap = TABLES._replace(fused_s=np.array([0.0, 20.0, 8.0, 9.0, 10.0]))

    times = least(cheap)

    assert times.tpot_s[0] == pytest.approx(8 + 7.5)


def test_a_token_may_take_less_in_a_batch():
    # Two of 7 or 8 tokens read in 12 + 0.2 × 14 or 16; alone it is 10 + 7 or 8.
    wide = TABLES._replace(decode_context_s=np.array([0.0, 1.0, 0.2]))

    times = least(wide)

    assert times.tbt_s[0] == pytest.approx(12 + 0.2 * (8 + 7))
    assert times.tpot_s[0] == pytest.approx(12 + 0.2 * (7.5 + 7))


def test_a_prompt_may_take_less_beside_a_decode():
    beside = TABLES._replace(fused_decode_s=np.array([0.0, -5.0, 0.0]))

    assert least(beside, prompt=[3]).ttft_s[0] == 23 - 5


def test_a_prompt_may_take_less_where_more_tokens_do():
    falling = TABLES._replace(fused_s=np.array([0.0, 20.0, 21.0, 17.0, 23.0]))

    assert least(falling, prompt=[2]).ttft_s[0] == 17


def test_a_prompt_may_take_less_in_chunks():
    # Of 1 and 2 tokens, or more even ones: no less than two of 1.5.
    steep = TABLES._replace(fused_s=np.array([0.0, 1.0, 2.0, 30.0, 40.0]))

    assert least(steep, prompt=[3]).ttft_s[0] == pytest.approx(3)


# V0 preempts a request that fills the KV though it is alone, and computes it again at
# once: where the tables have its whole context take less than a token, that is faster.
@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(set(SCHEDULERS) - {"vllm-v0"}))
@settings(max_examples=2 * EXAMPLES)
@given(case=cases(), seed=st.integers(0, 2**20), is_less_with_decodes=st.booleans())
def test_no_request_is_faster_in_tables_that_fall(
    name, case, seed, is_less_with_decodes
):
    rng = np.random.default_rng(seed)
    scheduler, case = for_scheduler(name, case, seed)
    shuffled = ("decode_s", "decode_context_s", "fused_s", "fused_context_s")
    tables = case.tables._replace(
        **{name: rng.permutation(getattr(case.tables, name)) for name in shuffled}
    )
    if is_less_with_decodes:
        most_s = tables.fused_s.min() / 2
        tables = tables._replace(
            fused_decode_s=-rng.uniform(0, most_s, len(tables.fused_decode_s))
            * (np.arange(len(tables.fused_decode_s)) > 0)
        )
    case = case._replace(tables=tables)
    engine, widest = widest_alone(
        case.deployment(scheduler=scheduler).pool.configuration
    )
    bounded = unbatched(case.trace, widest, engine)

    times = case.simulated("jsq", scheduler, slo=SLO).times

    later = case.trace.output_tokens > 1
    assert (bounded.ttft_s <= times.ttft_s + 1e-9).all()
    assert (bounded.tpot_s[later] <= times.tpot_s[later] + 1e-9).all()
    assert (bounded.e2e_s <= times.e2e_s + 1e-9).all()
