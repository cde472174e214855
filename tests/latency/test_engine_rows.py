"""The row of engine times that a profile takes, by LLM, GPU, engine and version."""

import re

import pytest

from capplan.engines.catalog import EngineName, parse_engine
from capplan.errors import CapplanWarning, InputError, ProfileError
from capplan.latency.catalog import find_profile
from capplan.latency.engine_rows import (
    NEWER_CARRIES,
    SHIPPED,
    engine_time,
)
from capplan.latency.engine_rows import _read as read_rows
from capplan.latency.with_engine import with_engine_time
from capplan.shipped import shipped

HEAD = "schema: capplan-engine-times/1\ntimes:\n"
ROW = "- {of: kernel-sum, iteration_s: 0.001, per_request_s: 4.0e-5, source: mine}\n"

VERSIONS = HEAD + "".join(
    f"- {{of: kernel-sum, gpus: [H100], engine: {engine}, engine_version: {version}, "
    f"source: {source}, served: {{sweeps: 4, tpot: [0.9, 1, 1.1], capacity: [0.8, 1, "
    "1.2]}}\n"
    for engine, version, source in (
        ("vllm", "0.10.2", "old"),
        ("vllm", "0.18.0–0.22.0", "new"),
        ("vllm", "0.11.2–0.13.0", "middle"),
        ("sglang", "0.5.6", "other"),
    )
)


def row(gpu, experts, path=None, *, of="kernel-sum", llm="", wanted=None):
    return engine_time(of, gpu, llm, experts, wanted=wanted, path=path)


@pytest.fixture
def versions(tmp_path):
    path = tmp_path / "times.yaml"
    path.write_text(VERSIONS, encoding="utf-8")
    return path


def test_the_nearest_row_is_taken(tmp_path):
    path = tmp_path / "times.yaml"
    path.write_text(
        HEAD
        + "- {of: roofline, iteration_s: 0.003, source: a}\n"
        + "- {of: kernel-sum, gpus: [B200], iteration_s: 0.002, source: b}\n"
        + "- {of: kernel-sum, experts: true, iteration_s: 0.004, source: c}\n"
        + ROW
    )

    assert row("B200-SXM", False, path).source == "b"
    assert row("H100-SXM", True, path).source == "c"
    assert row("H100-SXM", False, path).source == "mine"
    assert row("H100-SXM", False, path, of="roofline").iteration_s == 0.003
    assert row("H100-SXM", False, path, of="other-tp") is None


@pytest.mark.parametrize("of", ["kernel-sum", "other-tp", "other-gpu", "roofline"])
@pytest.mark.parametrize("experts", [False, True])
@pytest.mark.parametrize("gpu", ["H100-SXM", "B200-SXM", "MI300X", "L40S", "V100"])
def test_a_time_with_its_error_is_shipped_for_every_kind(of, experts, gpu):
    time = row(gpu, experts, of=of)

    assert time is not None
    assert time.served is not None
    assert time.served.sweeps >= 3
    assert time.request_s > 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("times: []\n", "schema is None; expected 'capplan-engine-times/1'"),
        (HEAD.replace("times:\n", "times: []\n"), "times"),
        (HEAD + ROW.replace("0.001", "-0.001"), "iteration_s is -0.001; expected >= 0"),
        (HEAD + ROW.replace("source", "by"), "unknown key|source is missing"),
        (HEAD + ROW.replace("kernel-sum", "kernels"), "times.0.of is 'kernels'"),
        (
            HEAD + ROW[:-2] + ", served: {sweeps: 1, tpot: [2, 1, 1], capacity: "
            "[1, 1, 1]}}\n",
            "expected the quantiles 10, 50 and 90 %, ascending",
        ),
        ("- 1\n", "is a list; expected the keys of a file of engine times"),
    ],
)
def test_wrong_files_are_refused_in_one_line(text, message, tmp_path):
    path = tmp_path / "times.yaml"
    path.write_text(text)

    with pytest.raises(ProfileError, match=message) as error:
        row("H100-SXM", False, path)

    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("asked", "source"),
    [
        (None, "new"),
        ("vllm", "new"),
        ("vllm@0.9", "old"),
        ("vllm@0.10", "old"),
        ("vllm@0.10.2", "old"),
        ("vllm@0.11", "middle"),
        ("vllm@v0.13.0", "middle"),
        ("vllm@0.16", "middle"),
        ("vllm@0.18", "new"),
        ("vllm@0.40", "new"),
        ("sglang", "other"),
        ("sglang@0.5.9", "other"),
    ],
)
def test_a_version_takes_its_row_else_the_last_before_it(asked, source, versions):
    wanted = None if asked is None else parse_engine(asked)

    assert row("H100-SXM", False, versions, wanted=wanted).source == source


