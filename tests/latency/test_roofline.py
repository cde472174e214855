"""Rooflines from data sheets: hand-worked times, and near what was measured."""

from dataclasses import replace

import numpy as np
import pytest

from capplan.calibration.fit_profile import check_seconds
from capplan.errors import ProfileError
from capplan.fleet.catalog import gpu
from capplan.latency.catalog import find_profile
from capplan.latency.measurements import points_from_rows
from capplan.latency.roofline import (
    KERNELS,
    Efficiency,
    roofline_profile,
    roofline_terms,
)
from capplan.llm.catalog import llm

IDEAL = Efficiency(1, 1, 1, 1, 1, 0, 0)
LLAMA = llm("Llama-3.1-8B")
H100 = gpu("H100-SXM")

POINTS = points_from_rows(
    [("decode", b, b, 1024, 1.0) for b in (1, 8, 64, 256)]
    + [("prefill", 1, n, 0, 1.0) for n in (256, 1024, 4096)]
    + [("mixed", b, b + 512, 1024, 1.0) for b in (8, 64)]
)


def terms(name="Llama-3.1-8B", tp=1, on=H100, **options):
    return roofline_terms(llm(name), on, tp, efficiency=IDEAL, **options)


def test_one_token_reads_all_weights_at_full_bandwidth():
    read_s = LLAMA.weight_bytes_per_gpu(1) / H100.bandwidth_bytes_per_s

    decode, _ = terms()

    assert decode.batch_s[0] == pytest.approx(read_s)
    assert 4.5e-3 < read_s < 5.0e-3  # 16 GB at 3.35 TB/s


def test_many_tokens_are_bound_by_arithmetic():
    _, fused = terms()

    flops = 2 * LLAMA.active_parameter_count * 8192
    time_s = fused.tokens_time_s(np.array([8192.0]))[0]
    assert time_s == pytest.approx(flops / H100.bf16_flops)


def test_context_costs_its_bytes_and_attention_its_flops():
    decode, fused = terms()

    # 2 (K and V) × 32 layers × 8 KV heads × 128 elements × 2 bytes
    assert decode.per_context_s == pytest.approx(131_072 / 3.35e12)
    # A key and a value product, 2 FLOP each, per layer, head and element.
    flops = 4 * 32 * 32 * 128
    assert fused.attention_s == pytest.approx(flops / H100.bf16_flops)


def test_a_mixture_of_experts_reads_more_weights_as_the_batch_grows():
    decode, _ = terms("Mixtral-8x7B", tp=2)

    one, many = decode.base_s(np.array([1.0, 64.0]))

    # Two of eight experts for one token, nearly all for 64.
    assert 0.25 < one / many < 0.35


def test_fp8_weights_are_read_in_half_the_time():
    half, whole = (terms(weight_dtype=dtype)[0].batch_s[0] for dtype in ("fp8", "bf16"))

    # Embeddings stay in 16 bits.
    assert 0.5 <= half / whole < 0.6


def test_nvfp4_matrices_are_multiplied_at_the_rate_of_fp4():
    b200 = gpu("B200-SXM")
    ideal = terms("Llama-3.1-8B-NVFP4", on=b200)[1]

    token_s = ideal.tokens_time_s(np.array([16_384.0]))[0] / 16_384

    # All but the norms of layers and the output embedding of 128,256 × 4,096.
    quantized = LLAMA.active_parameter_count - 128_256 * 4096 - 64 * 4096
    plain = LLAMA.active_parameter_count - quantized
    assert token_s == pytest.approx(2 * quantized / 9e15 + 2 * plain / 2.25e15)
    hopper, sixteen = (
        terms(name)[1].tokens_time_s(np.array([16_384.0]))
        for name in ("Llama-3.1-8B-NVFP4", "Llama-3.1-8B")
    )
    assert hopper == pytest.approx(sixteen)  # weights alone are in 4 bits there


