"""Decode context parallelism in settings, simulation, plan and launch line."""

import numpy as np
import pytest

from capplan.deployment.configuration import Configuration
from capplan.deployment.pools import Deployment
from capplan.errors import InputError
from capplan.planning.configure.configuration import configurations, only_configuration
from capplan.planning.configure.excluded import Excluded
from capplan.planning.configure.launch import launch
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import PlanSettings, SimulateSettings
from capplan.simulator.simulate import simulate
from capplan.workload.trace import Trace

R1 = {"llm": "DeepSeek-R1", "gpu": "H200-SXM", "tp": 8}
TIMES = {"latency_ms": "10,0.1,0,0.1,0.001"}


def r1(dcp: int, **more) -> Configuration:
    settings = PlanSettings(**R1, decode_context_parallel_size=dcp, **more)
    (one,) = configurations(settings)
    assert isinstance(one, Configuration), one.reason
    return one


def given(**more) -> Configuration:
    """Return an engine whose iterations take 10 ms each, without LLM and GPU."""
    return only_configuration(
        SimulateSettings(
            latency_ms="10,0,0,0,0",
            block_size=16,
            tp=4,
            async_scheduling=False,
            prefix_caching=False,
            **more,
        )
    )


def ttft_ms(kv_blocks: int, dcp: int = 4) -> np.ndarray:
    """Return TTFTs of prompts of 1,000 and 100 tokens that come together. [ms]"""
    one = given(kv_blocks=kv_blocks, decode_context_parallel_size=dcp)
    trace = Trace([1000, 100], [3, 2], [0.0, 0.0])
    return simulate(trace, Deployment.of(one, 1)).table.ttft_s * 1e3


def test_requests_wait_for_blocks_of_block_size_times_dcp():
    # 16 blocks of 64 tokens hold 1,000 of the first until its third token, at 30 ms,
    # and 2 the 100 of the second; one more is the null block.
    assert ttft_ms(1 + 18) == pytest.approx([10, 10], abs=1e-3)
    assert ttft_ms(1 + 17) == pytest.approx([10, 40], abs=1e-3)


def test_the_same_blocks_without_are_too_few():
    with pytest.raises(InputError, match="a replica holds 288 and takes"):
        ttft_ms(1 + 18, dcp=1)


def test_blocks_hold_eight_times_the_tokens_and_the_rest_is_as_without():
    alone, shared = r1(1), r1(8)

    assert shared.engine.kv_blocks == alone.engine.kv_blocks
    assert shared.engine.block_size == 8 * alone.engine.block_size
    assert np.array_equal(shared.tables.fused_s, alone.tables.fused_s)
    assert (shared.tables.decode_context_s <= alone.tables.decode_context_s).all()


def test_degree_one_is_as_none():
    (without,) = configurations(PlanSettings(**R1))
    one = r1(1)

    assert one.engine == without.engine
    assert one.engine.document() == without.engine.document()
    assert all(map(np.array_equal, one.tables, without.tables))


def test_given_times_are_those_of_the_engine_as_it_is():
    alone, shared = (r1(dcp, **TIMES) for dcp in (1, 8))

    assert all(map(np.array_equal, alone.tables, shared.tables))


def test_the_launch_line_gives_the_degree_and_the_block_of_one_gpu():
    settings = PlanSettings(
        **R1, **TIMES, decode_context_parallel_size=8, block_size=64
    )
    (one,) = configurations(settings)

    flags = launch(one, settings).flags

    assert one.engine.block_size == 512
    assert flags["--decode-context-parallel-size"] == "8"
    assert flags["--block-size"] == "64"


def test_the_degree_is_left_out_of_a_launch_line_without():
    settings = PlanSettings(**R1, **TIMES)
    (one,) = configurations(settings)

    assert "--decode-context-parallel-size" not in launch(one, settings).flags


def test_degrees_of_tp_that_do_not_fit_are_excluded_with_the_reason():
    settings = PlanSettings(
        llm="Qwen3-235B-A22B", gpu="H200-SXM", tp="4,8", decode_context_parallel_size=2
    )

    four, eight = configurations(settings)

    assert isinstance(four, Excluded)
    assert "its 4 KV heads have no copies at this TP; expected 1" in four.reason
    assert isinstance(eight, Configuration)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (
            {"speculative_config": '{"method":"mtp","num_speculative_tokens":1}'},
            "context_parallel_size 8 is not modelled: how long drafts then take is not",
        ),
    ],
)
def test_what_is_not_modelled_with_it_is_refused(more, reason):
    (one,) = configurations(PlanSettings(**R1, decode_context_parallel_size=8, **more))

    assert isinstance(one, Excluded)
    assert reason in one.reason


def test_pools_of_prompts_and_of_decoding_are_refused():
    pool = Deployment.of(given(kv_blocks=99, decode_context_parallel_size=2), 1).pool

    with pytest.raises(InputError, match="parallel_size 2 is not modelled"):
        Deployment((pool, pool), hand_off="nixl")


@pytest.mark.filterwarnings("ignore::capplan.errors.CapplanWarning")
def test_a_plan_says_that_the_times_are_assumed():
    settings = PlanSettings(
        **R1,
        workload="synthetic:prompt=1000,output=20,n=100",
        rate=1,
        slo="ttft=5s,tpot=1s",
        price={"H200-SXM": "3"},
        decode_context_parallel_size=8,
    )

    made = plan(settings)

    rows = {row.what: row for row in made.assumptions}
    row = rows["decode context parallelism, H200-SXM × TP 8"]
    assert row.value.startswith("each GPU reads 1/8 of a context")
    assert row.how == "assumed"
