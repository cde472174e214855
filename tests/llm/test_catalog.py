import json
import re
import warnings
from pathlib import Path

import pytest

from capplan.errors import CapplanWarning, InputError
from capplan.llm.catalog import llm, llm_names, same_shapes, twins

PARAMETERS = {
    "Llama-2-7B": 6_738_415_616,
    "Llama-2-13B": 13_015_864_320,
    "Llama-2-70B": 68_976_648_192,
    "Llama-3-8B": 8_030_261_248,
    "Llama-3-70B": 70_553_706_496,
    "Llama-3.1-8B": 8_030_261_248,
    "Llama-3.1-70B": 70_553_706_496,
    "Llama-3.1-405B": 405_853_388_800,
    "Llama-3.2-1B": 1_235_814_400,
    "Llama-3.2-3B": 3_212_749_824,
    "Llama-3.3-70B": 70_553_706_496,
    "Llama-4-Scout": 107_769_861_120,
    "Llama-4-Maverick": 400_711_848_960,
    "Mistral-7B-v0.1": 7_241_732_096,
    "Mistral-7B-v0.3": 7_248_023_552,
    "Mistral-Small-24B-2501": 23_572_403_200,
    "Mistral-Small-3.1-24B": 23_572_403_200,
    "Mistral-Small-3.2-24B": 23_572_403_200,
    "Mixtral-8x7B": 46_702_792_704,
    "Mixtral-8x22B": 140_630_071_296,
    "Qwen2.5-0.5B": 494_032_768,
    "Qwen2.5-1.5B": 1_543_714_304,
    "Qwen2.5-3B": 3_085_938_688,
    "Qwen2.5-7B": 7_615_616_512,
    "Qwen2.5-14B": 14_770_033_664,
    "Qwen2.5-32B": 32_763_876_352,
    "Qwen2.5-72B": 72_706_203_648,
    "DeepSeek-R1-Distill-Qwen-1.5B": 1_777_088_000,
    "Qwen3-0.6B": 596_049_920,
    "Qwen3-1.7B": 1_720_574_976,
    "Qwen3-4B": 4_022_468_096,
    "Qwen3-4B-2507": 4_022_468_096,
    "Qwen3-8B": 8_190_735_360,
    "Qwen3-14B": 14_768_307_200,
    "Qwen3-32B": 32_762_123_264,
    "Qwen3-30B-A3B": 30_532_122_624,
    "Qwen3-30B-A3B-2507": 30_532_122_624,
    "Qwen3-235B-A22B": 235_093_634_560,
    "Qwen3-235B-A22B-2507": 235_093_634_560,
    "Qwen3-Coder-480B-A35B": 480_154_875_392,
    "Qwen3-Next-80B-A3B": 79_674_391_296,
    "Qwen3-Coder-Next": 79_674_391_296,
    "Qwen3-VL-2B": 1_720_574_976,
    "Qwen3-VL-4B": 4_022_468_096,
    "Qwen3-VL-8B": 8_190_735_360,
    "Qwen3-VL-32B": 32_762_123_264,
    "Qwen3-VL-30B-A3B": 30_532_122_624,
    "Qwen3-VL-235B-A22B": 235_093_634_560,
    "Qwen3.5-27B": 26_895_998_464,
    "Qwen3.5-35B-A3B": 34_660_610_688,
    "Qwen3.5-122B-A10B": 122_111_526_912,
    "Qwen3.5-397B-A17B": 396_346_350_336,
    "Gemma-2-2B": 2_614_341_888,
    "Gemma-2-9B": 9_241_705_984,
    "Gemma-2-27B": 27_227_128_320,
    "Gemma-3-1B": 999_885_952,
    "Gemma-3-4B": 3_880_263_168,
    "Gemma-3-12B": 11_766_034_176,
    "Gemma-3-27B": 27_009_346_304,
    "Gemma-4-26B-A4B": 25_233_141_760,
    "Gemma-4-31B": 30_697_345_280,
    "Phi-3-mini": 3_821_079_552,
    "Phi-3-medium": 13_960_238_080,
    "Phi-4": 14_659_507_200,
    "DeepSeek-V2-Lite": 15_706_484_224,
    "DeepSeek-V3": 671_026_419_200,
    "DeepSeek-R1": 671_026_419_200,
    "DeepSeek-V3.1": 671_026_419_200,
    "DeepSeek-V3.2": 671_877_944_064,
    # Of the router's bias, which their first three layers lack, 256 and 384 more.
    "DeepSeek-V4-Flash": 284_332_240_471 + 3 * 256,
    "DeepSeek-V4-Pro": 1_572_997_201_763 + 3 * 384,
    # Without the sinks of its 39 layers with a window.
    "MiMo-V2-Flash": 308_778_780_864 - 39 * 64,
    "Step-3.5-Flash": 196_956_130_368,
    "Mistral-Large-3-675B": 673_421_097_216,
    "NVIDIA-Nemotron-3-Super-120B-A12B": 120_668_707_840,
    "NVIDIA-Nemotron-3-Ultra-550B-A55B": 549_308_993_536,
    "Kimi-Linear-48B-A3B": 49_122_681_728,
    # Not in transformers; 2.8 T and 49.9 B by their cards, as the sums of their parts.
    "Kimi-K3": 2_779_484_131_936,
    "Llama-3.3-Nemotron-Super-49B-v1": 49_867_005_952,
    "Qwen3.5-0.8B": 752_393_024,
    "Qwen3.5-2B": 1_881_825_088,
    "Qwen3.5-4B": 4_205_751_296,
    "Qwen3.5-9B": 8_953_803_264,
    "Mistral-Small-4-119B": 118_972_826_624,
    "Ministral-3-3B": 3_429_006_336,
    "Ministral-3-8B": 8_489_553_920,
    "Ministral-3-14B": 13_506_073_600,
    "Mistral-Nemo-12B": 12_247_782_400,
    "Codestral-22B": 22_247_282_688,
    "DeepSeek-V2": 235_741_434_880,
    "Mistral-Large-2-123B": 122_610_069_504,
    "Phi-4-mini": 3_836_021_760,
    "NVIDIA-Nemotron-Nano-9B-v2": 8_888_227_328,
    "Qwen3.8-2.4T-A95B": 2_419_804_697_984,
    "Kimi-K2": 1_026_408_232_448,
    "Kimi-K2-0905": 1_026_408_232_448,
    "Kimi-K2-Thinking": 1_026_408_232_448,
    "Kimi-K2.5": 1_026_408_232_448,
    "Kimi-K2.6": 1_026_408_232_448,
    "GLM-4.5": 352_797_829_024,
    "GLM-4.5-Air": 106_852_251_264,
    "GLM-4.6": 352_797_829_024,
    "GLM-4.7": 352_797_829_024,
    "GLM-5.2": 743_377_019_904,
    "GLM-4.7-Flash": 29_943_393_920,
    "GLM-5": 743_911_218_432,
    "MiniMax-M2": 228_689_764_864,
    "MiniMax-M3": 426_174_572_928,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "NVIDIA-Nemotron-3-Nano-30B-A3B": 31_577_940_288,
    "Nemotron-H-56B": 56_324_350_464,
    "OPT-1.3B": 1_315_758_080,
    "OPT-6.7B": 6_658_473_984,
    "OPT-13B": 12_853_473_280,
    "OPT-30B": 29_974_540_288,
    "OPT-66B": 65_719_701_504,
    "OPT-175B": 174_604_468_224,
}
"""Parameters of the model that transformers 5.19 (Llama 4 to Qwen3.5: 5.23) builds from
the same config, with the score corrections of the routers, which it keeps apart."""