@pytest.mark.parametrize("on", ["B200-SXM", "B300-SXM", "GB200", "GB300"])
@pytest.mark.parametrize("name", ["Llama-3.1-70B-NVFP4", "Qwen3-32B-NVFP4"])
def test_nvfp4_on_blackwell_is_estimated_near_its_measured_kernels(name, on):
    tokens = np.array([1024, 4096, 8192])
    batch = np.array([1, 8, 32])
    ratios = []
    for tp in (2, 4):
        estimate = roofline_profile(llm(name), gpu(on), tp)
        made, known = (
            profile.tables(256, 8192)
            for profile in (estimate, find_profile(name, on, tp))
        )
        ratios += [made.fused_s[tokens] / known.fused_s[tokens]]
        ratios += [made.decode_s[batch] / known.decode_s[batch]]

    assert 0.8 < np.median(ratios) < 1.25
    assert np.min(ratios) > 0.6
    assert np.max(ratios) < 1.5


def test_all_reduces_move_two_of_two_n_minus_one_nths_of_the_bytes_per_layer():
    tokens = np.array([1024.0])

    with_link, without = (
        roofline_terms(LLAMA, H100, 4, efficiency=efficiency)[1].tokens_time_s(tokens)
        for efficiency in (IDEAL, IDEAL._replace(link=np.inf))
    )

    # 2 all-reduces × 32 layers × 2·(3/4) of 1024 × 4096 elements of 2 bytes
    moved_bytes = 2 * 32 * 2 * 3 / 4 * 1024 * 4096 * 2
    expected_s = moved_bytes / H100.nvlink_bytes_per_s_per_direction
    assert with_link - without == pytest.approx(expected_s)


@pytest.mark.parametrize(("tp", "bytes_per_s"), [(2, 19e9), (4, 3.7e9), (8, 2e9)])
def test_a_gpu_without_nvlink_all_reduces_at_the_rate_of_its_degree(tp, bytes_per_s):
    l40s = gpu("L40S")
    assert l40s.nvlink_bytes_per_s_per_direction == 0

    decode, _ = terms(tp=tp, on=l40s)

    read_s = LLAMA.weight_bytes_per_gpu(tp) / l40s.bandwidth_bytes_per_s
    # 2 all-reduces × 32 layers × 2·(N - 1)/N of 4096 elements of 2 bytes
    moved_bytes = 2 * 32 * 2 * (tp - 1) / tp * 4096 * 2
    expected_s = read_s + moved_bytes / bytes_per_s
    assert decode.batch_s[0] == pytest.approx(expected_s, rel=1e-9)


def test_a_gpu_without_a_16_bit_rate_is_refused():
    unknown = replace(H100, bf16_flops=None, fp16_flops=None)

    with pytest.raises(ProfileError, match="no rate for 16-bit arithmetic is known"):
        roofline_terms(LLAMA, unknown, 1)


@pytest.mark.parametrize("name", ["Llama-3.1-8B", "Qwen3-8B", "Llama-2-7B"])
@pytest.mark.parametrize("on", ["H100-SXM", "A100-80GB-SXM"])
def test_the_estimate_is_near_what_was_measured(name, on):
    measured = find_profile(name, on, 1)
    assert measured is not None

    estimate = roofline_profile(llm(name), gpu(on), 1)

    ratio = estimate.predict(POINTS) / measured.predict(POINTS)
    assert np.abs(np.log(ratio)).max() < 3 * estimate.sigma("decode")
    assert estimate.how == "estimate"
    assert "not a measurement" in estimate.note()
    estimate.tables(1024, 16_384).check(1024, 16_384)


