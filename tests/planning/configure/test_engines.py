"""What real engines sustain of what a plan assumes."""

import io
import json
import math
from dataclasses import replace

import pytest
from rich.console import Console

from capplan.engines.catalog import title_of
from capplan.errors import CapplanError, InputError
from capplan.planning.configure.configuration import only_configuration
from capplan.planning.plan.plan import plan
from capplan.planning.settings.plan import PlanSettings
from capplan.planning.size.prospects import most_against, price_of, price_of_pools
from capplan.report import uncertain
from capplan.report.first_screen import sure
from capplan.report.pages.plan import plan_page
from capplan.report.render.terminal import print_page
from tests.deployments import rated
from tests.documents import plan_json
from tests.pages import facts

SETTINGS = {
    "workload": "synthetic:prompt=300,output=lognormal(median=80,sigma=0.6),n=2000",
    "rate": 120.0,
    "llm": "Llama-3.1-8B",
    "gpu": "H100-SXM",
    "tp": 1,
    "slo": "ttft=500ms,tpot=12ms",
    "tune": False,
}


def best(**changes):
    return plan(PlanSettings(**{**SETTINGS, **changes})).best


@pytest.fixture(scope="module")
def usual():
    return best()


def test_the_count_says_how_many_replicas_engines_need(usual):
    low, high = usual.replica_count_range

    assert usual.configuration.latency_source == "kernel-sum"
    assert low <= usual.replica_count <= high
    assert low < high
    assert f"{low} to {high} replicas" in uncertain.engines(usual)
    assert f"({usual.configuration.sweep_count} load tests)" in uncertain.engines(usual)


def test_kernels_alone_promise_more(usual):
    alone = best(engine_overhead="none")

    assert alone.replica_count <= usual.replica_count
    assert alone.bound.replica_count <= usual.bound.replica_count
    assert alone.replica_count_range is None
    assert uncertain.engines(alone) == ""


GPT_OSS = {"llm": "gpt-oss-120b", "gpu": "H100-SXM", "tp": 2}


def shown(found):
    out = Console(width=200, file=io.StringIO())
    print_page(plan_page(found), out)
    return out.file.getvalue()


def test_a_plan_says_whose_times_and_whose_rules_it_takes():
    found = plan(PlanSettings(**SETTINGS | GPT_OSS, engine="vllm@0.13"))

    engine = facts(plan_page(found), "How sure it is")["engine"]
    assert engine == "times: vLLM 0.11.2–0.13.0, rules: vLLM 0.24 to 0.33"
    assert "times of vLLM 0.11.2–0.13.0" in found.best.configuration.note
    assert found.best.launch.words[:2] == ("vllm", "serve")


def test_an_older_engine_is_named_with_what_it_would_carry():
    """Where nobody said which: plans of the newest have too few GPUs for it."""
    asked = SETTINGS | {"slo": "ttft=1s,tpot=15ms"}
    found = plan(PlanSettings(**asked))
    older, share = found.best.configuration.older_engine

    assert older.engine_version == "0.10.2–0.12.0"
    assert 0.2 < share < 0.8
    text = " ".join(shown(found).split())
    assert f"vLLM 0.10.2–0.12.0 carries {share:.2f} times as many requests" in text
    assert "plan it with `--engine vllm@0.12.0`" in text
    named = plan(PlanSettings(**asked, engine="vllm@0.12.0"))
    assert named.best.replica_count > found.best.replica_count
    assert "older engine" not in shown(named)


def test_times_of_vllm_for_another_engine_are_said_where_they_are_named():
    found = plan(PlanSettings(**SETTINGS, engine="sglang"))

    engine = facts(plan_page(found), "How sure it is")["engine"]
    assert engine == "times: vLLM 0.26.0 (not those of SGLang), rules: SGLang 0.5.23"
    assert any(
        "no SGLang was measured on GPUs of this kind" in w for w in found.warnings
    )


@pytest.mark.thorough
def test_by_default_the_newest_row_of_that_kind_is_taken():
    newest, named = best(**GPT_OSS), best(**GPT_OSS, engine="vllm")

    assert newest.configuration.times_of == named.configuration.times_of
    assert newest.configuration.times_of.startswith("vllm 0.18")


@pytest.mark.thorough
def test_an_older_engine_needs_more():
    old = best(**GPT_OSS, engine="vllm@0.10")

    assert old.replica_count > best(**GPT_OSS).replica_count
    assert old.configuration.times_of == "vllm 0.10.2"


@pytest.mark.thorough
def test_an_engine_newer_than_any_row_says_so_and_widens_the_range_upward():
    newest = best(**GPT_OSS)

    found = plan(PlanSettings(**SETTINGS | GPT_OSS, engine="vllm@0.99"))

    assert any("no engine newer than vLLM" in text for text in found.warnings)
    assert found.best.replica_count == newest.replica_count
    ratios = [row.configuration.capacity_ratio for row in (newest, found.best)]
    if None not in ratios:
        assert ratios[1][1] > ratios[0][1]


