"""Files of load tests that state means."""

import bz2
import csv
import gzip
import json
import math
import re
import subprocess

import pytest
import yaml

from capplan.calibration.load_test import SweepPoint
from capplan.calibration.sweep_file import read_sweep
from capplan.calibration.target import Target
from capplan.errors import CapplanWarning, InputError
from capplan.llm.catalog import llm

HEAD = "isl,osl,concurrency,tpot_ms,ttft_ms,output_tokens_per_s\n"

VLLM = {
    "backend": "vllm",
    "max_concurrency": 8,
    "completed": 80,
    "total_input_tokens": 80 * 1000,
    "total_output_tokens": 80 * 200,
    "output_throughput": 640.0,
    "mean_ttft_ms": 55.0,
    "mean_tpot_ms": 12.5,
}
AT_A_RATE = VLLM | {
    "max_concurrency": None,
    "request_rate": 4.0,
    "burstiness": 1.0,
    "request_throughput": 3.9,
    "output_throughput": 780.0,
}
SGLANG = {
    **VLLM,
    "backend": "sglang",
    "request_rate": math.inf,
    "mean_e2e_latency_ms": 2540.0,
    "concurrency": 7.7,  # the mean that was measured, not the setting
    "total_output_tokens_retokenized": 80 * 199,
    "server_info": {"model_path": "meta-llama/Llama-3.1-8B", "version": "0.5.9"},
}
INFERENCEMAX = {
    "hw": "h200",
    "tp": 2,
    "conc": 8,
    "isl": 1000,
    "osl": 200,
    "mean_ttft": 0.055,
    "mean_tpot": 0.0125,
    "output_tput_per_gpu": 320.0,
}
GUIDELLM = {
    "config": {"strategy": {"type_": "concurrent", "streams": 8}},
    "metrics": {
        name: {"successful": {"mean": value}}
        for name, value in {
            "prompt_token_count": 1000.0,
            "output_token_count": 200.0,
            "inter_token_latency_ms": 12.5,
            "time_to_first_token_ms": 55.0,
            "output_tokens_per_second": 640.0,
        }.items()
    },
}
AIPERF = {
    "input_config": {"loadgen": {"concurrency": 8}},
    "input_sequence_length": {"avg": 1000.0, "unit": "tokens"},
    "output_sequence_length": {"avg": 200.0, "unit": "tokens"},
    "inter_token_latency": {"avg": 12.5, "unit": "ms"},
    "time_to_first_token": {"avg": 55.0, "unit": "ms"},
    "output_token_throughput": {"avg": 640.0, "unit": "tokens/sec"},
}
AIPERF_0_13 = {
    **AIPERF,
    "input_config": {
        "phases": [
            {"name": "warmup", "kind": "warmup", "type": "concurrency"},
            {"name": "profiling", "type": "concurrency", "concurrency": 8},
        ]
    },
}
GENAI_PERF = {
    **AIPERF,
    "input_config": {"perf_analyzer": {"stimulus": {"concurrency": 8}}},
}
INFERENCE_PERF = {
    "load_summary": {"count": 80, "requested_rate": 80.0, "concurrency": 8},
    "successes": {
        "count": 80,
        "latency": {
            "request_latency": {"mean": 2.54},
            "time_per_output_token": {"mean": 0.0125},
            "time_to_first_token": {"mean": 0.055},
        },
        "throughput": {"output_tokens_per_sec": 640.0, "requests_per_sec": 3.2},
        "prompt_tokens": {"mean": 1000.0},
        "output_len": {"mean": 200.0},
    },
    "failures": {"count": 0},
}
LLMPERF = {
    "version": "2023-08-31",
    "model": "meta-llama/Llama-3.1-8B",
    "num_concurrent_requests": 8,
    "results_inter_token_latency_s_mean": 0.0127125,  # e2e ÷ tokens
    "results_ttft_s_mean": 0.055,
    "results_end_to_end_latency_s_mean": 0.055 + 199 * 0.0125,
    "results_number_input_tokens_mean": 1000.0,
    "results_number_output_tokens_mean": 200.0,
    "results_mean_output_throughput_token_per_s": 640.0,
    "results_number_errors": 0,
}
TRTLLM = {
    "engine": {"model": "meta-llama/Llama-3.1-8B", "backend": "Pytorch"},
    "machine": {"name": "NVIDIA H100 80GB HBM3"},
    "world_info": {"tp_size": 1},
    "request_info": {
        "num_requests": 80,
        "avg_num_concurrent_requests": 8,
        "avg_input_length": 1000.0,
        "avg_output_length": 200.0,
    },
    "performance": {"system_output_throughput_tok_s": 640.0},
    "streaming_metrics": {"avg_ttft_ms": 55.0, "avg_tpot_ms": 12.5},
}
ALL = {
    "vllm": VLLM,
    "sglang": SGLANG,
    "inferencemax": INFERENCEMAX,
    "guidellm": GUIDELLM,
    "aiperf": AIPERF,
    "aiperf-0.13": AIPERF_0_13,
    "genai-perf": GENAI_PERF,
    "inference-perf": INFERENCE_PERF,
    "llmperf": LLMPERF,
    "trtllm-bench": TRTLLM,
}


