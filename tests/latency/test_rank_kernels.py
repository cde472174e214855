"""Parts of iterations of ranks, with a stand-in for the package of kernel times.

Its kernels take, in ms: attention 1 and the tokens of context over 10^5, router 0.5,
experts 2 and a hundredth of the tokens of all ranks, dispatch 0.1 and combination 0.2
of a rank's tokens.
"""

import json
import logging
import sys
from importlib import metadata
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest

from capplan.errors import InputError
from capplan.latency.aiconfigurator import parse_source
from capplan.latency.rank_fit import fit_ranks
from capplan.latency.rank_kernels import (
    IMBALANCE,
    apart,
    exchange_name,
    imbalance_of,
    rank_engine,
    read_parts,
)
from capplan.latency.rank_tables import RankWork
from capplan.llm.layout import Layout

SOURCE = "h200_sxm/an/experts?dp=4&ep=4"


class Handle:
    """Kernels of a stand-in engine, from its specification."""

    def __init__(self, spec: bytes) -> None:
        self.spec = json.loads(spec)
        self.dp = self.spec["dp"]

    def _ops(self, phase, tokens, attention_ms):
        return [
            (f"{phase}_attention", 1 + attention_ms, 0.0, "silicon"),
            (f"{phase}_router_gemm", 0.5, 0.0, "silicon"),
            (f"{phase}_moe", 2 + self.dp * tokens / 100, 0.0, "silicon"),
            (f"{phase}_moe_dispatch", 0.1 * tokens, 0.0, "silicon"),
            (f"{phase}_moe_combine", 0.2 * tokens, 0.0, "silicon"),
        ]

    def run_static_per_op(self, *, batch_size, isl, osl, mode, prefix=0):
        if mode == "static_gen":
            return [], self._ops("generation", batch_size, batch_size * isl / 1e5)
        new = isl - prefix
        return self._ops("context", new, new * (prefix + new / 2) / 1e7), []

    def mixed_step_breakdown_per_op(self, chunk, batch, isl, osl):
        shared = self._ops("context", chunk + batch, 0.0)
        attention = [("generation_attention", batch * isl / 1e5, 0.0, "silicon")]
        return shared, [], attention


def spec(model, *, model_path, backend_version, nextn, **_):
    return json.dumps(
        {
            "dp": model.config.attention_dp_size,
            "ep": model.config.moe_ep_size,
            "distribution": model.config.workload_distribution,
            "comm": getattr(model.config, "moe_comm_backend", None),
            "nextn": nextn,
            "context_ops": [],
            "generation_ops": [],
        }
    )


def model_of(model, config, backend):
    if config.moe_ep_size > 128:
        raise AssertionError("ep size cannot be\nlarger")
    for name, mode in (
        ("gemm_quant_mode", "bfloat16"),
        ("moe_quant_mode", "w4a16_mxfp4"),
        ("kvcache_quant_mode", "bfloat16"),
    ):
        setattr(config, name, SimpleNamespace(name=mode))
    return SimpleNamespace(config=config)


@pytest.fixture
def package(monkeypatch):
    models = SimpleNamespace(
        get_model=model_of,
        check_is_moe=lambda model: True,
        get_model_family=lambda model: "MOE",
    )
    builders = SimpleNamespace(
        build_model_config=lambda **options: SimpleNamespace(**options),
        apply_nextn=lambda config, nextn: setattr(config, "nextn", nextn),
    )
    engine = SimpleNamespace(
        build_engine_spec_json=spec,
        _literal_backend_version=lambda system, backend, version, *_: version,
        _maybe_load_database=lambda *_: None,
    )
    sdk = SimpleNamespace(
        EngineHandle=Handle,
        models=models,
        engine=engine,
        config_builders=builders,
        config=SimpleNamespace(ModelConfig=SimpleNamespace),
    )
    core = SimpleNamespace(
        sdk=sdk, engine_spec_bincode_from_json=lambda text: text.encode()
    )
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", core)
    monkeypatch.setitem(sys.modules, "aiconfigurator_core.sdk", sdk)
    for name in ("models", "engine", "config_builders", "config"):
        monkeypatch.setitem(
            sys.modules, f"aiconfigurator_core.sdk.{name}", getattr(sdk, name)
        )
    monkeypatch.setattr(metadata, "version", lambda name: "0.12.0")