@pytest.mark.parametrize("engine", ["sglang", "trtllm"])
def test_vllms_scheduler_with_the_times_of_another_engine_is_not_started(engine):
    asked = {**SETTINGS, "llm": "gpt-oss-120b", "gpu": "B200-SXM", "tp": 2}

    found = plan(PlanSettings(**asked, engine=engine, scheduler="vllm-v1"))

    assert found.best.configuration.times_of.startswith(engine)
    assert found.best.launch.words == ()
    assert f"--engine {engine} plans that one" in found.best.launch.notes[0]
    assert "vllm serve openai" not in shown(found)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("engine", "rules", "command"),
    [
        ("sglang", "SGLang 0.5.23", "python -m sglang.launch_server --model-path"),
        ("trtllm", "TensorRT-LLM of 2026", "trtllm-serve"),
    ],
)
def test_a_plan_of_another_engine_has_its_rules_defaults_times_and_command(
    engine, rules, command
):
    asked = {**SETTINGS, "llm": "gpt-oss-120b", "gpu": "B200-SXM", "tp": 2}

    found = plan(PlanSettings(**asked, engine=engine))

    configuration = found.best.configuration
    assert configuration.engine.scheduler.name == engine
    assert configuration.times_of.startswith(engine)
    assert found.best.launch.line.startswith(f"{command} openai/gpt-oss-120b --")
    text = shown(found)
    assert f"rules: {rules}" in " ".join(text.split())
    said = {row.what: row for row in found.assumptions}
    kernels = said[f"kernels, {configuration}"]
    assert kernels.value == f"of vLLM, not of {title_of(engine)} *"
    assert kernels.how == "assumed"
    assert said["engine"].value.startswith(f"as {title_of(engine)} chooses: ")


def test_a_name_that_is_no_engine_is_refused():
    with pytest.raises(InputError, match="expected vllm, sglang, trtllm"):
        PlanSettings(**SETTINGS, engine="llama.cpp")


@pytest.mark.parametrize("ratio", [(1.1, 1.6), (0.6, 0.9), (0.9, 1.1)])
def test_a_plans_own_answer_lies_inside_its_range(ratio, usual):
    low, high = rated(usual, ratio).replica_count_range

    assert low <= usual.replica_count <= high


def test_a_range_below_the_bound_says_why(usual):
    bound = replace(usual.bound, replica_count=usual.replica_count)
    below = replace(rated(usual, (1.1, 2.0)), bound=bound)

    assert below.replica_count_range[0] < bound.replica_count
    assert (
        "below the proven minimum, which is of the times planned with"
        in uncertain.engines(below)
    )
    assert "lower bound" not in uncertain.engines(rated(usual, (0.9, 1.0)))


def test_engines_that_differ_by_a_factor_of_two_have_their_range_and_are_in_doubt(
    tmp_path,
):
    path = tmp_path / "times.yaml"
    path.write_text(
        "schema: capplan-engine-times/1\n"
        "times:\n"
        "- {of: kernel-sum, iteration_s: 0.001, source: mine, served: "
        "{sweeps: 9, tpot: [0.8, 1, 1.2], capacity: [0.6, 1, 1.3]}}\n"
    )

    found = best(engine_overhead=str(path))

    low, high = found.replica_count_range
    assert low <= found.replica_count < high
    # The slow end of the range is what it is ranked by, as those without a benchmark.
    assert found.cautious_count == high
    assert price_of(found) == price_of_pools(*found.engine_fleets[1].pools)
    assert uncertain.doubts(found) == (
        "real engines of it differ by a factor of two: load-test before you buy"
    )
    assert uncertain.engines(found) == (
        f"reached 60 % to 130 % of the predicted load (9 load tests): {low} to "
        f"{high} replicas, the most for the slowest of ten, which take 1.20 times as "
        "long"
    )
    assert f"up to {found.cautious.gpu_count} GPUs" in sure(found).text


def test_where_slow_engines_miss_the_slo_with_any_count_the_bill_says_so(tmp_path):
    path = tmp_path / "times.yaml"
    path.write_text(
        "schema: capplan-engine-times/1\n"
        "times:\n"
        "- {of: kernel-sum, iteration_s: 0.001, source: mine, served: "
        "{sweeps: 9, tpot: [0.8, 1, 90], capacity: [0.6, 1, 1.3]}}\n"
    )

    found = best(engine_overhead=str(path))

    assert found.cautious_fails
    assert found.cautious is found.replica_count_range is None
    assert sure(found).more.endswith("the slowest of ten engines miss with any count")
    # It comes after all whose cautious count is known, however many replicas that is.
    many = replace(found, cautious_fails=False, cautious_count=4096)
    assert price_of(many) < price_of(found)
    assert most_against(found.configuration, [found]) == 4096


