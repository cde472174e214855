"""The optional source of kernel sums, with a stand-in for its package."""

import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from capplan.errors import InputError
from capplan.latency.aiconfigurator import (
    Source,
    kernel_dtypes,
    kernel_identity,
    parse_source,
    read_kernels,
)

STUDIES = Path(__file__).parents[2] / "examples" / "studies"


class Handle:
    """Kernels of 1 ms for matrices, 2 for a chunk's attention, batch for decode's."""

    compiled: ClassVar[dict] = {}

    @classmethod
    def compile(cls, model, system, backend, **options):
        cls.compiled = {"model": model, "system": system, "backend": backend, **options}
        if model == "unknown":
            raise RuntimeError("no such\nmodel")
        return cls()

    def predict_prefill_latency(self, batch, length, prefix):
        return (length - prefix) / 100

    def predict_decode_latency(self, batch, context, output):
        return 5 + context * batch / 1e5

    def mixed_step_breakdown(self, chunk, batch, length, output):
        return 0.0, 1.0, 2.0, batch * length / 1e4


DTYPES = {
    "some/model": ("bfloat16", "bfloat16", "bfloat16"),
    "a/model-FP8": ("fp8_block", "fp8_block", "fp8"),
    "nvidia/model-FP8": ("fp8_static", "fp8", "fp8"),
    "openai/experts": ("bfloat16", "w4a16_mxfp4", "bfloat16"),
    "an/experts-FP8": ("fp8_block", "fp8_block", "fp8"),
    "a/DeepSeek": ("nvfp4", "nvfp4", "fp8"),
    "unknown": ("bfloat16", "bfloat16", "bfloat16"),
}
"""Types of matrices, experts and KV that the package takes a model to have."""


def get_model(model, config, backend):
    if config.tp_size == 16:
        raise ValueError("cannot be split")
    names = ("gemm_quant_mode", "moe_quant_mode", "kvcache_quant_mode")
    values = [SimpleNamespace(name=name) for name in DTYPES[model]]
    return SimpleNamespace(
        config=SimpleNamespace(**dict(zip(names, values, strict=True)))
    )


def estimate_kv_cache(model, system, backend, version, **options):
    if options["tp_size"] == 1:
        raise ValueError("no KV budget")
    return {"total_kv_size_tokens": 1000 * options["tp_size"]}


@pytest.fixture
def package(monkeypatch):
    models = SimpleNamespace(
        get_model=get_model,
        check_is_moe=lambda model: "experts" in model or "DeepSeek" in model,
        get_model_family=lambda model: "DEEPSEEK" if "DeepSeek" in model else "MOE",
    )
    config = SimpleNamespace(ModelConfig=SimpleNamespace)
    sdk = SimpleNamespace(
        EngineHandle=Handle,
        estimate_kv_cache=estimate_kv_cache,
        models=models,
        config=config,
    )
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", SimpleNamespace(sdk=sdk))
    monkeypatch.setitem(sys.modules, "aiconfigurator_core.sdk", sdk)
    monkeypatch.setitem(sys.modules, "aiconfigurator_core.sdk.models", models)
    monkeypatch.setitem(sys.modules, "aiconfigurator_core.sdk.config", config)
    monkeypatch.setattr(metadata, "version", lambda name: "0.12.0")


def test_points_are_asked_for_as_the_package_counts(package):
    points = read_kernels(Source("h100_sxm", "some/model", None), 2)

    assert Handle.compiled["backend"] == "vllm"
    assert Handle.compiled["tp_size"] == 2
    decode = points.of("decode")
    row = (decode.batch == 8) & (decode.context == 1024)
    assert decode.seconds[row][0] == pytest.approx((5 + 1023 * 8 / 1e5) / 1e3)
    prefill = points.of("prefill")
    row = (prefill.new_tokens == 512) & (prefill.context == 2048)
    assert prefill.seconds[row][0] == pytest.approx(5.12e-3)
    mixed = points.of("mixed")
    row = (mixed.batch == 8) & (mixed.new_tokens == 520) & (mixed.context == 512)
    assert mixed.seconds[row][0] == pytest.approx((1 + 2 + 8 * 511 / 1e4) / 1e3)


def test_iterations_that_do_not_fit_are_left_out(package):
    points = read_kernels(Source("h100_sxm", "some/model", None), 1, kv_tokens=10_000)

    assert points.kv_tokens.max() <= 10_000


def test_block_fp8_takes_the_kernels_of_sglang_since_vllms_hold_the_hosts_time(package):
    for model in ("a/model-FP8", "an/experts-FP8"):
        with pytest.raises(InputError, match=r"block FP8.*add \?engine=sglang"):
            read_kernels(Source("h100_sxm", model, None), 1)
        source = parse_source(f"h100_sxm/{model}?engine=sglang")

        read_kernels(source, 1)
        identity = kernel_identity(source, 1, "H100-SXM", "m")

        assert Handle.compiled["backend"] == "sglang"
        assert "gemm_quant_mode" not in Handle.compiled
        assert Handle.compiled["kvcache_quant_mode"] == "bfloat16"
        assert (identity.quantization, identity.kv_dtype) == ("fp8_block", "bfloat16")
        assert identity.engine == "sglang"
        assert "kernels of SGLang" in identity.source

    assert len(read_kernels(Source("h100_sxm", "nvidia/model-FP8", None), 1).seconds)