LIKE = {
    "Mistral-Small-3.2-24B": (
        "Magistral-Small-2506",
        "Magistral-Small-2507",
        "Magistral-Small-2509",
        "Devstral-Small-2505",
        "Devstral-Small-2507",
        "Devstral-Small-2-24B",
    ),
    "Qwen2.5-3B": ("Qwen2.5-VL-3B",),
    "Qwen2.5-72B": ("Qwen2.5-VL-72B",),
    "Qwen3-8B": ("DeepSeek-R1-0528-Qwen3-8B",),
    "GLM-4.5-Air": ("GLM-4.5V", "GLM-4.6V"),
    "GLM-5.2": ("GLM-5.3",),
    "Qwen2.5-7B": ("Qwen2.5-Coder-7B", "DeepSeek-R1-Distill-Qwen-7B", "Qwen2.5-VL-7B"),
    "Qwen2.5-14B": ("Qwen2.5-Coder-14B", "DeepSeek-R1-Distill-Qwen-14B"),
    "Qwen2.5-32B": (
        "Qwen2.5-Coder-32B",
        "QwQ-32B",
        "DeepSeek-R1-Distill-Qwen-32B",
        "Qwen2.5-VL-32B",
    ),
    "Qwen3-30B-A3B": ("Qwen3-Coder-30B-A3B",),
    "Qwen3.5-27B": ("Qwen3.6-27B", "Qwen3.8-27B"),
    "Qwen3.5-35B-A3B": ("Qwen3.6-35B-A3B",),
    "DeepSeek-V3.2": ("DeepSeek-V3.2-Exp",),
    "Kimi-K2": ("Kimi-K2.7-Code",),
    "GLM-5": ("GLM-5.1",),
    "Step-3.5-Flash": ("Step-3.7-Flash",),
    "NVIDIA-Nemotron-3-Nano-30B-A3B": ("NVIDIA-Nemotron-3.5-Lightning-30B-A3B",),
    "Llama-3.3-Nemotron-Super-49B-v1": ("Llama-3.3-Nemotron-Super-49B-v1.5",),
    "MiniMax-M2": ("MiniMax-M2.1", "MiniMax-M2.5", "MiniMax-M2.7"),
}
"""LLMs with the shapes of another."""
PARAMETERS |= {name: PARAMETERS[of] for of, names in LIKE.items() for name in names}

PUBLISHED = {
    "Llama-2-70B": 68_976_648_192,
    "Llama-3.1-8B": 8_030_261_248,
    "Llama-3.1-70B": 70_553_706_496,
    "Mixtral-8x7B": 46_702_792_704,
    "Qwen2.5-7B": 7_615_616_512,
    "Qwen3-8B": 8_190_735_360,
    "Qwen3-30B-A3B": 30_532_122_624,
    "Gemma-2-9B": 9_241_705_984,
    "Phi-4": 14_659_507_200,
    "DeepSeek-V2-Lite": 15_706_484_224,
    "DeepSeek-R1-Distill-Qwen-1.5B": 1_777_088_000,
}
"""Total parameters that the models' Hugging Face pages show."""

ROUNDED = {
    "DeepSeek-V4-Flash": 284,
    "GLM-4.7-Flash": 30,
    "GLM-5": 744,
    "Kimi-K3": 2_780,
    "Kimi-Linear-48B-A3B": 49.1,
    "Llama-3.3-Nemotron-Super-49B-v1": 49.9,
    "MiMo-V2-Flash": 309,
    "MiniMax-M2.5": 229,
    "Mistral-Large-3-675B": 675 - 2.5,
    "Mistral-Small-4-119B": 119,
    "NVIDIA-Nemotron-Nano-9B-v2": 8.89,
    "Phi-4-mini": 3.84,
    "Qwen3.8-2.4T-A95B": 2_420,
    "NVIDIA-Nemotron-3-Super-120B-A12B": 120.7,
    "NVIDIA-Nemotron-3-Ultra-550B-A55B": 550,
    "Qwen3.6-27B": 27,
    "Qwen3.6-35B-A3B": 35,
    "Step-3.7-Flash": 198 - 1.8,
}
"""Billions that cards and vLLM's recipes state, less their vision encoders."""