def changed(test, users):
    """Return the test at another concurrency, with as many tokens/s more."""
    text = re.sub(
        r"(?<=: )[63][42]0\.0\b",
        lambda per_s: str(float(per_s[0]) * users / 8),
        json.dumps(test),
    )
    for name in ("max_concurrency", "conc", "streams", "concurrency", "_requests"):
        text = text.replace(f'{name}": 8,', f'{name}": {users},')
        text = text.replace(f'{name}": 8}}', f'{name}": {users}}}')
    return json.loads(text)


def at_rate(rate_per_s, **others):
    """Return a test of vLLM at a rate that it kept."""
    done = {"request_rate": rate_per_s, "request_throughput": 0.98 * rate_per_s}
    done |= {"output_throughput": 200 * 0.98 * rate_per_s}
    return AT_A_RATE | done | others


def read(folder, *tests, where=None):
    """Return the sweep of tests, each in its file."""
    for number, test in enumerate(tests):
        (folder / f"{number}.json").write_text(json.dumps(test))
    return read_sweep(folder, 1, where or {})


def test_a_table_gives_its_points_in_order(tmp_path):
    path = tmp_path / "sweep.csv"
    path.write_text(HEAD + "1024,256,16,14.5,80,900\n1024,256,4,12,,\n")

    assert read_sweep(path, 1, {}).points == [
        SweepPoint(1024, 256, 4, 0.012),
        SweepPoint(1024, 256, 16, 0.0145, 0.08, 900.0),
    ]


def test_a_table_may_state_rates(tmp_path):
    path = tmp_path / "sweep.csv"
    path.write_text(
        "isl,osl,rate_per_s,tpot_ms,burstiness\n9,8,2.5,12,\n9,8,5,13,inf\n"
    )

    slow, fast = read_sweep(path, 1, {}).points

    assert (slow.rate_per_s, slow.concurrency, slow.burstiness) == (2.5, None, 1.0)
    assert (fast.rate_per_s, fast.burstiness) == (5.0, math.inf)


@pytest.mark.parametrize("test", ALL.values(), ids=ALL)
def test_each_load_generator_is_read(test, tmp_path):
    for users in (8, 16):
        (tmp_path / f"{users}.json").write_text(json.dumps(changed(test, users)))

    first, second = read_sweep(tmp_path, 2, {}).points

    share = 0.8 if test is INFERENCEMAX else 1.0
    assert first._replace(requests=None, tpot_s=0.0125) == SweepPoint(
        1000, 200, 8, 0.0125, 0.055, 640.0, share
    )
    assert first.tpot_s == pytest.approx(0.0125)
    has_requests = test in (VLLM, SGLANG, INFERENCE_PERF, TRTLLM)
    assert first.requests == (80 if has_requests else None)
    assert second.concurrency == 16


@pytest.mark.parametrize("test", ALL.values(), ids=ALL)
def test_each_is_read_as_lines_an_array_and_gzipped(test, tmp_path):
    tests = [json.dumps(changed(test, users)) for users in (8, 16)]
    lines, array = tmp_path / "runs.jsonl", tmp_path / "runs.json"
    lines.write_text("\n".join(tests))
    array.write_text(f"[{','.join(tests)}]")
    zipped = tmp_path / "runs.json.gz"
    zipped.write_bytes(gzip.compress(array.read_bytes()))

    sweeps = [read_sweep(path, 2, {}).points for path in (lines, array, zipped)]

    assert [p.concurrency for p in sweeps[0]] == [8, 16]
    assert sweeps[0] == sweeps[1] == sweeps[2]


def test_a_test_of_no_more_requests_than_users_asks_all_at_once(tmp_path):
    path = tmp_path / "sweep.csv"
    rows = "1024,256,100,90,8000,900,100\n1024,256,4,12,,,40\n"
    path.write_text(HEAD.replace("\n", ",requests\n") + rows)

    few, many = read_sweep(path, 1, {}).points

    assert (few.requests, few.is_burst) == (40, False)
    assert (many.requests, many.is_burst) == (100, True)


def test_a_report_of_trtllm_bench_states_its_mean_users_and_its_system(tmp_path):
    asked = TRTLLM["request_info"] | {"avg_num_concurrent_requests": 7.9}

    sweep = read(tmp_path, TRTLLM | {"request_info": asked}, changed(TRTLLM, 16))

    assert sweep.points[0].concurrency == 8
    stated = {aspect: value for aspect, (_, value) in sweep.stated.items()}
    assert (stated["gpu"], stated["tp"]) == ("NVIDIA H100 80GB HBM3", "1")


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("k6.json", '{"metrics": {"http_req_duration": {"avg": 2.0}}}', "k6's summary"),
        ("l.csv", "Type,Average Content Size\nGET,3\n", "locust's table"),
        ("t.json", '{"elapsed_time": 2, "total_num_tokens": 5}', "bench throughput"),
        ("e.json", '{"total_input_sequences": 5}', "a test of embeddings"),
        (
            "o.txt",
            "============ Serving Benchmark Result ============\nSuccessful: 3\n",
            "--save-result",
        ),
    ],
)
def test_files_of_other_tools_are_named(name, text, what, tmp_path):
    (tmp_path / name).write_text(text)

    with pytest.raises(InputError, match=f": is .*{what}"):
        read_sweep(tmp_path / name, 1, {})