def test_weights_of_another_type_are_read_with_the_kv_of_its_checkpoints(package):
    source = parse_source("b200_sxm/some/model?weights=nvfp4")

    read_kernels(source, 2)
    identity = kernel_identity(source, 2, "B200-SXM", "some-NVFP4")

    assert Handle.compiled["gemm_quant_mode"] == "nvfp4"
    assert Handle.compiled["kvcache_quant_mode"] == "fp8"
    assert "moe_quant_mode" not in Handle.compiled
    assert (identity.quantization, identity.kv_dtype) == ("nvfp4", "fp8")
    read_kernels(parse_source("b200_sxm/openai/experts?weights=nvfp4"), 2)
    assert Handle.compiled["moe_quant_mode"] == "nvfp4"


def test_types_of_weights_and_kv_are_those_the_package_takes(package):
    def types(model):
        found = kernel_identity(Source("h100_sxm", model, "0.24.0"), 1, "H100", "m")
        return found.quantization, found.kv_dtype

    assert types("some/model") == ("none", "bfloat16")
    assert types("nvidia/model-FP8") == ("fp8", "fp8")
    assert types("openai/experts") == ("mxfp4", "bfloat16")


def test_deepseek_is_read_with_its_attention_measured_whole(package):
    source = Source("b200_sxm", "a/DeepSeek", None)

    read_kernels(source, 1)
    identity = kernel_identity(source, 1, "B200-SXM", "DeepSeek-R1-NVFP4")

    assert Handle.compiled["gemm_quant_mode"] == "bfloat16"
    assert (identity.quantization, identity.kv_dtype) == ("nvfp4", "fp8")
    assert "outside the experts as bf16" in identity.source


def test_decode_attention_that_is_not_apart_is_what_the_context_adds(
    package, monkeypatch
):
    def whole(self, chunk, batch, length, output):
        return 0.0, 3.0, 0.0, 0.0

    monkeypatch.setattr(Handle, "mixed_step_breakdown", whole)

    mixed = read_kernels(Source("h100_sxm", "some/model", None), 1).of("mixed")

    row = (mixed.batch == 8) & (mixed.new_tokens == 520) & (mixed.context == 512)
    assert mixed.seconds[row][0] == pytest.approx((3 + 510 * 8 / 1e5) / 1e3)


def test_kv_tokens_are_0_where_the_weights_do_not_fit(package, monkeypatch):
    monkeypatch.syspath_prepend(str(STUDIES))
    from kernel_profiles import kernel_kv_tokens

    source = Source("h100_sxm", "some/model", None)

    assert kernel_kv_tokens(source, 1) == 0
    assert kernel_kv_tokens(source, 4) == 4000


def test_a_degree_that_does_not_split_the_model_is_refused(package):
    source = Source("h100_sxm", "some/model", None)

    with pytest.raises(InputError, match="some/model at TP 16: cannot be split"):
        kernel_dtypes(source, 16)


def test_a_point_that_a_larger_iteration_undercuts_by_a_fifth_is_left_out(
    package, monkeypatch
):
    def cold_at_one(self, batch, context, output):
        return 9.0 if batch == 1 else 6.0 if batch == 2 else 5.0

    monkeypatch.setattr(Handle, "predict_decode_latency", cold_at_one)

    decode = read_kernels(Source("h100_sxm", "some/model", None), 1).of("decode")

    assert decode.batch.min() == 2


def test_what_the_package_does_not_know_is_one_line(package):
    with pytest.raises(InputError, match="vLLM kernels of unknown on l4: no such m"):
        read_kernels(Source("l4", "unknown", None), 1)


def test_another_version_is_refused(package, monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: "0.13.1")

    with pytest.raises(InputError, match=r"is 0\.13\.1; expected 0\.12"):
        read_kernels(Source("h100_sxm", "some/model", None), 1)


def test_without_the_package_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", None)
    monkeypatch.setitem(sys.modules, "aiconfigurator_core.sdk", None)

    with pytest.raises(InputError, match="pip install"):
        read_kernels(Source("h100_sxm", "some/model", None), 1)


def test_the_source_is_named_by_system_and_model():
    assert parse_source("aiconfigurator:h100_sxm/org/m@0.24.0") == Source(
        "h100_sxm", "org/m", "0.24.0"
    )
    assert parse_source("l4/org/m@1?engine=sglang&weights=nvfp4") == Source(
        "l4", "org/m", "1", "sglang", "nvfp4"
    )
    for wrong in ("aiconfigurator:h100_sxm", "h100_sxm/m?dtype=fp8"):
        with pytest.raises(InputError, match="SYSTEM/MODEL"):
            parse_source(wrong)
    with pytest.raises(InputError, match="engine is 'tgi'; expected vllm or sglang"):
        parse_source("h100_sxm/m?engine=tgi")


def test_a_source_names_its_ranks_experts_all_to_all_and_drafts():
    source = parse_source("b200_sxm/org/m?engine=trtllm&dp=8&ep=4&a2a=deepep&nextn=1")

    assert source == Source("b200_sxm", "org/m", None, "trtllm", "", 8, 4, "deepep", 1)
    assert source.has_parts
    assert not parse_source("b200_sxm/org/m?engine=trtllm&dp=1&ep=1").has_parts
    for wrong in ("-1", "two", "", "1.5"):
        with pytest.raises(InputError, match=f"dp is '{wrong}'; expected a whole"):
            parse_source(f"b200_sxm/org/m?dp={wrong}")


def test_kernels_of_ranks_are_not_summed_as_those_of_tp_alone(package):
    source = parse_source("h100_sxm/an/experts?ep=8")

    with pytest.raises(InputError, match="measured in parts; expected TP alone"):
        read_kernels(source, 8)
