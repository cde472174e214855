"""Vision encoders: parameters, memory and arithmetic from their shapes."""

import pytest

from capplan.errors import InputError
from capplan.llm.catalog import llm
from capplan.llm.hf_config import from_config


def test_an_encoder_has_the_parameters_of_its_matrices():
    vision = llm("Qwen3-VL-8B").vision

    layer = 4 * 1152**2 + 2 * 1152 * 4304
    merger = 4608 * (4608 + 4096)
    assert vision.parameter_count == 27 * layer + 4 * merger + 3 * 2 * 16**2 * 1152
    # The model has 8.77 B parameters in all, its text part 8.19 B.
    assert vision.parameter_count == pytest.approx(8.77e9 - 8.19e9, rel=0.02)


def test_gpus_share_the_weights_of_an_encoder():
    vision = llm("Kimi-K2.5").vision

    assert vision.weight_bytes_per_gpu(1) == 2 * vision.parameter_count
    assert vision.weight_bytes_per_gpu(8) == 2 * -(-vision.parameter_count // 8)


def test_arithmetic_is_two_per_parameter_of_a_patch_and_four_a_pair():
    vision = llm("Qwen3.5-397B-A17B").vision

    layer = 4 * 1152**2 + 2 * 1152 * 4304
    patches = 4 * (27 * layer + 3 * 2 * 16**2 * 1152)
    assert vision.token_flops == 2 * (patches + 4608 * (4608 + 4096))
    assert vision.pair_flops == 4 * 27 * 1152 * 4**2


@pytest.mark.parametrize(
    ("name", "tokens"), [("Qwen3-VL-4B", 16_384), ("Kimi-K2.6", 4096)]
)
def test_larger_images_are_scaled_down(name, tokens):
    assert llm(name).vision.max_image_tokens == tokens


def test_each_layer_of_deepstack_adds_to_a_token():
    assert llm("Qwen3-VL-8B").vision.token_bytes == 4 * 4096 * 2
    assert llm("Qwen3.5-397B-A17B").vision.token_bytes == 4096 * 2


@pytest.mark.parametrize("name", ["Llama-3.1-8B", "Gemma-3-4B", "Kimi-K2"])
def test_other_llms_have_no_encoder(name):
    assert llm(name).vision is None


def test_heads_that_do_not_divide_are_refused():
    with pytest.raises(InputError, match=r"16 heads .* TP 3; expected --mm-encoder-tp"):
        llm("Qwen3-VL-8B").vision.check_split(3)


def test_an_encoder_without_shapes_is_refused():
    config = {
        "model_type": "qwen3_vl_text",
        "num_hidden_layers": 1,
        "hidden_size": 64,
        "num_attention_heads": 2,
        "intermediate_size": 128,
        "vocab_size": 100,
        "vision_config": {"hidden_size": 32},
    }

    with pytest.raises(InputError, match="here: vision_config: depth is missing"):
        from_config(config, "small", "here")