@pytest.mark.parametrize(("name", "billions"), ROUNDED.items())
def test_parameters_are_within_a_percent_of_those_published(name, billions):
    assert llm(name).parameter_count / 1e9 == pytest.approx(billions, rel=0.01)


@pytest.mark.parametrize("name", llm_names())
def test_parameters_counted_from_shapes_are_those_of_the_model(name):
    assert llm(name).parameter_count == PARAMETERS[name]


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_published(name):
    assert llm(name).parameter_count == PUBLISHED[name]


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        # Model cards: Qwen3-30B-A3B 3.3 B activated, of them 3.0 B without the
        # input embedding; Qwen3-235B-A22B 22; Qwen3-Coder 35; DeepSeek-V3 37; Mixtral
        # 8x7B 12.9; gpt-oss-20b 3.6 and gpt-oss-120b 5.1; GLM-4.5 32; Kimi-K2 32;
        # Llama 4 17, of them 1.03 of the input embedding.
        ("Qwen3-30B-A3B", 3.0),
        ("Qwen3-235B-A22B", 22),
        ("DeepSeek-V3", 37),
        ("DeepSeek-V4-Flash", 13),
        ("NVIDIA-Nemotron-3-Super-120B-A12B", 12),
        ("NVIDIA-Nemotron-3-Ultra-550B-A55B", 55),
        ("MiMo-V2-Flash", 15),
        # Without the input embedding of 0.5; Kimi-Linear 3, with it 3.5.
        ("Step-3.5-Flash", 11 + 0.5),
        ("Kimi-Linear-48B-A3B", 3.1),
        ("Mistral-Large-3-675B", 39),
        ("DeepSeek-V4-Pro", 49),
        ("Mixtral-8x7B", 12.9),
        ("gpt-oss-20b", 3.6),
        ("gpt-oss-120b", 5.1),
        ("Qwen3-Coder-480B-A35B", 35),
        # Of the input embedding: 1.02 of 17 in Qwen3.5-397B-A17B, 0.35 of 3.6 in
        # Nemotron 3 Nano.
        ("Qwen3.5-397B-A17B", 17 - 1.02),
        ("NVIDIA-Nemotron-3-Nano-30B-A3B", 3.6 - 0.35),
        ("GLM-4.5", 32),
        # MiniMax-M3 23, without the output embedding of 1.23; Gemma 4 26B-A4B 3.8.
        ("MiniMax-M3", 23 + 1.23),
        ("Gemma-4-26B-A4B", 3.8),
        ("Kimi-K2", 32),
        ("Llama-4-Scout", 17 - 1.03),
        ("Llama-4-Maverick", 17 - 1.03),
    ],
)
def test_active_parameters_are_those_of_the_model_card(name, billions):
    assert llm(name).active_parameter_count / 1e9 == pytest.approx(billions, rel=0.03)


@pytest.mark.parametrize("name", llm_names())
def test_every_name_of_the_catalog_finds_itself_in_any_case(name):
    assert llm(name).name == llm(name.lower()).name == name


