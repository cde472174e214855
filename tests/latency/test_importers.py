"""Every importer reads a sample in the tool's own format, and refuses what is wrong."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from capplan.errors import CapplanWarning, InputError
from capplan.latency.importers import (
    IMPORTERS,
    ImportOptions,
    read_measurements,
    recognise,
)
from capplan.latency.importers.identity import identity_in
from capplan.latency.measurements import Points
from capplan.latency.served_run import ServedRun

DATA = Path(__file__).parent / "data"

SAMPLES = {
    "vllm_bench_serve.json": "vllm-serve",
    "vllm_bench_latency.json": "vllm-latency",
    "vllm_iterations.log": "vllm-log",
    "guidellm.json": "guidellm",
    "guidellm_old.json": "guidellm",
    "aiperf.jsonl": "aiperf",
    "llmservingsim.jsonl": "llmservingsim",
    "splitwise.csv": "splitwise",
    "points.csv": "points",
}


@pytest.mark.parametrize("name", SAMPLES)
def test_each_format_is_known_by_its_content(name):
    assert recognise(DATA / name) == SAMPLES[name]


def test_every_importer_has_a_sample():
    assert set(SAMPLES.values()) == set(IMPORTERS)


def test_vllm_bench_serve_gives_requests_in_order_of_arrival():
    run = read_measurements(DATA / "vllm_bench_serve.json")

    assert isinstance(run, ServedRun)
    assert run.arrival_s.tolist() == pytest.approx([0.0, 0.5, 1.25])
    assert run.prompt_tokens.tolist() == [300, 200, 200]
    assert run.output_tokens.tolist() == [3, 4, 2]
    assert run.e2e_s.tolist() == pytest.approx([0.12, 0.083, 0.071])
    assert run.tpot_s.tolist() == pytest.approx([0.02, 0.011, 0.011])
    assert run.failed == 1


def test_of_appended_runs_the_last_is_read_or_the_one_that_is_named(tmp_path):
    """``--append-result`` puts the objects of several runs in one file."""
    run = json.loads((DATA / "vllm_bench_serve.json").read_text())
    details = ("input_lens", "output_lens", "ttfts", "itls", "start_times")
    first = run | {name: run[name][:2] for name in details}
    path = tmp_path / "runs.json"
    path.write_text(f"{json.dumps(first)}\n{json.dumps(run)}")

    last = read_measurements(path)
    named = read_measurements(path, ImportOptions(where={"index": "1"}))

    assert len(last.arrival_s) > len(named.arrival_s)
    assert len(named.arrival_s) + named.failed == 2


def test_vllm_bench_serve_without_detail_says_what_to_run(tmp_path):
    content = json.loads((DATA / "vllm_bench_serve.json").read_text())
    file = tmp_path / "summary.json"
    file.write_text(json.dumps({k: content[k] for k in ("endpoint_type", "duration")}))

    with pytest.raises(InputError, match="--save-result --save-detailed"):
        read_measurements(file)


def test_vllm_bench_latency_needs_the_shape_it_does_not_save():
    file = DATA / "vllm_bench_latency.json"

    shape = ImportOptions(batch=2, input_tokens=32, output_tokens=8)
    run = read_measurements(file, shape)

    assert isinstance(run, ServedRun)
    assert run.e2e_s.tolist() == [1.01, 1.01]
    assert np.isnan(run.ttft_s).all()
    with pytest.raises(InputError, match="--batch, --input-len and --output-len"):
        read_measurements(file)


def test_vllm_log_gives_iterations_with_context_from_kv_usage():
    with pytest.warns(CapplanWarning, match="1 of 5 iterations"):
        points = read_measurements(DATA / "vllm_iterations.log")

    assert isinstance(points, Points)
    rows = list(
        zip(
            points.phase.tolist(),
            points.batch.tolist(),
            points.new_tokens.tolist(),
            points.context.tolist(),
            points.seconds.tolist(),
            strict=True,
        )
    )
    assert rows == [
        (0, 1, 512, 0, pytest.approx(0.0145)),
        (1, 8, 8, 500, pytest.approx(0.00825)),  # 4 % of 100,000 over 8
        (2, 8, 1008, 500, pytest.approx(0.022)),  # (5,000 - 1,000) over 8
        (0, 1, 500, 2000, pytest.approx(0.0155)),  # 2,500 held, 500 of them new
    ]


def test_vllm_log_without_kv_size_asks_for_it(tmp_path):
    lines = (DATA / "vllm_iterations.log").read_text().splitlines(keepends=True)
    file = tmp_path / "tail.log"
    file.write_text("".join(lines[2:4]))

    with pytest.raises(InputError, match="--kv-tokens"):
        read_measurements(file)
    points = read_measurements(file, ImportOptions(kv_tokens=200_000))

    assert isinstance(points, Points)
    assert points.of("decode").context.tolist() == [1000]


def test_guidellm_gives_the_last_benchmark_or_the_one_named():
    run = read_measurements(DATA / "guidellm.json")

    assert isinstance(run, ServedRun)
    assert run.arrival_s.tolist() == pytest.approx([0.0, 0.5])
    assert run.prompt_tokens.tolist() == [128, 256]
    assert run.tpot_s.tolist() == pytest.approx([0.02, 0.02])
    assert run.failed == 2
    with pytest.raises(InputError, match="holds no completed request"):
        read_measurements(DATA / "guidellm.json", ImportOptions(where={"index": "1"}))
    with pytest.raises(InputError, match="benchmark 3 is not there; expected 1 to 2"):
        read_measurements(DATA / "guidellm.json", ImportOptions(where={"index": "3"}))


def test_guidellms_older_files_are_read_too():
    run = read_measurements(DATA / "guidellm_old.json")

    assert isinstance(run, ServedRun)
    assert run.ttft_s.tolist() == pytest.approx([0.06])


def test_aiperf_gives_profiled_requests_without_warm_up_and_errors():
    run = read_measurements(DATA / "aiperf.jsonl")

    assert isinstance(run, ServedRun)
    assert run.prompt_tokens.tolist() == [550]
    assert run.e2e_s.tolist() == pytest.approx([0.1])
    assert run.failed == 1


def test_llmservingsim_gives_requests_on_the_engines_clock():
    run = read_measurements(DATA / "llmservingsim.jsonl")

    assert isinstance(run, ServedRun)
    assert run.arrival_s.tolist() == pytest.approx([0.0, 0.25, 0.75])
    assert run.prompt_tokens.tolist() == [640, 96, 48]
    assert run.ttft_s.tolist() == pytest.approx([0.06, 0.05, 0.02])
    assert run.tpot_s[:2].tolist() == pytest.approx([0.02, 0.02])
    assert np.isnan(run.tpot_s[2])
    assert run.failed == 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"queued_ts": 101.25, ', "", "jsonl:4: queued_ts is missing"),
        ('"input_toks": 48', '"input_toks": "48"', "jsonl:4: input_toks is '48'"),
        ('"bench-3", ', '"bench-3" ', "jsonl:4: not JSON"),
    ],
)
def test_a_wrong_line_of_llmservingsim_is_named(tmp_path, old, new, message):
    text = (DATA / "llmservingsim.jsonl").read_text()
    assert old in text
    file = tmp_path / "requests.jsonl"
    file.write_text(text.replace(old, new))

    with pytest.raises(InputError, match=message):
        read_measurements(file)


def test_splitwise_gives_a_prefill_and_a_decode_of_each_run():
    chosen = ImportOptions(where={"hardware": "some-gpu", "tp": "8"})

    points = read_measurements(DATA / "splitwise.csv", chosen)

    assert isinstance(points, Points)
    assert points.counts() == {"prefill": 3, "decode": 3, "mixed": 0}
    assert points.of("prefill").new_tokens.tolist() == [512, 1024, 2048]
    assert points.of("decode").context.tolist() == [576, 1088, 576]
    assert points.of("decode").seconds.tolist() == pytest.approx([0.045, 0.046, 0.047])
    with pytest.raises(InputError, match="holds 2 configurations"):
        read_measurements(DATA / "splitwise.csv")


def test_a_table_says_what_it_was_measured_on():
    assert identity_in(DATA / "points.csv", {}) == {
        "gpu": "h100_sxm",
        "llm": "Llama-3.1-8B",
        "tp": "1",
        "engine": "vllm",
        "engine_version": "0.24.0",
    }


SERVE = '{"endpoint_type": "vllm", "input_lens": [9], "output_lens": [2], '
SERVE += '"ttfts": [0.1], "itls": [[0.1]], "start_times": [0.0]}'
GUIDE = '{"benchmarks": [{"requests": {"successful": [{"prompt_tokens": 9, '
GUIDE += '"output_tokens": 2, "time_to_first_token_ms": 5, "request_start_time": 0, '
GUIDE += '"request_latency": 0.1}]}}]}'
AIPERF = '{"metadata": {"request_start_ns": 0}, "metrics": {'
AIPERF += '"input_sequence_length": {"value": 9, "unit": "tokens"}, '
AIPERF += '"output_sequence_length": {"value": 2, "unit": "tokens"}, '
AIPERF += '"time_to_first_token": {"value": 5, "unit": "ms"}, '
AIPERF += '"request_latency": {"value": 9, "unit": "ms"}}}'
LOG = "vLLM KV cache size: 1,000 tokens\n"
RUNS = "prompt_size,batch_size,token_size,prompt_time,token_time\n"


@pytest.mark.parametrize("text", [SERVE, GUIDE, AIPERF])
def test_the_smallest_file_of_a_format_is_read(tmp_path, text):
    file = tmp_path / "smallest"
    file.write_text(text)

    run = read_measurements(file)

    assert (run.prompt_tokens.tolist(), run.output_tokens.tolist()) == ([9], [2])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no known format"),
        ("hello\n", "no known format"),
        ('{"avg_latency": 1, ', "not JSON"),
        ('{"avg_latency": 1}', "latencies is missing"),
        ('{"endpoint_type": "vllm", "itls": []}', "input_lens, output_lens"),
        (SERVE.replace("[9]", "[9, 9]"), "differ in length: input_lens 2, output_"),
        (SERVE.replace("[9]", '["9x"]'), "is not as vllm-serve writes it"),
        (SERVE.replace("[9]", "[Infinity]"), "has inf prompt tokens"),
        (SERVE.replace("[0.1]]", "[-0.2]]"), "latency -0.1 s; expected"),
        (SERVE.replace("[0.1]]", "[NaN]]"), "latency nan s; expected"),
        (SERVE.replace('"ttfts": [0.1]', '"ttfts": [0]'), "holds no completed request"),
        (SERVE.replace("[[0.1]]", "0.1"), "is not as vllm-serve writes it"),
        ('{"benchmarks": 3}', "requests.successful is missing"),
        ('{"benchmarks": []}', "requests.successful is missing"),
        ('{"benchmarks": [3]}', "requests.successful is missing"),
        (GUIDE.replace("successful", "failed"), "successful is missing"),
        (GUIDE.replace("request_start_time", "x"), "a request has no request_start"),
        (GUIDE.replace('token_ms": 5', 'token_ms": 500'), "0 < TTFT <= latency"),
        (GUIDE.replace('tokens": 9', 'tokens": null'), "has 0 prompt tokens"),
        ('{"benchmarks": ' + "[" * 100_000, "nested too deeply"),
        ('{"request_start_ns": 1}', ":1: metric output_sequence_length is missing"),
        ('[{"request_start_ns": 1}]', "no known format"),
        ('{"input_config": 1, "time_to_first_token": 2}', "is AIPerf's summary"),
        (AIPERF.replace('"ms"', '"h"'), "1: metric time_to_first_token is missing"),
        (AIPERF.replace("input_seq", "x"), "1: metric input_sequence_length"),
        (AIPERF + "\n{}", ":2: metric output_sequence_length is missing"),
        (AIPERF + "\n{", "2: not JSON"),
        (LOG, "start vLLM with --enable-logging-iteration-details"),
        ("prompt_size,token_time\n1,2\n", "column batch_size"),
        (RUNS, "no row"),
        (RUNS + "512,1,128,90\n", "2: token_time is empty"),
        (RUNS + "512,one,128,90,45\n", "2: batch_size is 'one'; expected a number"),
        (RUNS + "512,1,128,0,45\n", "2: sizes and times must be > 0"),
        (RUNS + "512,1,128,nan,45\n", "2: prompt_time is 'nan'"),
        (RUNS + f'512,1,128,90,"{"4" * 1_100_000}"\n', "field larger than"),
        (RUNS + f"512,1,128,90,{'x' * 99}\n", f"2: token_time is '{'x' * 40}'; "),
    ],
)
def test_a_broken_file_is_one_clear_line(tmp_path, text, message):
    file = tmp_path / "broken"
    file.write_text(text)

    with pytest.raises(InputError, match=message) as caught:
        read_measurements(file)

    assert str(caught.value).startswith(f"{file}:")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("importer", IMPORTERS)
@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "a,b\n1,2\n", "{}\n{}\n"])
def test_a_named_importer_refuses_another_format_in_one_line(tmp_path, importer, text):
    file = tmp_path / "other"
    file.write_text(text)

    with pytest.raises(InputError) as caught:
        read_measurements(file, importer=importer)

    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)


def test_an_unknown_importer_names_those_there_are():
    with pytest.raises(InputError, match="'excel' is unknown; expected vllm-serve, "):
        read_measurements(DATA / "points.csv", importer="excel")


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"\x1f\x8b broken"])
@pytest.mark.parametrize("name", ["file.csv", "file.csv.gz"])
def test_bytes_that_are_no_text_are_one_clear_line(tmp_path, content, name):
    file = tmp_path / name
    file.write_bytes(content)

    with pytest.raises(InputError, match=r"no known format|gzip data are damaged"):
        read_measurements(file)


def test_gzip_of_any_format_is_read_alike(tmp_path):
    for name in ("vllm_bench_serve.json", "llmservingsim.jsonl", "splitwise.csv"):
        zipped = tmp_path / f"{name}.gz"
        zipped.write_bytes(gzip.compress((DATA / name).read_bytes()))
        where = {"hardware": "some-gpu"} if "splitwise" in name else {}
        options = ImportOptions(where=where)

        plain, read = (read_measurements(f, options) for f in (DATA / name, zipped))

        for column, other in zip(plain[:4], read[:4], strict=True):
            assert column.tolist() == other.tolist()


def test_a_prefill_faster_than_half_of_a_smaller_one_is_left_out(tmp_path):
    file = tmp_path / "perf.csv"
    rows = "512,1,128,100,45\n512,2,128,49,46\n512,4,128,51,47\n"
    file.write_text(RUNS + rows)

    # 49 ms for 1,024 tokens is less than half of 100 ms for 512; 51 ms is not.
    with pytest.warns(CapplanWarning, match=r"2 prompts, 1024 tokens is less than"):
        points = read_measurements(file)

    assert points.of("prefill").new_tokens.tolist() == [512, 2048]
    assert len(points.of("decode").seconds) == 3


ITERATION = (
    "Iteration(7): {} context requests, {} context tokens, {} generation requests, "
    "{} generation tokens, iteration elapsed time: {} ms{}, GPU KV cache usage: {}%\n"
)


@pytest.mark.parametrize(
    "left_out",
    [
        (0, 0, 0, 0, 9.0, "", 1.0),  # empty
        (0, 0, 8, 16, 9.0, "", 1.0),  # speculative: two tokens per request
        (0, 0, 8, 8, 9.0, " (dummy)", 1.0),
        (0, 0, 8, 8, 0.0, "", 1.0),
    ],
)
def test_iterations_that_say_nothing_of_time_are_left_out(tmp_path, left_out):
    file = tmp_path / "engine.log"
    usual = (0, 0, 8, 8, 9.0, "", 80.0)
    file.write_text(LOG + ITERATION.format(*left_out) + ITERATION.format(*usual))

    with pytest.warns(CapplanWarning, match="1 of 2 iterations"):
        points = read_measurements(file)

    assert points.context.tolist() == [100]  # 80 % of 1,000 tokens over 8
    assert points.seconds.tolist() == pytest.approx([9e-3])


def test_a_log_without_a_usable_iteration_is_refused(tmp_path):
    file = tmp_path / "engine.log"
    file.write_text(LOG + ITERATION.format(0, 0, 8, 8, 9.0, " (dummy)", 1.0))

    with (
        pytest.warns(CapplanWarning, match="1 of 1"),
        pytest.raises(InputError, match="no iteration is left to fit"),
    ):
        read_measurements(file)


@pytest.mark.parametrize("latencies", ["[]", "[0.0]", "[-1.0]", "[NaN]", '["slow"]'])
def test_batch_latencies_must_be_times(tmp_path, latencies):
    file = tmp_path / "latency.json"
    file.write_text(f'{{"avg_latency": 1, "latencies": {latencies}}}')

    with pytest.raises(InputError):
        read_measurements(file, ImportOptions(None, 1, 8, 8))


def test_identity_is_read_from_the_chosen_row_under_any_name_of_its_column(tmp_path):
    file = tmp_path / "table.csv"
    file.write_text("hardware,model,tensor_parallel\nh100_sxm,A,1\nl4,B,2\n")

    assert identity_in(file, {}) == {"gpu": "h100_sxm", "llm": "A", "tp": "1"}
    assert identity_in(file, {"model": "B"}) == {"gpu": "l4", "llm": "B", "tp": "2"}
    assert identity_in(file, {"model": "C"}) == {}
    assert identity_in(DATA / "guidellm.json", {}) == {}


def test_times_that_no_request_can_have_are_refused(tmp_path):
    text = (DATA / "vllm_bench_serve.json").read_text()
    file = tmp_path / "negative.json"
    file.write_text(text.replace('"input_lens": [200', '"input_lens": [-200'))

    with pytest.raises(InputError, match="-200 prompt tokens"):
        read_measurements(file)