def test_the_model_of_inference_perf_is_that_of_the_settings_beside_it(tmp_path):
    (tmp_path / "config.yaml").write_text("server:\n  model_name: Qwen/Qwen3-32B\n")

    sweep = read(tmp_path, INFERENCE_PERF, changed(INFERENCE_PERF, 16))

    assert sweep.stated["llm"] == ("model_name", "Qwen/Qwen3-32B")


def test_vllm_without_users_and_rate_asks_for_all_at_once(tmp_path):
    burst = VLLM | {"max_concurrency": None, "request_rate": "inf"}
    burst |= {"output_throughput": 6400.0}

    _, point = read(tmp_path, VLLM, burst).points

    assert (point.concurrency, point.is_burst) == (80, True)


def test_all_benchmarks_of_a_guidellm_file_are_read(tmp_path):
    tests = [changed(GUIDELLM, users) for users in (4, 8, 16)]
    content = {"metadata": {"version": 2}, "benchmarks": tests}
    (tmp_path / "a.json").write_text(json.dumps(content))
    (tmp_path / "b.yaml").write_text(yaml.dump(content))

    for name in ("a.json", "b.yaml"):
        sweep = read_sweep(tmp_path / name, 1, {})
        assert [point.concurrency for point in sweep.points] == [4, 8, 16]
        assert "engine_version" not in sweep.stated  # 2 is that of the report


STRATEGIES = [
    ({"type_": "synchronous"}, (1, None)),
    ({"type_": "throughput", "max_concurrency": 512}, (512, None)),
    ({"type_": "constant", "rate": 3.0, "max_concurrency": 64}, (64, 3.0)),
    ({"type_": "poisson", "rate": 3.0}, (None, 3.0)),
    # what it writes where no limit was given
    ({"type_": "poisson", "rate": 3.0, "max_concurrency": 10240}, (None, 3.0)),
]


@pytest.mark.parametrize(("strategy", "load"), STRATEGIES, ids=str)
def test_each_strategy_of_guidellm_is_users_or_a_rate(strategy, load, tmp_path):
    users = load[0] if load[1] is None else 8
    test = changed(GUIDELLM, users) | {"config": {"strategy": strategy}}

    points = read(tmp_path, test, changed(GUIDELLM, 4)).points

    point = next(p for p in points if p.concurrency != 4)
    assert (point.concurrency, point.rate_per_s) == load
    assert point.burstiness == (math.inf if strategy["type_"] == "constant" else 1)


def guidellm_csv(path, *strategies):
    """Write GuideLLM's CSV, whose header has three lines and names that repeat."""
    stats = {
        ("Token Metrics", "Successful Input Tokens"): 1000.0,
        ("Token Metrics", "Successful Output Tokens"): 200.0,
        ("Inter Token Latency", "Successful ms"): 12.5,
        ("Time to First Token", "Successful ms"): 55.0,
        ("Token Throughput", "Successful Output Tokens/Sec"): 80.0,
    }
    head = [
        ("Run Info", "Backend", ""),
        ("Benchmark", "Strategy", ""),
        ("Request Counts", "Total", ""),
        *((*name, what) for name in stats for what in ("Mean", "Median")),
    ]
    backend = json.dumps({"kind": "openai_http", "model": "our-chat"})
    rows = [
        [backend, strategy, 80, *(x for value in stats.values() for x in (value, 0))]
        for strategy in strategies
    ]
    for row, (kind, _, load) in zip(
        rows, (s.partition("@") for s in strategies), strict=True
    ):
        row[-2] *= float(load or 8) * (1 if kind == "concurrent" else 2.5)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([*zip(*head, strict=True), *rows])
    return path


def test_the_csv_of_guidellm_is_read_by_its_three_lines_of_names(tmp_path):
    path = guidellm_csv(tmp_path / "b.csv", "concurrent@8", "constant@2.50")

    sweep = read_sweep(path, 1, {})

    assert sweep.points[0] == SweepPoint(
        1000, 200, 8, 0.0125, 0.055, 640.0, requests=80
    )
    assert sweep.points[1].rate_per_s == 2.5
    assert sweep.stated["llm"] == ("model", "our-chat")


def test_a_strategy_without_its_load_asks_for_the_json_beside_it(tmp_path):
    path = guidellm_csv(tmp_path / "b.csv", "concurrent", "concurrent")

    with pytest.raises(InputError, match=r"give the benchmarks\.json beside it"):
        read_sweep(path, 1, {})


def aiperf_csv(folder, users=8):
    folder.mkdir(parents=True)
    path = folder / "profile_export_aiperf.csv"
    path.write_text(
        "Metric,avg,min,max,p99\n"
        "Input Sequence Length (tokens),1000.00,1000,1000,1000\n"
        "Inter Token Latency (ms),12.50,12,13,13\n"
        "Output Sequence Length (tokens),200.00,200,200,200\n"
        "Time to First Token (ms),55.00,50,60,60\n"
        "\nMetric,Value\n"
        f"Output Token Throughput (tokens/sec),{80 * users}\nRequest Count,80\n"
    )
    return path