@pytest.mark.parametrize(
    ("written", "name", "dtype"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-8B", "bf16"),
        ("meta-llama/Meta-Llama-3-8B", "Llama-3-8B", "bf16"),
        ("meta-llama/Llama-2-70b-chat-hf", "Llama-2-70B", "bf16"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "Mixtral-8x7B", "bf16"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "Qwen3-30B-A3B-2507", "bf16"),
        ("Qwen/Qwen3-235B-A22B-Thinking-2507", "Qwen3-235B-A22B-2507", "bf16"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "Llama-4-Scout", "bf16"),
        ("Mistral-Small-24B-Instruct-2501", "Mistral-Small-24B-2501", "bf16"),
        ("Mistral-Small-3.2-24B-Instruct-2506", "Mistral-Small-3.2-24B", "bf16"),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "Qwen3-Next-80B-A3B", "bf16"),
        (
            "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
            "NVIDIA-Nemotron-3-Nano-30B-A3B",
            "bf16",
        ),
        ("nvidia/Nemotron-H-56B-Base-8K", "Nemotron-H-56B", "bf16"),
        ("google/gemma-3-27b-it", "Gemma-3-27B", "bf16"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "Llama-3.3-70B", "bf16"),
        ("nvidia/Llama-3.3-70B-Instruct-FP8", "Llama-3.3-70B-FP8", "fp8"),
        ("zai-org/GLM-4.6-FP8", "GLM-4.6-FP8", "fp8"),
        ("Qwen/Qwen3-32B-FP8", "Qwen3-32B-FP8_BLOCK", "fp8_block"),
        ("RedHatAI/Qwen3-32B-FP8-dynamic", "Qwen3-32B-FP8", "fp8"),
        ("RedHatAI/Llama-3.3-70B-FP8-block", "Llama-3.3-70B-FP8_BLOCK", "fp8_block"),
        ("Qwen3-32B-FP8_BLOCK", "Qwen3-32B-FP8_BLOCK", "fp8_block"),
        ("nvidia/DeepSeek-R1-FP4", "DeepSeek-R1-NVFP4", "nvfp4"),
        ("nvidia/Llama-3.3-70B-Instruct-NVFP4", "Llama-3.3-70B-NVFP4", "nvfp4"),
        ("facebook/opt-1.3b", "OPT-1.3B", "fp16"),
        ("facebook/opt-13b", "OPT-13B", "fp16"),
        ("Llama-3.1-70B-FP8", "Llama-3.1-70B-FP8", "fp8"),
        ("Llama-3.1-70B-Instruct-FP8-dynamic", "Llama-3.1-70B-FP8", "fp8"),
        ("Qwen2.5-32B-Instruct-AWQ", "Qwen2.5-32B-INT4", "int4"),
        ("Meta-Llama-3.1-8B-Instruct-quantized.w8a8", "Llama-3.1-8B-INT8", "int8"),
        ("DeepSeek-R1", "DeepSeek-R1", "fp8_block"),
        ("deepseek-ai/DeepSeek-R1-0528", "DeepSeek-R1", "fp8_block"),
        ("deepseek-ai/DeepSeek-V3-0324", "DeepSeek-V3", "fp8_block"),
        ("deepseek-ai/DeepSeek-V3.1-Terminus", "DeepSeek-V3.1", "fp8_block"),
        ("moonshotai/Kimi-K2-Instruct", "Kimi-K2", "fp8_block"),
        ("moonshotai/Kimi-K2-Instruct-0905", "Kimi-K2-0905", "fp8_block"),
        ("moonshotai/Kimi-K2-Thinking", "Kimi-K2-Thinking", "int4_g32"),
        ("nvidia/Kimi-K2.5-NVFP4", "Kimi-K2.5-NVFP4", "nvfp4"),
        ("openai/gpt-oss-20b", "gpt-oss-20b", "mxfp4"),
        ("Qwen/Qwen3-VL-30B-A3B-Instruct", "Qwen3-VL-30B-A3B", "bf16"),
        ("Qwen/Qwen3-VL-235B-A22B-Thinking", "Qwen3-VL-235B-A22B", "bf16"),
        ("google/gemma-4-26B-A4B-it", "Gemma-4-26B-A4B", "bf16"),
        ("nvidia/Gemma-4-31B-IT-NVFP4", "Gemma-4-31B-NVFP4", "nvfp4"),
        ("deepseek-ai/DeepSeek-V3.2", "DeepSeek-V3.2", "fp8_block"),
        ("nvidia/DeepSeek-V3.2-NVFP4", "DeepSeek-V3.2-NVFP4", "nvfp4"),
        ("moonshotai/Kimi-K2.6", "Kimi-K2.6", "int4_g32"),
        ("zai-org/GLM-5.2-FP8", "GLM-5.2-FP8_BLOCK", "fp8_block"),
        ("MiniMaxAI/MiniMax-M3", "MiniMax-M3", "bf16"),
        ("MiniMaxAI/MiniMax-M2.5", "MiniMax-M2.5", "fp8_block"),
        ("moonshotai/Kimi-K3", "Kimi-K3", "mxfp4"),
        ("XiaomiMiMo/MiMo-V2-Flash", "MiMo-V2-Flash", "fp8_block"),
        ("stepfun-ai/Step-3.7-Flash", "Step-3.7-Flash", "bf16"),
        (
            "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8",
            "NVIDIA-Nemotron-3-Super-120B-A12B-FP8",
            "fp8",
        ),
        (
            "nvidia/Llama-3_3-Nemotron-Super-49B-v1_5-FP8",
            "Llama-3.3-Nemotron-Super-49B-v1.5-FP8",
            "fp8",
        ),
        (
            "mistralai/Mistral-Large-3-675B-Instruct-2512",
            "Mistral-Large-3-675B",
            "fp8",
        ),
        ("deepseek-ai/DeepSeek-V4-Flash", "DeepSeek-V4-Flash", "mxfp4"),
        ("deepseek-ai/DeepSeek-V4-Flash-0731", "DeepSeek-V4-Flash", "mxfp4"),
        ("sgl-project/DeepSeek-V4-Pro-FP8", "DeepSeek-V4-Pro-FP8_BLOCK", "fp8_block"),
        ("nvidia/DeepSeek-V4-Pro-NVFP4", "DeepSeek-V4-Pro-NVFP4", "nvfp4"),
        ("zai-org/GLM-5-FP8", "GLM-5-FP8_BLOCK", "fp8_block"),
        ("zai-org/GLM-5.1-FP8", "GLM-5.1-FP8_BLOCK", "fp8_block"),
        ("Qwen/QwQ-32B-AWQ", "QwQ-32B-INT4", "int4"),
        ("mistralai/Devstral-Small-2507", "Devstral-Small-2507", "bf16"),
        ("mistralai/Mistral-7B-Instruct-v0.1", "Mistral-7B-v0.1", "bf16"),
        ("mistralai/Mistral-7B-Instruct-v0.2", "Mistral-7B-v0.3", "bf16"),
        ("google/gemma-4-31B-it-qat-w4a16-ct", "Gemma-4-31B-INT4", "int4"),
        ("unsloth/Llama-3.3-70B-Instruct-bnb-4bit", "Llama-3.3-70B-INT4", "int4"),
        ("Qwen/Qwen3.5-27B-GPTQ-Int4", "Qwen3.5-27B-INT4", "int4"),
        ("nvidia/DeepSeek-R1-0528-NVFP4-v2", "DeepSeek-R1-NVFP4", "nvfp4"),
        ("models--Qwen--Qwen3-32B", "Qwen3-32B", "bf16"),
        ("openai/gpt-oss-safeguard-20b", "gpt-oss-20b", "mxfp4"),
        ("NousResearch/Hermes-4-70B-FP8", "Llama-3.1-70B-FP8", "fp8"),
        ("Eco-Tech/Qwen3.8-27B-w8a8", "Qwen3.8-27B-INT8", "int8"),
        ("nvidia/Qwen3.6-27B-NVFP4", "Qwen3.6-27B-NVFP4A16", "nvfp4a16"),
        ("MiniMaxAI/MiniMax-M3-MXFP8", "MiniMax-M3-MXFP8", "mxfp8"),
    ],
)
def test_an_llm_is_found_by_the_names_people_write(written, name, dtype):
    found = llm(written)

    assert (found.name, found.weight_dtype) == (name, dtype)


