"""The optional source of kernel sums, with a stand-in for its package."""

import sys
from importlib import metadata
from types import SimpleNamespace
from typing import ClassVar

import pytest

from capplan.errors import InputError
from capplan.latency.aiconfigurator import Source, parse_source, read_kernels


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


@pytest.fixture
def package(monkeypatch):
    sdk = SimpleNamespace(EngineHandle=Handle)
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", SimpleNamespace(sdk=sdk))
    monkeypatch.setitem(sys.modules, "aiconfigurator_core.sdk", sdk)
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


def test_block_fp8_is_refused(package, tmp_path):
    (tmp_path / "config.json").write_text(
        '{"quantization_config": {"weight_block_size": [128, 128]}}'
    )

    for model in ("Qwen/Qwen3-32B-FP8", str(tmp_path)):
        with pytest.raises(InputError, match="block-FP8"):
            read_kernels(Source("h100_sxm", model, None), 1)


def test_what_the_package_does_not_know_is_one_line(package):
    with pytest.raises(InputError, match="vLLM kernels of unknown on l4: no such m"):
        read_kernels(Source("l4", "unknown", None), 1)


def test_another_version_is_refused(package, monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: "0.13.1")

    with pytest.raises(InputError, match=r"is 0\.13\.1; expected 0\.12"):
        read_kernels(Source("h100_sxm", "some/model", None), 1)


def test_without_the_package_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", None)

    with pytest.raises(InputError, match="pip install"):
        read_kernels(Source("h100_sxm", "some/model", None), 1)


def test_the_source_is_named_by_system_and_model():
    assert parse_source("aiconfigurator:h100_sxm/org/m@0.24.0") == Source(
        "h100_sxm", "org/m", "0.24.0"
    )
    with pytest.raises(InputError, match="SYSTEM/MODEL"):
        parse_source("aiconfigurator:h100_sxm")