def test_the_csv_of_aiperf_takes_its_load_from_the_name_of_its_folder(tmp_path):
    for users in (8, 16):
        aiperf_csv(tmp_path / f"llama-openai-chat-concurrency{users}", users)

    sweep = read_sweep(tmp_path, 1, {})

    first, second = sweep.points
    assert first == SweepPoint(1000, 200, 8, 0.0125, 0.055, 640.0, requests=80)
    assert second.concurrency == 16
    said = r"Note: .* and 1 more: its users or rate are in the name of its folder\."
    assert re.fullmatch(said, sweep.notes[1])


def test_the_csv_of_aiperf_alone_asks_for_the_json(tmp_path):
    with pytest.raises(InputError, match=r"neither users .* give the JSON beside it"):
        read_sweep(aiperf_csv(tmp_path / "c8"), 1, {})


def test_a_folder_of_packed_files_is_refused_with_one_command(tmp_path):
    for users in (8, 16):
        packed = bz2.compress(json.dumps(changed(VLLM, users)).encode())
        (tmp_path / f"c{users}.json.bz2").write_bytes(packed)

    with pytest.raises(InputError, match=r"has files \.bz2: find ") as refused:
        read_sweep(tmp_path, 1, {})
    command = "find" + str(refused.value).partition("find")[2].partition(" unpacks")[0]
    subprocess.run(command, shell=True, check=True)

    assert len(list(tmp_path.iterdir())) == 4
    assert (
        "16.json.bz2 and 1 more: beside its JSON"
        in read_sweep(tmp_path, 1, {}).notes[1]
    )


def test_folders_of_aiperf_are_read_without_what_lies_beside_and_hidden(tmp_path):
    for users in (8, 16):
        path = aiperf_csv(tmp_path / f"c{users}").with_suffix(".json")
        path.write_text(json.dumps(changed(AIPERF_0_13, users)))
        (path.parent / "inputs.json").write_text('{"data": []}')
        (path.parent / "profile_export.jsonl").write_text(
            '{"metadata": {"request_start_ns": 1}, "metrics": {}}\n'
        )
        (path.parent / ".cache").mkdir()
        (path.parent / ".cache" / "x.json").write_text("not JSON")

    sweep = read_sweep(tmp_path, 1, {})

    assert [point.concurrency for point in sweep.points] == [8, 16]
    assert sweep.notes[1].startswith("Not used: ")
    for said in (
        "profile_export_aiperf.csv and 1 more: beside its JSON",
        "inputs.json and 1 more: no load test",
        "profile_export.jsonl and 1 more: is AIPerf's single requests",
    ):
        assert said in sweep.notes[1]


@pytest.mark.parametrize(
    ("phase", "burstiness"),
    [
        ({"type": "constant", "rate": 3.0}, math.inf),
        ({"type": "poisson", "rate": 3.0}, 1.0),
        ({"type": "gamma", "rate": 3.0, "smoothness": 2.5}, 2.5),
    ],
)
def test_a_phase_of_aiperf_states_its_rate_and_how_it_arrives(
    phase, burstiness, tmp_path
):
    test = AIPERF | {"input_config": {"phases": [phase]}}

    point = read(tmp_path, AIPERF, test).points[-1]

    assert (point.rate_per_s, point.burstiness) == (3.0, burstiness)


def test_times_of_aiperf_are_taken_in_their_unit(tmp_path):
    in_us = AIPERF_0_13 | {"inter_token_latency": {"avg": 12_500.0, "unit": "us"}}
    tests = [changed(in_us, users) for users in (8, 16)]

    assert read(tmp_path, *tests).points[0].tpot_s == pytest.approx(0.0125)

    tests[0]["inter_token_latency"]["unit"] = "weeks"
    with pytest.raises(InputError, match="inter_token_latency is in 'weeks'"):
        read(tmp_path, *tests)


def test_stages_of_inference_perf_are_points_and_their_summary_is_none(tmp_path):
    for stage, rate in enumerate((1.0, 2.0)):
        load = {"count": 60, "requested_rate": rate, "achieved_rate": rate}
        done = {"requests_per_sec": rate, "output_tokens_per_sec": 200 * rate}
        test = INFERENCE_PERF | {"load_summary": load}
        test = test | {"successes": INFERENCE_PERF["successes"] | {"throughput": done}}
        path = tmp_path / f"stage_{stage}_lifecycle_metrics.json"
        path.write_text(json.dumps(test, indent=2))
    summary = tmp_path / "summary_lifecycle_metrics.json"
    summary.write_text(json.dumps(INFERENCE_PERF | {"load_summary": {"count": 120}}))
    (tmp_path / "config.yaml").write_text("load:\n  type: constant\n")

    sweep = read_sweep(tmp_path, 1, {})

    assert [p.rate_per_s for p in sweep.points] == [1.0, 2.0]
    assert "summary_lifecycle_metrics.json: without users and rate" in sweep.notes[1]
    with pytest.raises(InputError, match=r"stage_N_lifecycle_metrics\.json beside it"):
        read_sweep(summary, 1, {})