def test_an_unknown_llm_is_refused_with_the_nearest_names():
    with pytest.raises(InputError, match=r"unknown LLM 'Llama-3.1-9B'.*Llama-3.1-8B"):
        llm("Llama-3.1-9B")


@pytest.mark.parametrize(
    "name",
    [
        "Qwen/Qwen3-Embedding-8B",
        "RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3",
        "unsloth/Qwen3-32B-GGUF",
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B-Japanese",
        "nvidia/Nemotron-3-Nano-Omni-30B-A3B-Reasoning-NVFP4",
        "zai-org/GLM-5.3-Flash",
        "mistralai/Mistral-Small-4-119B-2603-eagle",
    ],
)
def test_a_name_with_a_word_that_is_not_known_is_no_other_llm(name):
    with pytest.raises(InputError, match="unknown LLM"):
        llm(name)


def test_an_unknown_llm_with_none_near_is_told_where_names_are():
    with pytest.raises(InputError, match=r"unknown LLM 'org/Foo-Bar'; see"):
        llm("org/Foo-Bar")


@pytest.mark.parametrize(("of", "names"), LIKE.items())
def test_llms_with_the_shapes_of_another_are_its_twins(of, names):
    assert all(same_shapes(llm(of), llm(name)) for name in names)


def config(**fields):
    return {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "hidden_size": 8,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "vocab_size": 10,
    } | fields


def write(folder, content):
    (folder / "config.json").write_text(json.dumps(content))
    return folder


def test_a_folder_with_a_config_is_an_llm(tmp_path):
    folder = tmp_path / "my-llm"
    folder.mkdir()
    write(folder, config(torch_dtype="float16"))

    found, same = llm(folder), llm(str(folder / "config.json"))

    assert found == same
    assert (found.name, found.weight_dtype) == ("my-llm", "fp16")
    # embedding and head 2·10·8; a layer: attention 4·8·8, ffn 3·8·16, norms 2·8;
    # the last norm 8
    assert found.parameter_count == 160 + 2 * (256 + 384 + 16) + 8


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"num_hidden_layers": None}, "num_hidden_layers is missing"),
        ({"hidden_size": "8"}, "hidden_size is '8'"),
        ({"vocab_size": -1}, "vocab_size is -1"),
        ({"num_attention_heads": 0}, "heads is 0"),
        ({"num_key_value_heads": 3}, "do not divide"),
        ({"num_local_experts": 4}, "experts_per_token is 0"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
        ({"layer_types": 4}, "layer_types is 4; expected a list"),
        (
            {
                "model_type": "deepseek_v3",
                "n_routed_experts": 4,
                "num_experts_per_tok": 2,
                "first_k_dense_replace": 3,
            },
            "3 of 2 layers are without experts",
        ),
        (
            {
                "model_type": "minimax_m3",
                "dense_intermediate_size": 16,
                "sparse_attention_config": [1],
            },
            "sparse_num_index_heads is missing",
        ),
        (
            {
                "model_type": "minimax_m3",
                "dense_intermediate_size": 16,
                "sparse_attention_config": {
                    "sparse_num_index_heads": 1,
                    "sparse_index_dim": 8,
                    "sparse_topk_blocks": 2,
                    "sparse_block_size": 16,
                    "sparse_attention_freq": [0, 1, 1, 1],
                },
            },
            "3 layers have sparse attention; expected at most 2",
        ),
        ({"quantization_config": {"quant_method": "aqlm"}}, "quantization 'aqlm'"),
    ],
)
def test_a_config_without_the_shapes_is_refused(tmp_path, fields, complaint):
    with pytest.raises(InputError, match=complaint):
        llm(write(tmp_path, config(**fields)))


def _compressed(**weights):
    groups = {"group_0": {"weights": weights}}
    return {"quant_method": "compressed-tensors", "config_groups": groups}


@pytest.mark.parametrize(
    ("quantization", "dtype"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        (_compressed(type="float", num_bits=8, strategy="channel"), "fp8"),
        (_compressed(type="float", num_bits=8, strategy="block"), "fp8_block"),
        (_compressed(type="int", num_bits=4, group_size=32), "int4_g32"),
        (_compressed(type="float", num_bits=4, strategy="tensor_group"), "nvfp4"),
    ],
)
def test_the_checkpoints_quantization_is_read(tmp_path, quantization, dtype):
    found = llm(write(tmp_path, config(quantization_config=quantization)))

    assert found.weight_dtype == dtype


