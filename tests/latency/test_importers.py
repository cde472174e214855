"""Every importer reads a sample in the tool's own format, and refuses what is wrong."""

import json
from pathlib import Path

import numpy as np
import pytest

from capplan.errors import CapplanWarning, InputError
from capplan.latency.importers import IMPORTERS, read_measurements, recognise
from capplan.latency.importers.identity import identity_in
from capplan.latency.importers.options import ImportOptions
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
        ('"bench-3", ', '"bench-3" ', "jsonl:4: is not JSON"),
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
        "gpu": "H100-SXM",
        "llm": "Llama-3.1-8B",
        "tp": "1",
        "engine": "vllm",
        "engine_version": "0.24.0",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no known format"),
        ("hello\n", "no known format"),
        ('{"avg_latency": 1, ', "is not JSON"),
        ('{"endpoint_type": "vllm", "itls": []}', "input_lens, output_lens"),
        ('{"benchmarks": 3}', "is not as guidellm writes it"),
        ('{"request_start_ns": 1}', "metadata, metrics is missing"),
        ("prompt_size,token_time\n1,2\n", "column batch_size"),
    ],
)
def test_a_broken_file_is_one_clear_line(tmp_path, text, message):
    file = tmp_path / "broken"
    file.write_text(text)

    with pytest.raises(InputError, match=message) as caught:
        read_measurements(file)

    assert "\n" not in str(caught.value)


def test_times_that_no_request_can_have_are_refused(tmp_path):
    text = (DATA / "vllm_bench_serve.json").read_text()
    file = tmp_path / "negative.json"
    file.write_text(text.replace('"input_lens": [200', '"input_lens": [-200'))

    with pytest.raises(InputError, match="-200 prompt tokens"):
        read_measurements(file)