def vllm_sweep(folder, runs=3):
    """Write a folder as ``vllm bench sweep serve`` does."""
    everything = []
    for users in (8, 16):
        at = folder / "20261101_080000" / f"BENCH--max_concurrency={users}"
        at.mkdir(parents=True)
        tests = [
            changed(VLLM, users) | {"run_number": n, "mean_tpot_ms": 12.5 + n / 10}
            for n in range(runs)
        ]
        for test in tests:
            path = at / f"run={test['run_number']}.json"
            path.write_text(json.dumps(test, indent=4))
        (at / "summary.json").write_text(json.dumps(tests, indent=4))
        warm_up = tests[0] | {"run_number": -1}
        (at / "warmup.json").write_text(json.dumps(warm_up))
        failed = {"run_number": 3, "error_type": "OSError", "error": "x"}
        (at / "run=3.failure.json").write_text(json.dumps(failed))
        everything += tests
    with (at.parent / "summary.csv").open("w", newline="") as file:
        rows = csv.DictWriter(file, ["", *everything[0]])
        rows.writeheader()
        rows.writerows({"": n} | test for n, test in enumerate(everything))
    return folder


def test_runs_of_a_vllm_sweep_are_averaged_and_its_summaries_are_copies(tmp_path):
    folder = vllm_sweep(tmp_path)

    sweep = read_sweep(folder, 1, {})

    assert [p.concurrency for p in sweep.points] == [8, 16]
    assert sweep.points[0].tpot_s == pytest.approx(0.0126)
    assert sweep.notes[0] == (
        "6 load tests of vllm bench serve make 2 points, each the mean of 3 runs."
    )
    assert "12 copies of them are not counted again." in sweep.notes
    assert "a warm-up" in " ".join(sweep.notes)
    assert "run=3.failure.json" in " ".join(sweep.notes)
    summary = read_sweep(folder / "20261101_080000" / "summary.csv", 1, {})
    assert summary.points == sweep.points


def test_two_engines_in_one_tree_are_no_runs_of_a_point(tmp_path):
    tests = [
        changed(VLLM, users) | {"label": label, "mean_tpot_ms": tpot_ms}
        for users in (8, 16)
        for label, tpot_ms in (("old", 24.0), ("new", 12.0))
    ]

    with pytest.raises(InputError, match=r"for the same lengths and load; .*--where"):
        read(tmp_path, *tests)

    points = read(tmp_path, *tests, where={"label": "new"}).points
    assert [p.tpot_s for p in points] == [0.012, 0.012]


def test_a_sweep_over_settings_of_the_server_asks_for_one_of_them(tmp_path):
    for seqs in (64, 256):
        for users in (4, 8):
            at = tmp_path / f"SERVE--max_num_seqs={seqs}-BENCH--max_concurrency={users}"
            at.mkdir()
            (at / "run=0.json").write_text(json.dumps(changed(VLLM, users)))
            (at / "run=1.json").write_text(
                json.dumps(changed(VLLM | {"mean_tpot_ms": 12.0 + seqs / 100}, users))
            )

    with pytest.raises(
        InputError, match=r"max_num_seqs is .*; .* --where max_num_seqs=\d+$"
    ):
        read_sweep(tmp_path, 1, {})

    assert len(read_sweep(tmp_path, 1, {"max_num_seqs": "64"}).points) == 2


def test_tests_of_another_tp_degree_are_left_by_the_choice_that_is_named(tmp_path):
    tests = [
        changed(INFERENCEMAX | {"tp": tp, "hw": "h100"}, users)
        | {"output_tput_per_gpu": 80.0 * users}
        for tp in (1, 8)
        for users in (4, 8)
    ]
    path = tmp_path / "all.json"
    path.write_text(json.dumps(tests))
    target = Target("here", llm("Llama-3.1-8B"), "H100-SXM", 1)

    with pytest.raises(InputError, match=r"tp is 8 .*; or --where tp=1 chooses"):
        read_sweep(path, 1, {}, target)

    assert len(read_sweep(path, 1, {"tp": "1"}, target).points) == 2


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_a_file_of_two_settings_of_the_server_asks_for_one_of_them(form, tmp_path):
    tests = [
        changed(VLLM | {"max_num_batched_tokens": tokens}, users)
        for tokens in (2048, 8192)
        for users in (4, 8)
    ]
    path = tmp_path / f"runs.{form}"
    with path.open("w", newline="") as file:
        if form == "csv":
            rows = csv.DictWriter(file, tests[0])
            rows.writeheader()
            rows.writerows(tests)
        else:
            file.write("\n".join(map(json.dumps, tests)))

    with pytest.raises(
        InputError, match=r"_tokens is 2048 and 8192; .* --where max_num_batched_tokens"
    ):
        read_sweep(path, 1, {})

    chosen = read_sweep(path, 1, {"max_num_batched_tokens": "2048"})
    assert len(chosen.points) == 2
    assert chosen.stated["max_num_batched_tokens"][1] == "2048"