@pytest.mark.parametrize(
    ("quantization", "dtypes"),
    [
        # As nvidia/Qwen3.6-27B-NVFP4, nvidia/DeepSeek-V4-Pro-NVFP4 and
        # nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4 state it.
        (
            {
                "quant_method": "modelopt",
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": {
                    "model.layers.0.linear_attn.in_proj_qkv": {"quant_algo": "FP8"},
                    "model.layers.0.mlp.gate_proj": {"quant_algo": "W4A16_NVFP4"},
                    "lm_head": {"quant_algo": "W4A16_NVFP4"},
                },
            },
            ("nvfp4a16", "fp8", "nvfp4a16", "nvfp4a16"),
        ),
        (
            {
                "quant_method": "fp8",
                "weight_block_size": [128, 128],
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": {"layers.0.ffn.experts": {"quant_algo": "NVFP4"}},
            },
            ("nvfp4", "fp8_block", "fp8_block", "bf16"),
        ),
        (
            {
                "quant_method": "modelopt",
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": {
                    "backbone.layers.0.mixer.in_proj": {"quant_algo": "FP8"},
                    "backbone.layers.1.mixer.experts.0.up_proj": {
                        "quant_algo": "NVFP4"
                    },
                },
            },
            ("nvfp4", "fp8", "bf16", "bf16"),
        ),
        # As nvidia/GLM-5.1-NVFP4 and nvidia/Kimi-K2.5-NVFP4 list what they leave out.
        (
            {
                "quant_method": "modelopt",
                "quant_algo": "NVFP4",
                "ignore": ["lm_head", "model.layers.0.self_attn*"],
            },
            ("nvfp4", "bf16", "", ""),
        ),
        (
            {
                "quant_method": "modelopt",
                "quant_algo": "NVFP4",
                "ignore": ["model.layers.1.mlp.shared_experts*"],
            },
            ("nvfp4", "nvfp4", "bf16", ""),
        ),
        (
            {
                "quant_method": "modelopt",
                "quant_algo": "NVFP4",
                "ignore": [
                    "model.layers.1.mlp.gate",
                    "model.layers.1.self_attn.k_norm",
                ],
            },
            ("nvfp4", "nvfp4", "", ""),
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "a": {
                        "targets": ["re:.*self_attn.*"],
                        "weights": {"type": "float", "num_bits": 8},
                    },
                    "b": {
                        "targets": ["re:.*mlp.*"],
                        "weights": {
                            "type": "float",
                            "num_bits": 4,
                            "strategy": "tensor_group",
                        },
                    },
                },
            },
            ("nvfp4", "fp8", "nvfp4", "bf16"),
        ),
    ],
)
def test_a_checkpoint_in_several_precisions_is_read_by_part(
    tmp_path, quantization, dtypes
):
    found = llm(write(tmp_path, config(quantization_config=quantization)))

    parts = found.mixer_dtype, found.matrix_dtype, found.head_dtype
    assert (found.weight_dtype, *parts) == dtypes


def test_weights_in_several_precisions_are_those_of_their_parts(tmp_path):
    layers = {
        "layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
        "layers.0.mlp.up_proj": {"quant_algo": "NVFP4"},
        "lm_head": {"quant_algo": "FP8"},
    }
    mixed = {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": layers,
    }

    found = llm(write(tmp_path, config(quantization_config=mixed)))

    # Two layers: attention 4·8·8, ffn 3·8·16, norms 2·8; embeddings 2·10·8; a norm 8.
    quantized = 2 * (256 * 1 + 384 * 0.5625) + 80 * 1
    assert found.weight_bytes() == quantized + 2 * (80 + 2 * 16 + 8)


@pytest.mark.parametrize(
    ("layers", "complaint"),
    [
        (None, "MIXED_PRECISION, and quantized_layers does not say"),
        ({"lm_head": {"quant_algo": "W2"}}, "weights in W2 are not known"),
    ],
)
def test_a_mixed_precision_that_is_not_known_is_refused_by_name(
    tmp_path, layers, complaint
):
    mixed = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}
    mixed["quantized_layers"] = layers

    with pytest.raises(InputError, match=complaint):
        llm(write(tmp_path, config(quantization_config=mixed)))


_SCHEME = {"num_bits": 8, "type": "float", "dynamic": False}
_FP8 = _compressed(type="float", num_bits=8, strategy="channel")


@pytest.mark.parametrize(
    ("quantization", "kv_dtype"),
    [
        ({"quant_method": "fp8"}, "bf16"),
        (_FP8, "bf16"),
        (_FP8 | {"kv_cache_scheme": None}, "bf16"),
        (_FP8 | {"kv_cache_scheme": _SCHEME}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "bf16"),
        (
            {
                "quant_method": "modelopt",
                "quant_algo": "NVFP4",
                "kv_cache_scheme": _SCHEME,
            },
            "fp8",
        ),
        (
            {
                "quant_method": "modelopt",
                "quant_algo": "FP8",
                "kv_cache_quant_algo": "INT8",
            },
            "bf16",
        ),
        (  # as Qwen3-32B-FP8-Static-PerTensor has it
            {
                "producer": {"name": "modelopt", "version": "0.31.0"},
                "quant_algo": "FP8",
                "kv_cache_scheme": "FP8",
            },
            "fp8",
        ),
    ],
)
def test_kv_is_fp8_only_where_the_checkpoints_config_states_it(
    tmp_path, quantization, kv_dtype
):
    found = llm(write(tmp_path, config(quantization_config=quantization)))

    assert found.kv_dtype == kv_dtype


def test_a_kv_scheme_beside_the_config_is_read(tmp_path):
    path = write(tmp_path, config())
    quantized = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    (tmp_path / "hf_quant_config.json").write_text(
        json.dumps({"quantization": quantized})
    )

    assert llm(path).kv_dtype == "fp8"


def test_a_kv_scheme_that_is_not_modelled_is_refused_by_name(tmp_path):
    scheme = _FP8 | {"kv_cache_scheme": _SCHEME | {"num_bits": 4}}
    path = write(tmp_path, config(quantization_config=scheme))

    with pytest.raises(InputError, match="KV in float4 is not known; expected fp8"):
        llm(path)