def test_each_kernel_goes_to_its_part(package):
    parts = read_parts(parse_source(SOURCE), 1)

    decode = parts.alone.of("decode")
    row = (decode.batch == 8) & (decode.context == 1024)
    assert decode.seconds[row][0] == pytest.approx((1.5 + 8 * 1023 / 1e5) / 1e3)
    prefill = parts.alone.of("prefill")
    row = (prefill.new_tokens == 512) & (prefill.context == 0)
    assert prefill.seconds[row][0] == pytest.approx((1.5 + 512**2 / 2e7) / 1e3)
    mixed = parts.alone.of("mixed")
    row = (mixed.batch == 8) & (mixed.new_tokens == 520) & (mixed.context == 512)
    assert mixed.seconds[row][0] == pytest.approx((1.5 + 8 * 511 / 1e5) / 1e3)
    # The experts are asked of 4 ranks' tokens, the all-to-all of one rank's.
    assert parts.experts.tokens.tolist()[:3] == [4, 8, 16]
    assert parts.experts.seconds[:3] == pytest.approx([2.04e-3, 2.08e-3, 2.16e-3])
    assert parts.exchange_prefill.tokens[-1] == 16_384
    assert parts.exchange_prefill.seconds[-1] == pytest.approx(0.3e-3 * 16_384)


def test_the_profile_predicts_what_the_parts_sum_to(package):
    source = parse_source(SOURCE)

    profile = fit_ranks(read_parts(source, 1), source, 1, "H200-SXM", "m").profile

    assert profile.layout == Layout(1, 4, 4)
    assert (profile.all_to_all, profile.imbalance) == ("allgather_reducescatter", 1.08)
    assert profile.quantization == "mxfp4"
    found_s = profile.rank_tables(64, 64).iteration_time_s(
        [RankWork(24, 24 * 2048)] * 4
    )
    attention_ms = 1.5 + 24 * 2047 / 1e5
    expected_ms = attention_ms + 1.08 * (2 + 96 / 100) + 0.3 * 24
    assert found_s == pytest.approx(expected_ms / 1e3, rel=0.01)
    # All parts are lines here, so nothing is off between the knots.
    for part in ("experts", "exchange"):
        assert profile.errors_of(part).held_out_max_abs == pytest.approx(0, abs=1e-9)


def test_with_eplb_the_experts_are_evenly_loaded(package):
    source = parse_source(SOURCE)
    parts = read_parts(source, 1)

    levelled = fit_ranks(parts, source, 1, "H200-SXM", "m", is_balanced=True).profile

    assert (levelled.imbalance, levelled.imbalance_source) == (1.0, "")


def test_iterations_beyond_a_ranks_kv_are_left_out(package):
    parts = read_parts(parse_source(SOURCE), 1, kv_tokens=10_000)

    assert parts.alone.kv_tokens.max() <= 10_000
    assert parts.exchange.tokens[-1] == 512


def test_drafts_are_among_the_tokens(package):
    source = parse_source(SOURCE + "&nextn=3")

    parts = read_parts(source, 1)

    assert parts.experts.tokens.tolist()[:3] == [16, 32, 64]
    assert parts.exchange.tokens.tolist()[:3] == [4, 8, 16]
    assert parts.exchange_prefill.tokens[0] == 1
    assert rank_engine(source, 1).spec["nextn"] == 3