def test_tests_of_two_engines_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"backend is .* of one server, at 2 or more"):
        read(tmp_path, VLLM, changed(SGLANG, 16))


def test_tests_at_a_rate_are_points_with_the_gaps_of_their_tool(tmp_path):
    tests = [at_rate(2.0), at_rate(4.0, burstiness=0.5, max_concurrency=32)]

    sweep = read(tmp_path, *tests)

    free, capped = sweep.points
    assert (free.rate_per_s, free.concurrency, free.burstiness) == (2.0, None, 1.0)
    assert (capped.rate_per_s, capped.concurrency, capped.burstiness) == (4.0, 32, 0.5)
    assert sweep.notes[1].endswith("1.json:1: burstiness 0.5.")


def test_a_test_beyond_saturation_is_left_out_and_said(tmp_path):
    beyond = at_rate(40.0, request_throughput=14.2, completed=4000)
    beyond |= {"total_input_tokens": 4_000_000, "total_output_tokens": 800_000}

    sweep = read(tmp_path, at_rate(2.0), at_rate(4.0), beyond)

    assert [p.rate_per_s for p in sweep.points] == [2.0, 4.0]
    assert "14.2 of 40 requests/s answered: saturated" in " ".join(sweep.notes)


def test_tests_that_contradict_littles_law_are_left_out_by_their_file(tmp_path):
    at_once = VLLM | {"max_concurrency": None, "request_rate": "inf"}

    sweep = read(tmp_path, at_rate(2.0), at_rate(3.0), at_once)

    assert sweep.notes[0].startswith("2 load tests of vllm bench serve make 2 points")
    assert [p.rate_per_s for p in sweep.points] == [2.0, 3.0]
    said = "2.json:1: without users and rate, so all requests at once: 640 output tok"
    assert said in " ".join(sweep.notes)


def test_times_in_seconds_are_named_as_such(tmp_path):
    tests = [changed(VLLM, users) for users in (8, 16)]
    in_s = [t | {"mean_tpot_ms": 0.0125, "mean_ttft_ms": 0.055} for t in tests]

    with pytest.raises(
        InputError, match=r"0\.json:1: .*are its times seconds\? expected milliseconds$"
    ):
        read(tmp_path, *in_s)


def test_the_end_of_a_short_test_is_no_saturation(tmp_path):
    """40 requests at 20/s take 2 s and the last one's stay of 2.5 s."""
    short = at_rate(20.0, completed=40, request_throughput=40 / 4.5)
    short |= {"total_input_tokens": 40_000, "total_output_tokens": 8_000}

    assert len(read(tmp_path, at_rate(2.0), short).points) == 2


def test_rates_that_a_cap_holds_back_are_one_test_of_so_many_users(tmp_path):
    held = [
        VLLM | {"request_rate": rate, "request_throughput": 3.2}
        for rate in (30.0, 40.0, 80.0)
    ]

    with pytest.raises(
        InputError, match=r"holds one .*0\.json:1 and 2 more: held back by its cap"
    ):
        read(tmp_path, *held)

    sweep = read(tmp_path, *held, changed(VLLM, 16))
    assert [point.load for point in sweep.points] == [(0, 8, 1), (0, 16, 1)]
    assert "make 2 points, each the mean of 2 runs" in sweep.notes[0]


def test_a_ramp_and_a_burst_without_limit_are_left_out(tmp_path):
    ramp = AT_A_RATE | {"request_rate": "inf", "ramp_up_strategy": "linear"}
    at_once = GUIDELLM | {"config": {"strategy": {"type_": "throughput"}}}

    sweep = read(tmp_path, at_rate(2.0), at_rate(4.0), ramp, at_once)

    told = " ".join(sweep.notes)
    assert len(sweep.points) == 2
    assert "its rate rises from start to end" in told
    assert "asks for all at once, without a limit of users" in told


def test_what_the_files_state_is_told_and_what_they_do_not(tmp_path):
    tests = [changed(SGLANG, users) for users in (8, 16)]
    tests[1]["server_info"]["version"] = "0.5.10"

    sweep = read(tmp_path, *tests)

    assert sweep.stated["engine_version"] == ("version", "0.5.9 and 0.5.10")
    assert sweep.notes[-1].startswith("The files state llm meta-llama/Llama-3.1-8B (")
    assert sweep.notes[-1].endswith(
        "; they do not state gpu, tp, precision, speculation."
    )


def test_failed_requests_are_told(tmp_path):
    tests = [changed(VLLM | {"failed": 7}, users) for users in (8, 16)]

    assert "14 of their requests failed and are not in the means." in (
        read(tmp_path, *tests).notes
    )


def test_all_that_is_wrong_is_said_at_once(tmp_path):
    tests = [
        VLLM | {"mean_tpot_ms": "x", "mean_ttft_ms": -1},
        changed(VLLM, 16) | {"total_input_tokens": None},
        {"a": 1},
    ]
    lines = tmp_path / "runs.jsonl"
    lines.write_text("\n".join(map(json.dumps, tests)))

    with pytest.raises(InputError) as error:
        read_sweep(lines, 1, {})

    for part in (
        ":1: mean_tpot_ms is 'x'",
        ":1: mean_ttft_ms is -1",
        ":2: total_input_tokens is missing",
        ":3: is no load test",
    ):
        assert part in str(error.value)