@pytest.mark.parametrize(
    ("name", "kv_dtype"),
    [
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "bf16"),
        ("Llama-3.3-70B-FP8", "bf16"),
        ("nvidia/Llama-3.3-70B-Instruct-NVFP4", "fp8"),
        ("Llama-3.3-70B-NVFP4", "fp8"),
        ("RedHatAI/Llama-3.3-70B-Instruct-NVFP4", "bf16"),
        ("Qwen/Qwen3-32B-FP8", "bf16"),
        ("NVIDIA-Nemotron-3-Nano-30B-A3B-FP8", "fp8"),
        ("DeepSeek-R1", "bf16"),
    ],
)
def test_kv_of_a_checkpoint_by_name_is_what_its_maker_states(name, kv_dtype):
    assert llm(name).kv_dtype == kv_dtype


def test_the_quantization_that_modelopt_writes_beside_the_config_is_read(tmp_path):
    path = write(tmp_path, config())
    quantized = {"quantization": {"quant_algo": "NVFP4", "group_size": 16}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(quantized))

    assert llm(path).weight_dtype == "nvfp4"


def test_an_unknown_type_is_read_like_llama_and_says_so(tmp_path):
    write(tmp_path, config(model_type="novel"))

    with pytest.warns(CapplanWarning, match="'novel' is not known"):
        assert llm(tmp_path).layers == 2


def test_the_text_part_of_a_model_that_sees_is_read_and_said(tmp_path):
    write(tmp_path, {"model_type": "seeing", "text_config": config()})

    with pytest.warns(CapplanWarning, match="only the text part"):
        assert llm(tmp_path).vocab == 10


@pytest.mark.parametrize("text", ["{", "[]", '"x"', "[" * 100_000, "9" * 5_000])
def test_a_file_that_is_no_config_is_refused(tmp_path, text):
    (tmp_path / "config.json").write_text(text)

    with pytest.raises(InputError, match=r"config\.json"):
        llm(tmp_path)


def test_a_folder_without_a_config_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"no config\.json"):
        llm(tmp_path)


@pytest.mark.parametrize(
    ("name", "window", "layers"),
    [
        ("Mistral-7B-v0.1", 4096, 32),
        ("Gemma-2-9B", 4096, 21),
        ("Gemma-3-1B", 512, 22),
        ("Gemma-3-27B", 1024, 52),
        ("gpt-oss-20b", 128, 12),
        ("Llama-4-Scout", 8192, 36),
        ("Llama-3.1-8B", 0, 0),
    ],
)
def test_sliding_windows_are_noted(name, window, layers):
    found = llm(name)

    assert (found.sliding_window, found.sliding_layers) == (window, layers)


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("Llama-3.1-8B", ("Llama-3-8B",)),
        ("DeepSeek-R1", ("DeepSeek-V3", "DeepSeek-V3.1")),
        ("GLM-4.6", ("GLM-4.5", "GLM-4.7")),
        ("Llama-3.3-70B-FP8", ("Llama-3-70B-FP8", "Llama-3.1-70B-FP8")),
        ("DeepSeek-R1-NVFP4", ("DeepSeek-V3-NVFP4", "DeepSeek-V3.1-NVFP4")),
        ("Qwen3-32B-FP8", ("Qwen3-VL-32B-FP8_BLOCK",)),
        ("Qwen3-8B", ("DeepSeek-R1-0528-Qwen3-8B", "Qwen3-VL-8B")),
        ("Qwen3-14B", ()),
        (
            "Kimi-K2.5",
            (
                "Kimi-K2-INT4_G32",
                "Kimi-K2-0905-INT4_G32",
                "Kimi-K2-Thinking",
                "Kimi-K2.6",
                "Kimi-K2.7-Code",
            ),
        ),
    ],
)
def test_llms_of_the_same_shapes_are_twins(name, others):
    assert twins(llm(name)) == others


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        (
            {"layer_types": ["linear_attention", "full_attention"]},
            "linear_attention layers",
        ),
        ({"full_attention_interval": 4}, "linear attention (full_attention_interval)"),
        ({"linear_num_value_heads": 32}, "linear attention (linear_num_value_heads)"),
        ({"mamba_d_state": 128}, "state-space layers (mamba_d_state)"),
        ({"ssm_state_size": 128}, "state-space layers (ssm_state_size)"),
        ({"hybrid_override_pattern": "M-M*"}, "state-space layers"),
        ({"index_topk": 2048}, "sparse attention with an index (index_topk)"),
        (
            {"sparse_attention_config": {"sparse_index_dim": 128}},
            "sparse attention with an index (sparse_attention_config)",
        ),
        (
            {"model_type": "gemma4_text", "num_kv_shared_layers": 20},
            "layers that share their KV (num_kv_shared_layers)",
        ),
        ({"is_encoder_decoder": True}, "cross-attention"),
        ({"global_head_dim": 512}, "attention of two widths (global_head_dim)"),
        ({"attn_type_list": [1, 0]}, "linear attention (attn_type_list)"),
    ],
)
def test_attention_whose_kv_is_not_modelled_is_refused_by_its_name(
    tmp_path, fields, complaint
):
    path = write(tmp_path, config(**fields))

    with pytest.raises(InputError, match=re.escape(f"json: has {complaint}")):
        llm(path)


def test_layers_that_share_the_choice_of_an_index_have_none_of_their_own(tmp_path):
    shapes = {
        "model_type": "glm_moe_dsa",
        "num_hidden_layers": 6,
        "kv_lora_rank": 4,
        "q_lora_rank": 6,
        "qk_nope_head_dim": 4,
        "qk_rope_head_dim": 2,
        "v_head_dim": 4,
        "index_n_heads": 2,
        "index_head_dim": 128,
        "index_topk": 16,
        "layer_types": ["deepseek_sparse_attention"] * 6,
    }

    every_other = ["full", "shared"] * 3
    told = llm(write(tmp_path, config(**shapes, indexer_types=every_other)))
    all_of_them = llm(write(tmp_path, config(**shapes)))

    assert (told.index.layers, told.index.sparse_layers) == (3, 6)
    assert all_of_them.index.layers == 6
    # 2 heads of 128 from a query of 6, a key from 8; the heads' weights and a norm.
    index = 128 * (2 * 6 + 8) + 2 * 8 + 2 * 128
    assert all_of_them.parameter_count - told.parameter_count == 3 * index
    # In 16 bits a compressed KV of 6; a key of 128 in 8 bits with a scale.
    assert told.kv_bytes_per_token() == 6 * 12 + 3 * 132