@pytest.mark.parametrize("on", ["MI300X", "MI325X", "MI350X", "MI355X"])
def test_prompts_and_contexts_take_longer_on_amd_than_at_nvidias_shares(on):
    amd = roofline_terms(LLAMA, gpu(on), 1)
    at_nvidias = roofline_terms(LLAMA, gpu(on), 1, efficiency=KERNELS)

    assert amd[0].batch_s[0] == at_nvidias[0].batch_s[0]  # weights are read as fast
    assert amd[1].tokens_s[-1] > 2 * at_nvidias[1].tokens_s[-1]
    assert amd[1].attention_s == pytest.approx(2 * at_nvidias[1].attention_s)
    assert amd[0].per_context_s > 1.4 * at_nvidias[0].per_context_s


@pytest.mark.parametrize(
    ("factor", "hint"), [(1000, "are these milliseconds"), (1e-3, "or unit")]
)
def test_times_in_another_unit_are_suspected(factor, hint):
    measured = find_profile("Llama-3.1-8B", "H100-SXM", 1)
    assert measured is not None
    points = POINTS._replace(seconds=measured.predict(POINTS))

    check_seconds(points, LLAMA, H100, 1, "mine.csv")
    wrong = points._replace(seconds=points.seconds * factor)

    with pytest.raises(ProfileError, match=f"mine.csv: .*{hint}"):
        check_seconds(wrong, LLAMA, H100, 1, "mine.csv")


def test_beyond_a_short_window_only_full_attention_reads_and_works():
    found = llm("gpt-oss-120b")
    decode, fused = terms("gpt-oss-120b")

    layer_bytes = 2 * 8 * 64 * 2  # keys and values of 8 heads in 16 bits
    assert decode.per_context_s == pytest.approx(18 * layer_bytes / 3.35e12)
    window_s = 18 * 128 * layer_bytes / 3.35e12
    assert decode.per_request_s == fused.per_request_s == pytest.approx(window_s)
    pair_flops = 4 * 64 * 64
    assert fused.attention_s == pytest.approx(18 * pair_flops / H100.bf16_flops)
    window_flops = 18 * 128 * pair_flops
    assert fused.per_token_s == pytest.approx(window_flops / H100.bf16_flops)
    assert found.flops_per_token(1128) - found.flops_per_token(128) == (
        18 * 1000 * pair_flops
    )


def test_a_long_window_reads_like_full_attention():
    decode, fused = terms("Llama-4-Scout", tp=4)

    assert decode.per_context_s == pytest.approx(48 * 2 * 2 * 128 * 2 / 3.35e12)
    assert decode.per_request_s == fused.per_token_s == 0


def test_a_state_is_read_and_written_for_each_request():
    found = llm("Qwen3-Next-80B-A3B")

    decode, _ = terms("Qwen3-Next-80B-A3B")

    assert decode.per_context_s == pytest.approx(24_576 / 3.35e12)
    state_bytes = 2 * 36 * found.state.state_bytes_per_gpu(1)
    assert decode.per_request_s == pytest.approx(state_bytes / 3.35e12)


def test_sparse_attention_reads_and_multiplies_the_chosen_tokens_and_all_keys():
    found = llm("DeepSeek-V3.2")

    decode, fused = terms("DeepSeek-V3.2", tp=8)

    # Of each token a key of 132 bytes; of 2,048 chosen ones 576 numbers in 16 bits.
    assert decode.per_context_s == pytest.approx(61 * 132 / 3.35e12)
    assert decode.per_request_s == pytest.approx(61 * 2048 * 1152 / 3.35e12)
    score_flops = 2 * 61 * 64 * 128
    assert fused.attention_s * 8 == pytest.approx(score_flops / H100.bf16_flops)
    beyond = found.flops_per_token(4048) - found.flops_per_token(2048)
    assert beyond == 2000 * score_flops


def test_heads_of_two_widths_are_read_by_their_own():
    decode, _ = terms("Gemma-4-26B-A4B")

    assert decode.per_context_s == pytest.approx(5 * 2 * 2 * 512 * 2 / 3.35e12)
    window_bytes = 25 * 1024 * 2 * 8 * 256 * 2
    assert decode.per_request_s == pytest.approx(window_bytes / 3.35e12)
