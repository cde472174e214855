"""The example that fits engines to sweeps: on made sweeps, and without any."""

import csv
import gzip
import math
import runpy
import sys
from pathlib import Path

import pytest

from capplan.calibration.load_test import LoadTest, SweepPoint, load_test
from capplan.deployment.engine import EngineSettings
from capplan.engines.catalog import EngineName
from capplan.latency.catalog import find_profile
from capplan.latency.engine_rows import engine_time
from capplan.latency.engine_time import EngineTime
from capplan.latency.terms import tables

EXAMPLES = Path(__file__).parents[2] / "examples" / "studies"
TRUE = EngineTime(iteration_s=1.5e-3, per_request_s=6e-5, source="")
USERS = (4, 16, 64)
POINT = SweepPoint(1024, 512, 4, least_share=0.8, median=True)


def seen_s(gpu, tp, users, time=TRUE):
    """Return the TPOT of an engine with a time of its own. [s]"""
    base = find_profile("gpt-oss-120b", gpu, tp)
    kernels = tables(base.decode, base.fused, max(USERS), 8192)
    point = POINT._replace(concurrency=users)
    return load_test(time.applied(kernels), EngineSettings(), point).tpot_s


def run(monkeypatch, *arguments, name="served_accuracy.py"):
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    monkeypatch.syspath_prepend(str(EXAMPLES))
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


@pytest.fixture
def data(tmp_path):
    """Return a folder with sweeps of H100 and H200 engines that follow the law."""
    (tmp_path / "served").mkdir()
    columns = "model,hw,precision,tp,conc,isl,osl,median_tpot_ms,engine_assumed"
    with open(tmp_path / "served" / "sweeps.csv", "w", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns.split(","))
        for hw, gpu in (("h100", "H100-SXM"), ("h200", "H200-SXM")):
            for tp in (2, 4):
                for users in USERS:
                    row = ("gpt-oss 120B", hw, "fp4", tp, users, 1024, 512)
                    writer.writerow([*row, seen_s(gpu, tp, users) * 1e3, "vllm"])
    return tmp_path


@pytest.mark.thorough
def test_the_engines_time_is_found_and_scored_on_groups_left_out(
    data, tmp_path, monkeypatch, capsys
):
    document = tmp_path / "accuracy.md"
    document.write_text(
        "before\n<!-- tables -->\nstale\n<!-- end of tables -->\nafter\n"
    )

    run(monkeypatch, "--data", data, "--docs", document, "--out", tmp_path / "profiles")

    printed = capsys.readouterr().out
    path = tmp_path / "profiles" / "engine_times.yaml"
    found = engine_time("kernel-sum", "H200-SXM", "gpt-oss-120b", True, path=path)
    for users in USERS:
        right_s = seen_s("H200-SXM", 2, users)
        assert seen_s("H200-SXM", 2, users, found.time) == pytest.approx(
            right_s, rel=0.03
        )
    assert found.engine_name == "vLLM 0.10.2"
    assert found.llms == ["gpt-oss-120b"]
    # From one half of few sweeps the context and the batch are hard to tell apart.
    assert found.served.tpot == pytest.approx([1, 1, 1], abs=0.1)
    [row] = [
        line
        for line in printed.splitlines()
        if line.startswith("| gpt-oss-120b | H200-SXM | vllm 0.10.2 |")
    ]
    tpot, users = (float(cell) for cell in row.split("|")[7:9])
    assert tpot == pytest.approx(1, abs=0.03)
    assert users == pytest.approx(1, abs=0.15)
    text = document.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "stale" not in text
    # The page has what the last release said beside it.
    start = row.split("InferenceMAX")[0]
    [told] = [line.split("|") for line in text.splitlines() if line.startswith(start)]
    assert [*told[:8], *told[9:]] == row.split("|")


def test_without_sweeps_it_says_so(tmp_path, monkeypatch, capsys):
    run(monkeypatch, "--data", tmp_path)

    printed = capsys.readouterr().out
    assert "sweeps.csv is absent" in printed
    assert "silicon_end_to_end.csv is absent" in printed
    assert "No sweeps" in printed


