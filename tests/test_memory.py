"""Memory of a GPU against engines that started."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.deployment.engine import EngineSettings
from capplan.deployment.memory import MemoryShare, memory_budget
from capplan.engines.catalog import ENGINES
from capplan.fleet.catalog import gpu
from capplan.llm.catalog import llm
from capplan.llm.layout import Layout

GIB = 2**30
ACCURACY = Path(__file__).parents[1] / "docs/internals/accuracy.md"
ROW = re.compile(
    r"^\| (\S+) \| (\S+) \| ([^|]+) \| (\S+) \| (\S+) \| (\S+) %( \*)? \|$"
)
TITLED = {row.title: row for row in ENGINES.values()}
H100 = replace(gpu("H100"), memory_bytes=80 * GIB)


def rows():
    text = ACCURACY.read_text(encoding="utf-8")
    table = text.partition("<!-- KV of engines that started -->")[2]
    return [ROW.match(line).groups() for line in table.splitlines() if ROW.match(line)]


def computed_gib(name, gpu_name, how):
    """Return the KV of ``vLLM 0.19, TP 2, 0.95, 8192, 1024``."""
    engine, tp, share, tokens, seqs = how.split(", ")
    named, _, version = engine.partition(" ")
    is_older = (named, version) == ("vLLM", "0.19")
    budget = memory_budget(
        llm(name),
        gpu(gpu_name),
        Layout(int(tp.removeprefix("TP "))),
        EngineSettings(int(tokens.replace(" ", "")), int(seqs)),
        MemoryShare(float(share), TITLED[named], has_graphs=not is_older),
    )
    return budget.kv_bytes / GIB


def test_the_table_has_engines_of_each_kind():
    names = {row[0] for row in rows()}

    assert len(rows()) >= 28
    assert {"Qwen2.5-72B", "Llama-4-Scout", "gpt-oss-20b", "Qwen3-30B-A3B"} <= names
    assert any("SGLang" in row[2] for row in rows())


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row[0]}-{row[1]}-{row[2]}")
def test_kv_is_within_4_percent_of_what_the_engine_found_or_named(row):
    name, gpu_name, how, measured, ours, percent, star = row

    found = computed_gib(name, gpu_name, how)

    assert ours == f"{found:.2f}"
    off = found / float(measured) - 1
    assert percent == f"{100 * off:+.1f}"
    assert (abs(off) <= 0.04) == (star is None)


@pytest.mark.parametrize(("loaded_gib", "tp"), [(13.64, 1), (7.01, 2)])
def test_experts_in_mxfp4_are_loaded_as_wide_as_their_kernels_are(loaded_gib, tp):
    # gpt-oss-20b on H100, vLLM 0.19: "Model loading took … GiB"
    budget = memory_budget(llm("gpt-oss-20b"), H100, Layout(tp), EngineSettings())

    assert budget.weight_bytes / GIB == pytest.approx(loaded_gib, rel=0.015)


def test_gpt_oss_120b_loads_what_vllm_logs_on_hopper():
    budget = memory_budget(llm("gpt-oss-120b"), H100, Layout(), EngineSettings())

    assert 64.3 < budget.weight_bytes / GIB < 66.0


def test_a_table_of_ten_million_positions_is_counted():
    scout = llm("Llama-4-Scout")

    budget = memory_budget(scout, H100, Layout(4), EngineSettings())

    table_bytes = budget.weight_bytes - scout.weight_bytes_per_gpu(4)
    assert table_bytes == 2 * 10_485_760 * 128


@given(
    st.sampled_from(["Llama-3.1-8B", "Qwen3-30B-A3B", "DeepSeek-R1", "gpt-oss-120b"]),
    st.sampled_from([1, 2, 4, 8]),
    st.lists(st.integers(1, 20_000), min_size=2, max_size=2).map(sorted),
    st.lists(st.integers(1, 4096), min_size=2, max_size=2).map(sorted),
    st.booleans(),
    st.sampled_from(list(ENGINES.values())),
)
def test_more_tokens_and_requests_never_leave_more_kv(
    name, tp, tokens, seqs, graphs, engine
):
    less, more = (
        memory_budget(
            llm(name),
            H100,
            Layout(tp),
            EngineSettings(most, at_once),
            MemoryShare(engine=engine, has_graphs=graphs),
        )
        for most, at_once in zip(tokens, seqs, strict=True)
    )

    assert more.kv_bytes <= less.kv_bytes
    assert more.weight_bytes == less.weight_bytes
    parts = more.weight_bytes + more.activation_bytes + more.runtime_bytes
    assert more.kv_bytes <= more.engine_bytes - parts - more.comm_bytes or (
        engine.name == "trtllm"
    )
