"""Which estimate is used where nothing was measured."""

import numpy as np
import pytest

from capplan.deployment.replica import DoesNotFitError, replica
from capplan.errors import InputError
from capplan.fleet.catalog import gpu
from capplan.latency.catalog import (
    find_profile,
    list_profiles,
    load_listed,
    profile_path,
)
from capplan.latency.estimate import estimate_from, estimated_profile
from capplan.latency.profile_file import save_profile
from capplan.latency.roofline import roofline_profile
from capplan.llm.catalog import llm, llm_names
from capplan.llm.layout import Layout


@pytest.mark.parametrize(
    ("name", "on", "tp", "source"),
    [
        ("Llama-2-7B", "H100-SXM", 4, "k/N + c + d N through TP 8"),
        ("Llama-2-7B", "H100-SXM", 16, "Llama-2-7B on H100-SXM, TP 8 scaled"),
        ("Llama-3.1-8B", "L40S", 4, "Llama-3.1-8B on L40S, TP 8 scaled"),
        ("Llama-3.3-70B", "H100-PCIe", 8, "Llama-3.1-70B on H100-SXM, TP 8 scaled"),
        ("Llama-3.1-8B", "L4", 2, "scaled by data sheets"),
        ("Mistral-7B-v0.3", "H100-SXM", 1, "data sheet of H100-SXM"),
    ],
)
def test_the_nearest_measurement_there_is_is_used(name, on, tp, source):
    estimate = estimated_profile(llm(name), gpu(on), tp)

    assert source in estimate.source
    assert (estimate.gpu, estimate.tp) == (on, tp)
    assert estimate.how == "estimate"
    estimate.tables(1024, 16_384).check(1024, 16_384)


# In 16 bits the largest fit no eight GPUs.
@pytest.mark.parametrize(
    "name",
    [x if llm(x).weight_bytes() < 2e12 else f"{x}-NVFP4" for x in llm_names()],
)
def test_every_llm_can_be_estimated_or_has_a_reason_why_not(name):
    found, estimates, reasons = llm(name), 0, []
    for on in map(gpu, ("H200-SXM", "B200-SXM", "B300-SXM", "L40S")):
        for tp in (1, 2, 4, 8):
            try:
                engine = replica(found, on, Layout(tp)).engine
            except DoesNotFitError as error:
                reasons.append(error.reason)
                continue
            table = roofline_profile(found, on, tp).tables(
                engine.max_num_seqs, engine.max_num_batched_tokens
            )
            assert (np.diff(table.decode_s[1:]) >= 0).all()
            assert table.decode_s[1] > found.weight_bytes_per_gpu(tp) * (
                0.05 / on.bandwidth_bytes_per_s
            )
            estimates += 1
    assert estimates
    assert all(found.name in reason for reason in reasons)


def test_the_measured_profile_itself_is_not_used_for_its_own_estimate():
    estimate = estimated_profile(llm("Llama-3.1-8B"), gpu("H100-SXM"), 2)

    assert "through TP 8, TP 4, TP 1" in estimate.source


def test_one_other_degree_on_the_same_gpu_comes_before_another_gpu(tmp_path):
    own = find_profile("Llama-3.1-8B", "H100-SXM", 1).model_copy(
        update={"gpu": "L4", "tp": 4}
    )
    save_profile(own, profile_path(tmp_path, "L4", "Llama-3.1-8B", 4))

    estimate = estimated_profile(llm("Llama-3.1-8B"), gpu("L4"), 2, [tmp_path])

    assert estimate.source.startswith("Llama-3.1-8B on L4, TP 4 scaled")


def test_another_gpu_is_scaled_from_the_same_tp_degree():
    estimate = estimated_profile(llm("Llama-3.1-8B"), gpu("A100-40GB-SXM"), 4)

    assert estimate.source.startswith("Llama-3.1-8B on A100-80GB-SXM, TP 4 scaled")


@pytest.mark.parametrize(
    ("on", "source"),
    [
        ("H100-NVL", "H100-SXM"),
        ("H100-PCIe", "H100-SXM"),
        ("A100-40GB-SXM", "A100-80GB-SXM"),
    ],
)
def test_another_gpu_is_scaled_from_the_one_with_the_nearest_data_sheet(on, source):
    estimate = estimated_profile(llm("Llama-3.1-70B"), gpu(on), 4)

    assert estimate.source.startswith(f"Llama-3.1-70B on {source}, TP 4 scaled")


def test_no_gpu_is_scaled_from_one_of_another_vendor():
    estimate = estimated_profile(llm("Llama-3.1-70B"), gpu("MI300X"), 4)
    other = estimated_profile(llm("Llama-3.3-70B-FP8"), gpu("A100-80GB-SXM"), 4)

    assert "data sheet of MI300X" in estimate.source
    assert "MI3" not in other.source


def test_the_nearest_gpu_predicts_the_decode_of_a_measured_one():
    known = [p for p in list_profiles([]) if (p.llm, p.tp) == ("Llama-3.1-70B", 4)]
    measured = {listed.gpu: load_listed(listed.path) for listed in known}
    batch = np.array([1, 16, 64, 256])

    for target, truth in measured.items():
        others = [profile for name, profile in measured.items() if name != target]
        estimate = estimate_from(others, llm("Llama-3.1-70B"), gpu(target), 4)
        times_s = estimate.tables(256, 2048).decode_s[batch]
        known_s = truth.tables(256, 2048).decode_s[batch]
        assert np.abs(times_s / known_s - 1).mean() < 0.1, target


def test_a_profile_of_a_gpu_without_a_data_sheet_is_not_scaled(tmp_path):
    own = find_profile("Llama-3.1-8B", "H100-SXM", 1).model_copy(
        update={"gpu": "cpu-of-ours", "llm": "Mistral-7B-v0.3"}
    )
    save_profile(own, profile_path(tmp_path, "cpu-of-ours", "Mistral-7B-v0.3", 1))

    estimate = estimated_profile(llm("Mistral-7B-v0.3"), gpu("L4"), 1, [tmp_path])

    assert "data sheet of L4" in estimate.source


def test_fp8_weights_make_the_estimate_faster_than_bf16():
    dense = llm("Mistral-7B-v0.3")

    half, whole = (
        roofline_profile(dense, gpu("H100-SXM"), 1, weight_dtype=dtype)
        for dtype in ("fp8", "bf16")
    )

    assert half.quantization == "fp8"
    assert whole.quantization == "none"
    assert half.tables(1, 1).decode_s[1] < 0.7 * whole.tables(1, 1).decode_s[1]


def test_a_tp_degree_that_does_not_divide_the_heads_is_refused():
    with pytest.raises(InputError, match="TP 3 does not"):
        estimated_profile(llm("Llama-3.1-8B"), gpu("H100-SXM"), 3)