def test_the_same_fault_of_many_tests_is_said_once(tmp_path):
    tests = [changed(VLLM | {"mean_tpot_ms": "x"}, users) for users in (4, 8, 16)]

    with pytest.raises(InputError, match=r"0\.json:1 and 2 more: mean_tpot_ms is 'x'"):
        read(tmp_path, *tests)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "1024,256,4,12,,\n", "holds one load test to use; expected at least 2"),
        (HEAD + "1024,256,4,,,\n1,1,8,1,,\n", ":2: none of tpot, ttft and output tok"),
        (HEAD + "1024,256,4,-1,,\n", ":2: tpot_ms is -1; expected more than 0"),
        (HEAD + "1024,256,4,x,,\n", ":2: tpot_ms is 'x'; expected a number"),
        (
            HEAD + "1024,256,4,12,,\n1024,256,4,20,,\n",
            r":3: TPOT is 20 ms where .*:2 states 12 ms for the same lengths and load",
        ),
        (HEAD + f"{'9' * 30},256,4,1,,\n", ":2: isl is 1e.30; expected at most 1e.15"),
        ("isl,osl,tpot_ms\n1,1,1\n", r"neither users \(concurrency\) nor a rate"),
        ("isl,osl,rate_per_s,output_tokens_per_s\n9,9,1,9\n", "none of tpot and ttft"),
        (
            "isl,osl,rate_per_s,tpot_ms\n9,9,0.0001,9\n",
            "rate_per_s is 0.0001; expected",
        ),
        ('{"a": 1}', "is no load test of a known format; it has a; expected the file"),
        (json.dumps({**INFERENCEMAX, "osl": None}), "osl is missing"),
        (json.dumps({**INFERENCEMAX, "tp": "two"}), "tp is 'two'; expected a number"),
        (json.dumps({**INFERENCEMAX, "mean_tpot": "x"}), "mean_tpot is 'x'; expected"),
        (json.dumps({**INFERENCEMAX, "mean_tpot": True}), "mean_tpot is 'True'"),
        (
            json.dumps({**VLLM, "completed": 0}),
            "left out: .* none of its requests completed",
        ),
        (json.dumps({**VLLM, "request_rate": "trace"}), "request_rate is 'trace'"),
        (json.dumps({**GUIDELLM, "metrics": 5}), "is no load test of a known format"),
        (
            json.dumps({**GUIDELLM, "config": {}}),
            "neither users .*streams.* nor a rate",
        ),
        (json.dumps({**AIPERF, "inter_token_latency": 5}), "holds one load test"),
        (
            json.dumps({**AIPERF, "input_config": {"phases": [{}, {}]}}),
            "has 2 phases of load; expected one",
        ),
        (
            json.dumps({"metadata": {"request_start_ns": 1}}),
            "is AIPerf's single requests; give the profile_export_aiperf.json",
        ),
        (
            json.dumps({k: v for k, v in VLLM.items() if k != "completed"}),
            "as of vllm bench serve it lacks completed",
        ),
        (HEAD + "1024,1,4,12,,\n", ":2: osl is 1, which has no TPOT"),
        (HEAD + "9,9,65536,12,,\n", "concurrency is 65536; expected 1 to 8,192"),
    ],
)
def test_wrong_files_are_refused_in_one_line(text, message, tmp_path):
    path = tmp_path / "sweep.csv"
    path.write_text(text)

    with pytest.raises(InputError, match=message) as error:
        read_sweep(path, 1, {})

    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["benchmarks: 5\n", "benchmarks: [1]\n"])
def test_yaml_that_guidellm_does_not_write_is_refused(text, tmp_path):
    path = tmp_path / "b.yaml"
    path.write_text(text)

    with pytest.raises(InputError, match="is not as GuideLLM writes it"):
        read_sweep(path, 1, {})


BESIDE = {
    "values.yaml": "a: &x 1\nb: *x\n---\nc: 2\n",
    "server_metrics_export.csv": "Endpoint,Type\na,gauge,1,2\n",
    "nvidia-smi.csv": "index, index\n0, 1\n",
    "empty.json": "",
    "none.json": "[]",
}


@pytest.mark.parametrize(("name", "text"), BESIDE.items(), ids=BESIDE)
def test_whatever_lies_beside_load_tests_is_named_and_not_used(name, text, tmp_path):
    (tmp_path / name).write_text(text)

    sweep = read(tmp_path, *(changed(VLLM, users) for users in (8, 16)))

    assert len(sweep.points) == 2
    assert f"{name}: " in " ".join(n for n in sweep.notes if n.startswith("Not used"))


def test_a_load_test_that_is_cut_off_is_left_out_among_others(tmp_path):
    (tmp_path / "x.json").write_text(json.dumps(VLLM)[:100])

    sweep = read(tmp_path, *(changed(VLLM, users) for users in (8, 16)))

    assert len(sweep.points) == 2
    assert "x.json:1: not JSON" in " ".join(sweep.notes)