def test_layers_of_known_kinds_are_read(tmp_path):
    kinds = ["sliding_attention", "full_attention"] * 2
    path = write(tmp_path, config(layer_types=kinds, sliding_window=128))

    assert llm(path).sliding_layers == 2


def test_layers_by_name_are_read_as_layers_by_letter(tmp_path):
    shapes = {
        "model_type": "nemotron_h",
        "num_key_value_heads": 1,
        "mamba_num_heads": 2,
        "mamba_head_dim": 4,
        "n_groups": 1,
        "ssm_state_size": 8,
        "conv_kernel": 4,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 6,
    }
    letters = config(**shapes, hybrid_override_pattern="M*EE")
    letters["num_hidden_layers"] = 4
    names = config(**shapes, layers_block_type=["mamba", "attention", "moe", "moe"])
    del names["num_hidden_layers"]

    by_letter = llm(write(tmp_path, letters))
    by_name = llm(write(tmp_path, names))
    narrow = llm(write(tmp_path, names | {"moe_latent_size": 3}))

    assert by_name == by_letter
    # Two matrices of 4 experts are 3 wide, not 8; projections of 8 to 3 and back.
    less = 2 * 4 * 2 * 6 * (8 - 3) - 2 * 2 * 8 * 3
    assert by_name.parameter_count - narrow.parameter_count == less


def test_the_wrapper_of_minimax_m3_is_read_by_the_class_of_its_text(tmp_path):
    text = config(
        architectures=["MiniMaxM3SparseForCausalLM"],
        dense_intermediate_size=16,
        moe_intermediate_size=4,
        num_local_experts=4,
        num_experts_per_tok=2,
        n_shared_experts=1,
        moe_layer_freq=[0, 1],
        num_mtp_modules=1,
        sparse_attention_config={
            "sparse_num_index_heads": 1,
            "sparse_index_dim": 8,
            "sparse_topk_blocks": 2,
            "sparse_block_size": 16,
            "sparse_attention_freq": [0, 1],
        },
    )
    del text["model_type"]

    with pytest.warns(CapplanWarning, match="only the text part"):
        found = llm(
            write(tmp_path, {"model_type": "minimax_m3_vl", "text_config": text})
        )

    assert (found.index.layers, found.dense_layers, found.mtp_layers) == (1, 1, 1)


def test_layers_of_llama_nemotron_have_what_their_blocks_say(tmp_path):
    blocks = [
        {"attention": {"n_heads_in_group": 2}, "ffn": {"ffn_mult": 48.0}},
        {"attention": {"no_op": True}, "ffn": {"ffn_mult": 24.0}},
        {"attention": {"n_heads_in_group": 2}, "ffn": {"no_op": True}},
    ]
    shapes = config(
        model_type="nemotron-nas", num_hidden_layers=3, block_configs=blocks
    )
    del shapes["intermediate_size"]

    found = llm(write(tmp_path, shapes))

    # int(2 / 3 · 48 · 8) = 256 and 128, rounded to 256: two feed-forwards, two of
    # attention of one KV head of 4 each.
    assert (found.kv_heads, found.attention_layers, found.dense_ffn) == (1, 2, 256)
    assert found.kv_bytes_per_token() == 2 * 2 * 4 * 2
    attention, norms = 8 * (8 + 2 * 4) + 8 * 8, 3 * 2 * 8
    assert found.parameter_count == 2 * attention + 2 * 3 * 8 * 256 + norms + 168


@pytest.mark.parametrize(
    ("blocks", "complaint"),
    [
        (
            [{"attention": {"replace_with_linear": True}, "ffn": {}}] * 2,
            "none with rep",
        ),
        (
            [
                {"attention": {"n_heads_in_group": n}, "ffn": {"ffn_mult": 1.0}}
                for n in (1, 2)
            ],
            r"KV heads \[1, 2\]; expected 2 of one",
        ),
    ],
)
def test_blocks_of_llama_nemotron_that_are_not_modelled_are_refused(
    tmp_path, blocks, complaint
):
    shapes = config(model_type="nemotron-nas", block_configs=blocks)

    with pytest.raises(InputError, match=complaint):
        llm(write(tmp_path, shapes))


FIELD = Path(__file__).parents[3] / "shared" / "cases" / "field"


@pytest.mark.parametrize(
    "folder", sorted((FIELD / "configs").glob("*")), ids=lambda folder: folder.name
)
def test_every_config_given_is_read_with_the_parameters_of_its_name(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = llm(folder)

    of = llm(folder.name)
    assert found.parameter_count == pytest.approx(of.parameter_count, rel=0.01)
    assert found.weight_bytes() == pytest.approx(of.weight_bytes(), rel=0.01)
    kv_dtype = found.kv_dtype
    assert found.kv_bytes_per_token(kv_dtype) == of.kv_bytes_per_token(kv_dtype)
    # A name does not tell that this one's KV is in FP8.
    assert of.kv_dtype == kv_dtype or folder.name.endswith("FP8-Static-PerTensor")


def test_every_name_given_is_known():
    if not FIELD.is_dir():
        pytest.skip("the cases of the field are not here")
    names = (FIELD / "names.csv").read_text(encoding="utf-8").split()[1:]

    assert all(llm(name).parameter_count for name in names)