def test_a_row_that_names_the_llm_is_before_newer_ones_of_its_kind(tmp_path):
    path = tmp_path / "times.yaml"
    path.write_text(
        HEAD
        + "- {of: kernel-sum, gpus: [H100], engine_version: 0.13.0, source: kind}\n"
        + "- {of: kernel-sum, llms: [mine], engine_version: 0.10.2, source: own}\n"
    )

    assert row("H100-SXM", False, path, llm="mine").source == "own"
    assert row("H100-SXM", False, path, llm="another").source == "kind"


def test_a_power_of_the_tp_degree_is_in_both_factors(tmp_path):
    path = tmp_path / "times.yaml"
    path.write_text(
        HEAD
        + "- {of: kernel-sum, decode_factor: 1.2, prefill_factor: 0.8, tp_power: -0.5, "
        + "iteration_s: 0.001, source: mine}\n"
    )
    profile = find_profile("Llama-3.1-8B", "B200-SXM", 4)

    time = with_engine_time(profile, False, str(path)).engine_time

    assert (time.decode_factor, time.prefill_factor) == (0.6, 0.4)
    assert time.iteration_s == 0.001


def test_by_default_vllm_is_planned_unless_another_alone_ran_the_llm(tmp_path):
    path = tmp_path / "times.yaml"
    wide = (
        "served: {sweeps: 9, left_out: family, tpot: [1, 1, 1], capacity: [0.3, 1, 3]}"
    )
    path.write_text(
        HEAD
        + f"- {{of: kernel-sum, source: kind, {wide}}}\n"
        + f"- {{of: kernel-sum, gpus: [H100], engine: sglang, source: near, {wide}}}\n"
        + "- {of: kernel-sum, llms: [mine], engine: sglang, source: own}\n"
    )

    assert row("H100-SXM", False, path, llm="another").source == "kind"
    assert row("H100-SXM", False, path, llm="mine").source == "own"
    sglang = EngineName("sglang")
    assert row("H100-SXM", False, path, llm="another", wanted=sglang).source == "near"


def test_a_row_of_another_weight_dtype_is_before_those_of_the_kind(tmp_path):
    path = tmp_path / "times.yaml"
    path.write_text(
        HEAD
        + "- {of: kernel-sum, gpus: [H100], source: kind}\n"
        + "- {of: kernel-sum, llms: [Llama-3.3-70B-FP8], source: own}\n"
    )

    of = {
        llm: row("H100-SXM", False, path, llm=llm).source
        for llm in ("Llama-3.1-70B-FP8", "Llama-3.1-70B", "Qwen3-32B")
    }

    assert list(of.values()) == ["own", "own", "kind"]


def test_an_older_version_than_its_own_rows_takes_the_row_of_its_kind(tmp_path):
    path = tmp_path / "times.yaml"
    path.write_text(
        HEAD
        + "- {of: kernel-sum, engine_version: 0.10.2, source: kind}\n"
        + "- {of: kernel-sum, llms: [mine], engine_version: 0.26.0, source: own}\n"
        + "- {of: kernel-sum, llms: [other], engine_version: of 2026-07, source: new}\n"
    )
    old, new = EngineName("vllm", "0.11"), EngineName("vllm", "0.26")

    assert row("H100-SXM", False, path, llm="mine", wanted=old).source == "kind"
    assert row("H100-SXM", False, path, llm="mine", wanted=new).source == "own"
    # Of no version that is told, it is of all.
    assert row("H100-SXM", False, path, llm="other", wanted=old).source == "new"


def test_a_row_that_rests_on_one_llm_serves_it_alone():
    """A row of a kind rests on three LLMs of two families, as its source says."""
    for shipped_row in read_rows(shipped("profiles") / SHIPPED).times:
        swept = set(re.findall(r"(\S+-\S+) on [A-Z]", shipped_row.source))
        families = {re.split("[^A-Za-z]", name)[0] for name in swept}
        if shipped_row.llms:
            assert len(shipped_row.llms) == 1
            assert set(shipped_row.llms) <= swept
            assert shipped_row.served is None or shipped_row.served.left_out == "group"
        else:
            assert len(swept) >= 3, shipped_row.source
            assert len(families) >= 2, shipped_row.source
            assert shipped_row.served.left_out == "family"


def test_an_engine_newer_than_all_measured_takes_the_newest_and_may_carry_more():
    profile = find_profile("gpt-oss-120b", "H100-SXM", 2)
    newest = with_engine_time(profile, True).engine_time

    with pytest.warns(
        CapplanWarning, match="no engine newer than vLLM .* was measured"
    ):
        time = with_engine_time(
            profile, True, wanted=EngineName("vllm", "0.99")
        ).engine_time

    assert time.iteration_s == newest.iteration_s
    assert time.served.capacity[0] == newest.served.capacity[0]
    assert time.served.capacity[2] == newest.served.capacity[2] * NEWER_CARRIES