def test_a_higher_share_of_engines_needs_more(usual):
    cautious = best(latency_quantile=0.9)

    assert cautious.replica_count >= usual.replica_count
    assert cautious.replica_count_range[1] <= cautious.replica_count


def test_an_llm_without_a_benchmark_has_the_medians_count_and_a_cautious_one():
    asked = {"gpu": "H100-NVL", "llm": "Qwen2.5-14B", "slo": "ttft=1s,tpot=40ms"}

    found = plan(PlanSettings(**SETTINGS | asked))
    estimate, median = found.best, best(**asked, latency_quantile=0.5)

    assert estimate.configuration.latency_source == "estimate"
    assert estimate.is_in_doubt
    assert estimate.replica_count == median.replica_count
    # Sweeps of other families differ by more than a factor of two: that is no range.
    assert estimate.configuration.is_unbacked
    assert estimate.replica_count_range is None
    slowest = best(**asked, latency_quantile=0.9)
    counts = (slowest.replica_count, math.ceil(1.1 * slowest.replica_count))
    assert counts[0] <= estimate.cautious_replica_count <= counts[1]
    assert estimate.cautious_replica_count > estimate.replica_count
    page = plan_page(found)
    sure, cautious = page.answer.sure, estimate.cautious_replica_count
    assert sure.short == f"estimated: up to {cautious} GPUs"
    assert "no benchmark of this LLM backs it" in sure.more
    told = facts(page, "How sure it is")
    assert told["estimated"].endswith(": load-test before you buy")
    assert f"of other LLM families): {cautious} replicas, $" in told["real engines"]
    text = " ".join(shown(found).split())
    assert "real engines needed" not in text
    assert (
        "capplan fit --from results --onto H100-NVL/Qwen2.5-14B/tp1 --plan plan.json "
        "--out mine.yaml" in text
    )
    document = json.loads(plan_json(found))["best"]
    assert document["cautious_replica_count"] == estimate.cautious_replica_count
    assert document["replica_count_range"] is None


def test_the_users_own_time_is_taken(tmp_path, usual):
    path = tmp_path / "times.yaml"
    path.write_text(
        "schema: capplan-engine-times/1\n"
        "times:\n"
        "- {of: kernel-sum, iteration_s: 0.003, source: my engine}\n"
    )

    slower = plan(PlanSettings(**SETTINGS, engine_overhead=str(path)))

    assert slower.best.replica_count > usual.replica_count
    rows = {row.what: row for row in slower.assumptions}
    row = rows["engine's own time, H100-SXM × TP 1"]
    assert row.value.startswith("3.00 ms an iteration + 0 µs a running request")
    assert row.source == "my engine"


def test_a_file_without_a_row_for_the_profile_is_refused(tmp_path):
    path = tmp_path / "times.yaml"
    path.write_text(
        "schema: capplan-engine-times/1\n"
        "times:\n"
        "- {of: kernel-sum, gpus: [B200], iteration_s: 0.003, source: mine}\n"
    )

    with pytest.raises(CapplanError, match="no row is of kernel-sum, H100-SXM, dense"):
        best(engine_overhead=str(path))


def test_times_given_outright_take_no_engine():
    with pytest.raises(InputError, match="engine_overhead are both given"):
        PlanSettings(**SETTINGS, latency_ms="7,0.02,0,0.1,0", engine_overhead="none")


@pytest.mark.filterwarnings("ignore::capplan.errors.ExtrapolationWarning")
def test_attention_reads_kv_of_another_type_by_its_bytes():
    asked = {**SETTINGS, "llm": "Llama-3.3-70B-FP8", "gpu": "H200-SXM", "tp": 2}

    narrow, wide = (
        only_configuration(PlanSettings(**asked, kv_cache_dtype=dtype))
        for dtype in ("fp8", "bf16")
    )

    assert wide.tables.decode_context_s[8] == 2 * narrow.tables.decode_context_s[8]
    assert wide.tables.decode_s[8] == narrow.tables.decode_s[8]
    assert wide.engine.kv_blocks < 0.6 * narrow.engine.kv_blocks


def test_json_has_the_range_and_the_source():
    found = json.loads(plan_json(plan(PlanSettings(**SETTINGS))))["best"]

    assert found["latency_source"] == "kernel-sum"
    assert len(found["replica_count_range"]) == 2


def test_a_mixture_that_runs_nearly_alone_is_named():
    alone = {"llm": "Qwen3-30B-A3B", "rate": 0.2, "slo": "ttft=2s,tpot=60ms"}

    found = plan(PlanSettings(**{**SETTINGS, **alone}))

    said = "the 4 from which engines were measured"
    assert any(said in text for text in found.warnings)
    busy = plan(PlanSettings(**{**SETTINGS, **alone, "rate": 60.0}))
    assert not any("engines were measured" in text for text in busy.warnings)
