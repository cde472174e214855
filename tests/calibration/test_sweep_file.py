"""Files of load tests that state means per concurrency."""

import json

import pytest

from capplan.calibration.load_test import SweepPoint
from capplan.calibration.sweep_file import read_sweep
from capplan.errors import InputError

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
GENAI_PERF = {
    **AIPERF,
    "input_config": {"perf_analyzer": {"stimulus": {"concurrency": 8}}},
}


def changed(test, users):
    """Return the test at another concurrency."""
    text = json.dumps(test)
    for name in ("max_concurrency", "conc", "streams", "concurrency"):
        text = text.replace(f'"{name}": 8', f'"{name}": {users}')
    return json.loads(text)


def test_a_table_gives_its_points_in_order(tmp_path):
    path = tmp_path / "sweep.csv"
    path.write_text(HEAD + "1024,256,16,14.5,80,900\n1024,256,4,12,,\n")

    assert read_sweep(path, 1, {}) == [
        SweepPoint(1024, 256, 4, 0.012),
        SweepPoint(1024, 256, 16, 0.0145, 0.08, 900.0),
    ]


@pytest.mark.parametrize(
    "test", [VLLM, INFERENCEMAX, GUIDELLM, AIPERF, GENAI_PERF], ids=str
)
def test_each_load_generator_is_read(test, tmp_path):
    for users in (8, 16):
        (tmp_path / f"{users}.json").write_text(json.dumps(changed(test, users)))

    first, second = read_sweep(tmp_path, 2, {})

    share = 0.8 if test is INFERENCEMAX else 1.0
    requests = 80 if test is VLLM else None
    assert first._replace(requests=None) == SweepPoint(
        1000, 200, 8, 0.0125, 0.055, 640.0, share
    )
    assert first.requests == requests
    assert second.concurrency == 16


def test_a_test_of_no_more_requests_than_users_asks_all_at_once(tmp_path):
    path = tmp_path / "sweep.csv"
    rows = "1024,256,100,90,8000,900,100\n1024,256,4,12,,,40\n"
    path.write_text(HEAD.replace("\n", ",requests\n") + rows)

    few, many = read_sweep(path, 1, {})

    assert (few.requests, few.is_burst) == (40, False)
    assert (many.requests, many.is_burst) == (100, True)


def test_all_benchmarks_of_a_guidellm_file_are_read(tmp_path):
    path = tmp_path / "benchmarks.json"
    tests = [changed(GUIDELLM, users) for users in (4, 8, 16)]
    path.write_text(json.dumps({"benchmarks": tests}))

    assert [point.concurrency for point in read_sweep(path, 1, {})] == [4, 8, 16]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "1024,256,4,12,,\n", "holds one concurrency; expected at least 2"),
        (HEAD + "1024,256,4,,,\n1,1,8,1,,\n", ":2: none of tpot_ms, ttft_ms, output"),
        (HEAD + "1024,256,4,-1,,\n", ":2: tpot_ms is -1; expected more than 0"),
        (HEAD + "1024,256,4,x,,\n", ":2: tpot_ms is 'x'; expected a number"),
        (HEAD + "1024,256,4,12,,\n1024,256,4,13,,\n", "two load tests have the same"),
        (
            HEAD + f"{'9' * 30},256,4,1,,\n",
            ":2: isl is 1e.30; expected at most 1e.09",
        ),
        ("isl,osl,tpot_ms\n1,1,1\n", ":1: column concurrency is missing"),
        ('{"a": 1}', "is no load test of a known format"),
        (json.dumps({**VLLM, "max_concurrency": None}), "a closed loop needs --max-"),
        (json.dumps({**INFERENCEMAX, "osl": None}), "osl is missing"),
        (json.dumps({**INFERENCEMAX, "tp": "two"}), "is not as its tool writes it"),
        (json.dumps({**INFERENCEMAX, "mean_tpot": "x"}), "is not as its tool|expected"),
        (json.dumps({**VLLM, "completed": 0}), "is not as its tool writes it"),
        (json.dumps({**VLLM, "completed": "5"}), "is not as its tool writes it"),
        (json.dumps({**VLLM, "request_rate": 4.0}), "a closed loop needs --max-"),
        (json.dumps({**GUIDELLM, "metrics": 5}), "is not as its tool writes it"),
        (json.dumps({**GUIDELLM, "config": {}}), "names no streams"),
        (json.dumps({**AIPERF, "inter_token_latency": 5}), "is not as its tool"),
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


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"holds no \.json file"):
        read_sweep(tmp_path, 1, {})
