"""What decode context parallelism does to the iteration time, worked by hand."""

import numpy as np
import pytest

from capplan.fleet.catalog import gpu
from capplan.latency.context_parallel import with_context_parallel
from capplan.latency.contract import linear_tables
from capplan.llm.catalog import llm

R1 = llm("DeepSeek-R1")
H200 = gpu("H200-SXM")
US = 1e-6


def tables(context_s: float = 18.5e-9):
    return linear_tables(
        10e-3, 1e-5, 1e-9, 1e-4, context_s, max_batch=64, max_tokens=8192
    )


def test_collectives_of_deepseek_r1_take_what_their_bytes_take():
    shared = with_context_parallel(tables(), R1, H200, 8, 8)

    # 61 layers, 3 collectives of 4.6 us; of each request 128 heads of 576 + 512
    # elements and a sum, 7/8 of them over 0.41 of 450 GB/s: 80.73 us.
    fixed_s = 61 * 3 * 4.6 * US
    request_s = 61 * 7 / 8 * 128 * (2 * (576 + 512) + 4) / (0.41 * 450e9)
    assert request_s == pytest.approx(80.73 * US, abs=0.01 * US)
    for name in ("decode_s", "fused_decode_s"):
        more_s = getattr(shared, name) - getattr(tables(), name)
        assert more_s[0] == 0
        assert more_s[1] == pytest.approx(fixed_s + request_s, abs=US)
        assert more_s[64] == pytest.approx(fixed_s + 64 * request_s, abs=US)


def test_a_context_is_read_in_parts_until_arithmetic_binds():
    # 16 heads a GPU and 1,088 products of each with a token, in 61 layers, at 0.44 of
    # 989.4 TFLOP/s: 4.88 ns.
    least_s = 61 * 2 * 16 * (576 + 512) / (0.44 * H200.bf16_flops)
    assert least_s == pytest.approx(4.88e-9, abs=0.01e-9)

    by_two, by_eight = (
        with_context_parallel(tables(), R1, H200, 8, dcp) for dcp in (2, 8)
    )

    assert by_two.decode_context_s[8] == pytest.approx(18.5e-9 / 2)
    assert by_eight.decode_context_s[8] == pytest.approx(least_s)
    assert by_eight.fused_context_s[8] == pytest.approx(least_s)


@pytest.mark.parametrize("dcp", [2, 4, 8])
def test_no_context_is_read_slower_than_without(dcp):
    fast = tables(1e-9)

    shared = with_context_parallel(fast, R1, H200, 8, dcp)

    assert (shared.decode_context_s == fast.decode_context_s).all()


def test_prompts_alone_take_as_long_and_degree_one_is_as_without():
    shared = with_context_parallel(tables(), R1, H200, 8, 8)

    assert np.array_equal(shared.fused_s, tables().fused_s)
    assert shared.attention_s == tables().attention_s
    alone = tables()
    assert with_context_parallel(alone, R1, H200, 8, 1) is alone


def test_gpus_joined_by_pcie_take_longer():
    l40s = gpu("L40S")
    qwen = llm("Qwen3-235B-A22B")

    by_pcie = with_context_parallel(tables(), qwen, l40s, 8, 2)
    by_nvlink = with_context_parallel(tables(), qwen, H200, 8, 2)

    assert (by_pcie.decode_s[1:] > by_nvlink.decode_s[1:]).all()