def test_an_engine_that_nobody_measured_there_is_named_and_has_the_kinds_error():
    profile = find_profile("Llama-3.1-8B", "L40S", 1)

    with pytest.warns(CapplanWarning, match="no SGLang was measured on GPUs of this"):
        time = with_engine_time(profile, False, wanted=EngineName("sglang")).engine_time

    assert time.served.left_out == "family"
    assert time.served.is_wide


@pytest.mark.parametrize("text", ["", "vllm@", "vllm@new", "llama.cpp", "@0.13"])
def test_a_name_that_is_no_engine_is_refused(text):
    with pytest.raises(InputError, match="expected vllm, sglang, trtllm"):
        parse_engine(text)


@pytest.mark.parametrize(
    ("llm", "gpu", "first", "since"),
    [
        ("DeepSeek-R1", "MI300X", "0.5.5–0.5.9", "0.5.12"),
        ("DeepSeek-R1-MXFP4", "MI355X", "0.5.6–0.5.9", "0.5.12"),
    ],
)
def test_amd_is_calibrated_by_version_of_sglang(llm, gpu, first, since):
    newest = row(gpu, True, of="roofline", llm=llm)
    asked = {
        version: row(
            gpu, True, of="roofline", llm=llm, wanted=EngineName("sglang", version)
        )
        for version in ("0.5.7", "0.5.12", "0.6")
    }
    profile = find_profile(llm, gpu, 8)

    assert (newest.llms, newest.engine_version) == ([llm], since)
    assert asked["0.5.7"].engine_version == first
    assert asked["0.5.12"] == asked["0.6"] == newest
    # SGLang 0.5.12 decodes faster on the same GPU than releases before it.
    old_s, new_s = (
        found.time.applied(
            profile.model_copy(update={"engine_time": None}).tables(64, 64)
        ).decode_s[16]
        for found in (asked["0.5.7"], newest)
    )
    assert new_s < old_s


def test_bursts_tell_the_prefill_factor_alone_beside_the_times_of_the_kind(tmp_path):
    path = tmp_path / "times.yaml"
    path.write_text(
        HEAD
        + "- {of: kernel-sum, iteration_s: 0.002, source: kind}\n"
        + "- {of: kernel-sum, iteration_s: 0.009, engine: sglang, source: other}\n"
        + "- {of: kernel-sum, gpus: [A100], llms: [mine], prefill_factor: 1.7, "
        + "prompts_only: true, source: bursts}\n"
    )

    mine = row("A100-80GB-SXM", False, path, llm="mine")

    assert (mine.prefill_factor, mine.decode_factor) == (1.7, 1.0)
    assert (mine.iteration_s, mine.source, mine.llms) == (0.002, "kind", [])
    for other in (
        row("A100-80GB-SXM", False, path, llm="another"),
        row("H100-SXM", False, path, llm="mine"),
        row("A100", False, path, llm="mine", wanted=parse_engine("sglang")),
    ):
        assert other.prefill_factor == 1.0


def test_a_row_of_the_llm_on_the_gpu_is_before_what_bursts_tell(tmp_path):
    path = tmp_path / "times.yaml"
    path.write_text(
        HEAD
        + "- {of: kernel-sum, gpus: [A100], llms: [mine], prefill_factor: 1.2, "
        + "source: own}\n"
        + "- {of: kernel-sum, gpus: [A100], llms: [mine], prefill_factor: 1.7, "
        + "prompts_only: true, source: bursts}\n"
    )

    assert row("A100-80GB-SXM", False, path, llm="mine").prefill_factor == 1.2


def test_no_shipped_factor_stands_at_a_bound_of_its_search():
    rows = read_rows(shipped("profiles") / SHIPPED).times

    for each in rows:
        for factor in (each.decode_factor, each.prefill_factor):
            assert 0.4 * 1.01 < factor < 4.0 / 1.01, each.source


def test_bursts_alone_tell_of_gpt_oss_on_a100():
    rows = read_rows(shipped("profiles") / SHIPPED).times
    [bursts] = [r for r in rows if r.prompts_only and r.llms == ["gpt-oss-120b"]]

    mine = row("A100-80GB-SXM", True, of="other-gpu", llm="gpt-oss-120b")
    kind = row("A100-80GB-SXM", True, of="other-gpu", llm="unknown")

    assert mine.prefill_factor == bursts.prefill_factor > kind.prefill_factor
    assert mine.served == kind.served
    assert mine.served.is_wide
