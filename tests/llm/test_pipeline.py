"""Which layers and weights the GPUs of a stage hold."""

import pytest

from capplan.errors import InputError
from capplan.llm.catalog import llm
from capplan.llm.pipeline import (
    absent_bytes,
    check_pp,
    largest_share,
    stage_layers,
    stage_llms,
)


@pytest.mark.parametrize(
    ("layers", "stages", "expected"),
    [
        # As vLLM 0.32's get_pp_indices divides them.
        (32, 2, (16, 16)),
        (61, 2, (31, 30)),
        (61, 4, (15, 15, 16, 15)),
        (62, 4, (15, 16, 16, 15)),
        (63, 4, (16, 16, 16, 15)),
        (3, 3, (1, 1, 1)),
    ],
)
def test_layers_left_over_go_before_the_last_stage(layers, stages, expected):
    assert stage_layers(layers, stages) == expected


@pytest.mark.parametrize("name", ["Llama-3.1-8B", "Qwen3-30B-A3B", "DeepSeek-V3"])
@pytest.mark.parametrize("stages", [1, 2, 3, 8])
def test_the_weights_of_all_stages_are_those_of_the_llm(name, stages):
    model = llm(name)

    held = sum(
        part.weight_bytes_per_gpu(1) - absent_bytes(model, 1, stage, stages)
        for stage, part in enumerate(stage_llms(model, stages))
    )

    # Each stage is counted with the last norm, of hidden * 2 bytes.
    norms = (stages - 1) * 2 * model.hidden * model.norm_width_factor
    assert held - norms == pytest.approx(model.weight_bytes_per_gpu(1), rel=1e-9)


def test_layers_without_experts_are_on_the_first_stages():
    first, *others = stage_llms(llm("DeepSeek-V3"), 4)

    assert first.dense_layers == 3
    assert [part.dense_layers for part in others] == [0, 0, 0]


def test_tied_embeddings_are_on_both_ends():
    model = llm("Llama-3.2-1B")

    assert model.tied_embeddings
    middle = model.vocab * model.hidden * 2
    assert [absent_bytes(model, 1, k, 3) for k in range(3)] == [0, middle, 0]


@pytest.mark.parametrize(
    ("name", "stages", "reason"),
    [
        ("Llama-3.1-8B", 40, "has 32 layers, too few .* 40; expected at most 32"),
        ("gpt-oss-120b", 2, "has layers with a window"),
        ("DeepSeek-V4-Flash", 2, "has layers with a window"),
        ("Qwen3.5-35B-A3B", 2, "has layers with a recurrent state"),
    ],
)
def test_stages_that_are_not_counted_are_refused(name, stages, reason):
    with pytest.raises(InputError, match=reason):
        check_pp(llm(name), stages)


def test_the_layers_left_over_make_up_for_the_output_embedding():
    model = llm("Llama-3.1-70B")  # 80 layers
    head = 128_256 * 8_192 / model.active_parameter_count

    assert largest_share(model, 2) == pytest.approx((1 - head) / 2 + head)
    # The embedding is as large as 1.2 layers.
    assert stage_layers(80, 3) == (27, 27, 26)
    assert largest_share(model, 3) == pytest.approx((1 - head) * 26 / 80 + head)