@pytest.mark.parametrize(
    ("failed", "why"),
    [
        (VLLM | {"completed": 0, "total_input_tokens": 0}, "none of its requests"),
        (VLLM | {"mean_tpot_ms": math.nan}, "mean_tpot_ms is NaN"),
        (SGLANG | {"completed": 0, "mean_ttft_ms": 0.0}, "none of its requests"),
        (AIPERF | {"was_cancelled": True}, "was cancelled before its end"),
        (
            INFERENCE_PERF
            | {"successes": {"count": 0, "latency": {"request_latency": None}}},
            "none of its requests",
        ),
    ],
    ids=["vllm", "nan", "sglang", "cancelled", "inference-perf"],
)
def test_a_run_that_failed_is_left_out_whatever_wrote_it(failed, why, tmp_path):
    good = AIPERF if "was_cancelled" in failed else VLLM

    sweep = read(tmp_path, changed(good, 8), changed(good, 16), failed)

    assert len(sweep.points) == 2
    said = next(note for note in sweep.notes if note.startswith("Left out"))
    assert "2.json:1: " in said
    assert why in said


def test_the_choices_that_are_proposed_together_work(tmp_path):
    tests = [
        changed(INFERENCEMAX | {"hw": "h100", "tp": 1} | system, users)
        | {"output_tput_per_gpu": 80.0 * users}
        for system in (
            {"framework": "sglang", "precision": "fp8"},
            {"framework": "sglang", "precision": "bf16"},
            {"framework": "vllm", "precision": "bf16"},
        )
        for users in (4, 8)
    ]
    path = tmp_path / "all.json"
    path.write_text(json.dumps(tests))
    target = Target("here", llm("Llama-3.1-8B"), "H100-SXM", 1)

    with pytest.raises(InputError) as error:
        read_sweep(path, 1, {}, target)

    proposed = dict(re.findall(r"--where (\w+)=(\w+)", str(error.value)))
    assert len(proposed) == 2
    assert len(read_sweep(path, 1, proposed, target).points) == 2


def test_the_engine_with_enough_loads_is_the_one_that_is_proposed(tmp_path):
    tests = [changed(SGLANG, 4), changed(VLLM, 8), changed(VLLM, 16)]

    with pytest.raises(InputError, match=r"chosen with --where backend=vllm$"):
        read(tmp_path, *tests)

    assert len(read_sweep(tmp_path, 1, {"backend": "vllm"}).points) == 2


def test_a_tenth_of_failed_requests_is_warned_of_with_the_share(tmp_path):
    tests = [changed(VLLM, 8), changed(VLLM | {"failed": 120}, 16)]

    with pytest.warns(CapplanWarning, match=r"1\.json:1: \d+ % of its requests failed"):
        read(tmp_path, *tests)


@pytest.mark.parametrize(
    ("test", "command"),
    [
        (VLLM, "run vllm bench serve with --max-concurrency 1, then 32"),
        (SGLANG, "run SGLang's bench_serving with --max-concurrency 1, then 32"),
        (AIPERF_0_13, "run AIPerf or GenAI-Perf with --concurrency 1, then 32"),
        (INFERENCE_PERF, "run inference-perf with stages of concurrency_level 1 and"),
        (LLMPERF, "run llmperf with --num-concurrent-requests 1, then 32"),
        (TRTLLM, "run trtllm-bench with --concurrency 1, then 32"),
        (INFERENCEMAX, "add such tests"),
        (
            GUIDELLM | {"config": {"strategy": {"type_": "throughput"}}},
            "all at once, without a limit .* --profile kind=concurrent,streams=1",
        ),
        (
            changed(GUIDELLM, 8)
            | {"config": {"strategy": {"type_": "throughput", "max_concurrency": 512}}},
            "a throughput test, of users at its limit: .* kind=concurrent,streams=1",
        ),
    ],
)
def test_a_load_test_alone_says_what_to_run(test, command, tmp_path):
    with pytest.raises(InputError, match=rf"holds (one|no) load test.*{command}"):
        read(tmp_path, test)


def test_decimal_commas_are_read_where_the_numbers_show_them(tmp_path):
    path = tmp_path / "means.csv"
    head = "isl;osl;concurrency;tpot_ms\n"
    path.write_text(f"{head}1024;256;4;12,5\n1024;256;8;13,250\n")

    assert [p.tpot_s for p in read_sweep(path, 1, {}).points] == [0.0125, 0.01325]

    path.write_text(f"{head}1024;256;4;12,500\n1024;256;8;13,250\n")
    with pytest.raises(InputError, match=r"tpot_ms is 12,500; .* sed -E 's/,/\./g'"):
        read_sweep(path, 1, {})


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"holds no \.json, \.jsonl, \.csv or \.yaml"):
        read_sweep(tmp_path, 1, {})


def test_a_folder_without_a_load_test_says_what_it_has(tmp_path):
    (tmp_path / "inputs.json").write_text('{"data": []}')

    with pytest.raises(
        InputError, match=r"no load test to use; not used: .*inputs\.json"
    ):
        read_sweep(tmp_path, 1, {})