def test_the_package_is_asked_for_an_even_load_and_the_all_to_all_by_name(package):
    plain = rank_engine(parse_source(SOURCE), 1).spec
    named = rank_engine(parse_source(SOURCE + "&a2a=deepep"), 1).spec

    assert plain["distribution"] == named["distribution"] == "balanced"
    assert (plain["dp"], plain["ep"], plain["comm"]) == (4, 4, None)
    assert named["comm"] == {"context": "deepep_ht", "generation": "deepep_ll"}
    assert exchange_name(parse_source(SOURCE + "&a2a=deepep")) == "deepep"
    assert exchange_name(parse_source("s/m?ep=8")) == "all-reduce"
    with pytest.raises(InputError, match="a2a is 'mori'; expected deepep, trtllm_de"):
        rank_engine(parse_source(SOURCE + "&a2a=mori"), 1)


def test_what_the_package_cannot_build_is_one_line(package):
    with pytest.raises(
        InputError, match="an/experts at TP 1: ep size cannot be larger"
    ):
        rank_engine(parse_source("h200_sxm/an/experts?dp=256&ep=256"), 1)


def test_experts_beside_shared_ones_stand_apart():
    gemm, moe, shared = ({"Gemm": {"name": name}} for name in ("a", "b_moe", "c"))
    overlap = {"name": "generation_moe_overlap", "group_a": [moe], "group_b": [shared]}
    other = {"name": "generation_rope_overlap", "group_a": [gemm], "group_b": []}
    text = json.dumps(
        {
            "context_ops": [gemm],
            "generation_ops": [gemm, {"Overlap": overlap}, {"Overlap": other}],
        }
    )

    content = json.loads(apart(text))

    assert content["context_ops"] == [gemm]
    assert content["generation_ops"] == [gemm, moe, {"Overlap": other}]


def test_the_imbalance_grows_with_the_gpus_and_is_that_measured():
    found = [imbalance_of(ep) for ep in IMBALANCE]

    assert found == list(IMBALANCE.values())
    assert np.all(np.diff(found) > 0)
    assert IMBALANCE[8] < imbalance_of(12) < IMBALANCE[16]


@pytest.mark.skipif(
    find_spec("aiconfigurator_core") is None, reason="aiconfigurator-core is absent"
)
def test_the_parts_sum_to_what_the_package_predicts():
    logging.getLogger("aiconfigurator_core").setLevel(logging.ERROR)
    source = parse_source("h200_sxm/openai/gpt-oss-120b@0.24.0?dp=8&ep=8")
    engine = rank_engine(source, 1)
    parts = read_parts(source, 1)

    decode = parts.alone.of("decode")
    row = (decode.batch == 64) & (decode.context == 4096)
    at = list(parts.exchange.tokens).index(64)
    sum_s = decode.seconds[row][0] + parts.experts.seconds[at]
    sum_s += parts.exchange.seconds[at]

    whole_ms = engine.predict_decode_latency(64, 4095, 2)
    assert sum_s == pytest.approx(whole_ms / 1e3, rel=1e-6)


def test_times_that_fall_with_the_tokens_are_taken_as_their_mean(package, monkeypatch):
    def lumpy(self, phase, tokens, attention_ms):
        experts_ms = {8: 3.0, 16: 2.0}.get(tokens, 1.0 if tokens < 8 else 4.0)
        return [(f"{phase}_moe", experts_ms, 0, ""), (f"{phase}_attention", 1, 0, "")]

    monkeypatch.setattr(Handle, "_ops", lumpy)
    source = parse_source(SOURCE)

    profile = fit_ranks(read_parts(source, 1), source, 1, "H200-SXM", "m").profile

    at = dict(zip(profile.experts.tokens, profile.experts.tokens_s, strict=True))
    # 3 and 2 ms of 8 and 16 tokens a rank, weighted by 1/9 and 1/4: relative errors.
    mean_ms = (3 / 9 + 2 / 4) / (1 / 9 + 1 / 4)
    assert at[32] == at[64] == pytest.approx(mean_ms / 1e3)
    assert np.all(np.diff(profile.experts.tokens_s) >= 0)
    assert profile.errors_of("experts").max_abs == pytest.approx(1 - mean_ms / 3)
    assert profile.errors_of("exchange").mean_abs == 0