def test_the_sweeps_are_listed(data, monkeypatch, capsys):
    run(monkeypatch, data, name="served_sweeps.py")

    lines = capsys.readouterr().out.splitlines()
    assert sum("gpt-oss-120b on H200-SXM" in line for line in lines) == 2


def test_ttft_is_told_by_engine_users_and_llm_where_enough_runs_state_it(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from types import SimpleNamespace

    import served_tables

    point = SweepPoint(1024, 512, 64, ttft_s=0.1)
    sweep = {"source": "s", "engine": "vllm", "gpu": "H100-SXM"}
    llm = SimpleNamespace(name="gpt-oss-120b")
    found = [
        SimpleNamespace(
            case=SimpleNamespace(
                sweep=SimpleNamespace(**sweep, llm=llm, points=[point])
            ),
            loops=[SimpleNamespace(ttft_s=0.05 if number < 6 else 0.1)],
        )
        for number in range(served_tables.FEWEST_TTFT)
    ]

    lines = list(served_tables.first_tokens(found))

    assert [line.split(" | ")[0] for line in lines[2:]] == [
        "| gpt-oss-120b on H100-SXM, vLLM",
        "| vLLM, 64 users and more",
        "| vLLM, means",
    ]
    assert all("| 8 | 0.50 | 0.50 to 1.00 | 25% |" in line for line in lines[2:])
    assert len(list(served_tables.first_tokens(found[1:]))) == 2


@pytest.mark.parametrize(("slower", "is_older"), [(1.1, False), (1.5, True)])
def test_long_answers_slower_than_short_ones_are_of_an_older_engine(
    slower, is_older, monkeypatch
):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import served_sets
    import served_sweeps

    key = (served_sets.DUMP, "MI325X", "LLM", 8)
    tests = [
        ((*key, 1024, osl, "sglang", ""), SweepPoint(1024, osl, users, tpot_s))
        for osl, times in ((1024, 1.0), (8192, slower))
        for users, tpot_s in ((4, 0.01 * times), (8, 0.012))
    ]
    monkeypatch.setattr(served_sweeps, "load_tests", lambda data: tests)

    short, long = served_sweeps.read_sweeps(Path())

    assert short.version == ""
    assert (long.version == served_sets.OLDER) == is_older


def test_rows_of_the_same_kind_by_version_are_shipped():
    for version, first in (("0.10", "0.10.2"), ("0.13", "0.11.2"), ("0.20", "0.18.0")):
        wanted = EngineName("vllm", version)
        row = engine_time("kernel-sum", "H100-SXM", "gpt-oss-120b", True, wanted=wanted)

        assert row.engine_version.startswith(first)
        assert row.prefill_factor > row.decode_factor


@pytest.mark.parametrize(
    ("name", "message"), [("official", "disagg"), ("perflab", "ShareGPT")]
)
def test_what_a_reader_leaves_out(name, message, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import served_sets

    path = tmp_path / "runs.csv"
    path.write_text(RUNS[name])

    tests = list(getattr(served_sets, name)(path))

    assert [point.concurrency for _, point in tests] == KEPT[name], message


OFFICIAL = (
    "hw,conc,image,infmax_model_prefix,framework,precision,spec_decoding,disagg,"
    "is_multinode,isl,osl,tp,dp_attention,median_tpot,median_ttft,output_tput_per_gpu\n"
)
PERFLAB = (
    "file,gpu,engine,serve,requests,isl,osl,output_tok_s,mean_ttft_ms,mean_tpot_ms,"
    "conc\n"
)
RUNS = {
    "official": OFFICIAL
    + "".join(
        f"h100,{users},vllm/vllm-openai:v0.13.0,gptoss,vllm,fp4,{spec},{apart},False,"
        f"1024,1024,2,{dp},0.01,0.1,500\n"
        for users, spec, apart, dp in (
            (4, "none", "False", "false"),
            (8, "mtp", "False", "false"),
            (16, "none", "True", "false"),
            (32, "none", "False", "true"),
        )
    ),
    "perflab": PERFLAB
    + "".join(
        f"a.md,h100,{engine},vllm serve openai/gpt-oss-120b -tp 2,500,{isl},{osl},900,"
        f"1000,50,{users}\n"
        for engine, isl, osl, users in (
            ("vLLM 0.10.2", 4000, 200, ""),
            ("vLLM 0.10.2", 215, 196, ""),
            ("vLLM", 4000, 200, ""),
            ("vLLM 0.10.2", 128, 4, "4.0"),
            ("vLLM 0.10.2", 229, 217, "4.0"),
        )
    )
    + "qwen3-32b/h100.md,h100,vLLM 0.11.0,vllm serve Qwen/Qwen3-32B,500,2000,100,152,"
    + "160000,87,\n"
    + "glm-4.5-air/h100.md,h100,vLLM 0.11.0,vllm serve zai-org/GLM-4.5-Air -tp 4,500,"
    + "2000,100,412,60000,204,\n"
    + "a.md,h200,SGLang 0.5.6,sglang --model deepseek-ai/DeepSeek-V3.2 \\,500,2000,100,"
    + "1320,19000,192,\n",
}
KEPT = {"official": [4], "perflab": [500, 500, 4, 500]}


def test_a_page_of_runs_on_another_gpu_is_read_as_such(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import served_sets

    path = tmp_path / "runs.csv"
    path.write_text(RUNS["perflab"])

    gpus = [key[1] for key, _ in served_sets.perflab(path)]

    assert gpus == ["H100-SXM"] * 3 + ["H100-PCIe"]


class Made:
    """A load test whose times are linear in the engine's, as it was measured."""

    def __init__(self, users, true, of_kernels=(0.01, 0.004)):
        self.of_kernels, self.users = of_kernels, users
        tpot_s = self.simulated(true).tpot_s
        self.point = POINT._replace(concurrency=users, tpot_s=tpot_s)

    def simulated(self, time, seed=0):
        decode_s, prefill_s = self.of_kernels
        tpot_s = time.decode_factor * decode_s + time.prefill_factor * prefill_s
        tpot_s += time.iteration_s + time.per_request_s * self.users
        return LoadTest(0.1, tpot_s, self.users / tpot_s)

    def errors(self, loop):
        return [30 * math.log(loop.tpot_s / self.point.tpot_s)]


@pytest.mark.parametrize("factor", ["decode_factor", "prefill_factor"])
def test_a_factor_beyond_its_bounds_stays_that_of_the_prior(factor, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import served_fits

    true = TRUE.model_copy(update={factor: 40.0})
    tests = [Made(users, true) for users in (4, 16, 64)]

    drawn = (served_fits.PRIOR, served_fits.SPREAD)
    time = served_fits._within(tests, drawn, served_fits.UNTOLD, None, [1.0] * 3)

    assert getattr(time, factor) == getattr(served_fits.PRIOR, factor)
    assert all(
        least < getattr(time, name) < most
        for name, (least, most) in served_fits.FACTORS.items()
    )


def test_iterations_as_planned_score_one(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import served_iterations

    file = served_iterations.FILES[0]
    times = served_iterations.planned(file)
    requests, context = 8, 20_000  # and the new token of each
    prompt, before = 2_000, 4_000
    decode_s = times.decode_s[requests]
    decode_s += times.decode_context_s[requests] * (context + requests)
    prefill_s = times.fused_s[prompt] + times.attention_s * prompt * (before + 1_000)
    zeros = "0,0,0,0"
    rows = (
        f"sweep,{zeros},{requests},{context},{decode_s * 1e3}",
        f"real,{prompt},1,{before},0,0,0,{prefill_s * 2e3}",
    )
    head = (
        "workload_segment,sum_prefill_tokens,num_prefill_requests,"
        "sum_prefill_kv_tokens,var_prefill_length,num_decode_requests,"
        "sum_decode_kv_tokens,latency_ms"
    )
    with gzip.open(tmp_path / file.name, "wt") as text:
        text.write("\n".join((head, *rows)))

    [*_, line] = served_iterations.table(tmp_path)

    cells = line.split("|")[2:-1]
    assert cells[0] == " 1.00 (1) "
    assert cells[3] == " 0.50 (1) "
    assert not list(served_iterations.table(tmp_path / "none"))
