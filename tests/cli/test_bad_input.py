"""Bad input is one clear line and exit code 2, before memory or minutes are spent."""

import gzip
import json
import warnings
from itertools import pairwise

import numpy as np
import pytest

from capplan.bounds.certificate import PLAN_SCHEMA
from capplan.cli.main import exit_code
from capplan.errors import InputError
from capplan.input_file import has_more_than, parse_yaml
from capplan.planning.load.traffic import is_streamed
from capplan.planning.settings.plan import SimulateSettings
from capplan.shipped import shipped
from capplan.workload.arrivals import with_arrivals
from capplan.workload.readers import read_trace, requests, table
from capplan.workload.trace import Trace

SCENARIO = "workload: sharegpt\nrate: 20\nllm: Llama-3.1-8B\nslo: ttft=1s\n"
SNAPSHOT = {
    "schema": "capplan.snapshot/1",
    "replica": {
        "kv_capacity_tokens": 10_000,
        "decode_s": [0, 0.01, 0.011],
        "decode_context_s": [0, 1e-7, 1e-7],
    },
    "requests": [
        {
            "prompt_tokens": 10,
            "predicted_output_tokens": 5,
            "ttft_slo_s": 1,
            "tpot_slo_s": 0.1,
        }
    ],
}


@pytest.fixture
def refused(capsys):
    """Run a command; return the one line of its refusal."""

    def run(*arguments):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = exit_code([str(argument) for argument in arguments])
        lines = [
            line
            for line in capsys.readouterr().err.splitlines()
            if line.startswith("capplan: error:")
        ]
        assert code == 2
        assert len(lines) == 1
        return lines[0]

    return run


@pytest.fixture
def file(tmp_path):
    def write(text, name="file"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("price: 5", ":5: price: '5' is not a price; expected GPU=USD_PER_H"),
        ("columns: 5", ":5: columns: '5' names no column; expected NAME=COLUMN"),
        ("null: 5", ":5: null is not a setting"),
        ("true: 5", ":5: true is not a setting"),
        ("5: 5", ":5: 5 is not a setting"),
        ("? [a, b]\n: 5", ":5: "),
        ("price: {H100: 1, H100: 2}", ":5: H100 is already set in line 5"),
        ("gpu: &a [H100, *a]", ":5: the alias *a is not read"),
        ("as_of: 2026-13-45", "not YAML: month must be in 1..12"),
        ("rate: 1e9", ":5: rate is already set in line 2"),
    ],
)
def test_price_5_and_null_5_and_their_kin_in_a_scenario(line, message, file, refused):
    path = file(SCENARIO + line + "\n", "s.yaml")

    text = refused("plan", path)

    assert f"{path}" in text
    assert message in text


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("rate: 1e9", "rate is '1e9'; expected less than or equal to 100000"),
        ("max_num_seqs: 1000000000", "max_num_seqs is 1000000000; expected less than"),
    ],
)
def test_rate_and_seats_of_a_billion_are_refused_in_the_settings(
    setting, message, file, refused
):
    name = setting.partition(":")[0]
    text = "".join(line for line in SCENARIO.splitlines(True) if name not in line)

    assert message in refused("plan", file(f"{text}{setting}\n", "s.yaml"))


def test_a_flat_sweep_is_refused(file, refused, tmp_path):
    rows = "".join(f"100,1000,{users},30\n" for users in (1, 64, 256))
    path = file("isl,osl,concurrency,ttft_ms\n" + rows, "flat.csv")

    text = refused(
        "fit", "--from", path, "--onto", "H100-SXM/Llama-3.1-8B/1", "-o", tmp_path / "o"
    )

    assert f"{path}: no time of an engine comes near these load tests" in text


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("isl,osl,concurrency,tpot_ms\n1,2,3,4\n", "--onto GPU/LLM/tpN"),
        (
            "gpu,model,tp,isl,osl,concurrency,tpot_ms\nh100_sxm,Q,2,1,2,3,4\n",
            "--onto H100-SXM/Q/tp2",
        ),
        ('{"isl": 1, "osl": 2, "conc": 3, "mean_tpot": 4}', "--onto GPU/LLM/tpN"),
    ],
)
def test_fit_of_a_sweep_without_onto_offers_it(text, named, file, refused, tmp_path):
    assert named in refused("fit", "--from", file(text), "-o", tmp_path / "o.yaml")


@pytest.mark.parametrize("stream", ["--stream", "--no-stream"])
def test_arrivals_of_1e300_seconds_are_refused(stream, file, refused):
    path = file("arrival_s,prompt_tokens,output_tokens\n0,5,5\n1e300,5,5\n")
    fleet = ("--latency-ms", "9,0,0,0,0", "--kv-blocks", "1000")

    text = refused("simulate", "--trace", path, stream, *fleet)

    assert f"{path}:3: arrival_s is 1e300; expected seconds" in text


@pytest.mark.parametrize("where", ["batch_s: [", "attention_s: ", "request_s: "])
def test_a_profile_of_1e300_is_refused(where, file, refused):
    sound = shipped("profiles") / "H100-SXM/Llama-3.1-8B/tp1.yaml"
    text = sound.read_text()
    assert where in text
    start = text.index(where) + len(where)
    end = min(text.index(mark, start) for mark in ",\n" if mark in text[start:])
    path = file(f"{text[:start]}1e300{text[end:]}", "tp1.yaml")
    asked = ("--workload", "sharegpt", "--rate", 20, "--llm", "Llama-3.1-8B")

    message = refused("plan", "--profiles", path, *asked, "--slo", "ttft=1s")

    assert f"{path}: " in message
    assert "1e+300; expected at most" in message or "less than or equal" in message


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("replica", "kv_capacity_tokens"), 10**30),
        (("replica", "kv_capacity_tokens"), float("inf")),
        (("replica", "block_tokens"), 10**30),
        (("replica", "decode_s", 1), 10**400),
        (("requests", 0, "prompt_tokens"), 10**30),
        (("requests", 0, "replica"), 10**30),
        (("max_replicas",), 10**30),
        (("gamma",), 10**30),
    ],
)
def test_a_snapshot_of_1e30_tokens_is_refused(where, value, file, refused):
    content = json.loads(json.dumps(SNAPSHOT))
    inner = content
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = value
    path = file(json.dumps(content), "s.json")

    assert f"{path}: " in refused("place", path)


def test_a_plan_of_an_older_schema_is_refused_with_the_one_that_is_read(file, refused):
    path = file(json.dumps({"schema": "capplan.plan/1", "request": {}}))

    told = refused("verify", path)
    assert f"'capplan.plan/1'; this release reads '{PLAN_SCHEMA}': plan again" in told


def test_a_trace_of_5_in_a_plan_is_refused(file, refused):
    path = file(json.dumps({"schema": PLAN_SCHEMA, "settings": {"trace": 5}}))

    assert "settings.trace is 5; expected a text" in refused("verify", path)


def test_a_small_gz_of_many_rows_is_streamed_by_its_decompressed_size(
    file, monkeypatch
):
    monkeypatch.setattr("capplan.planning.load.traffic.STREAMED_BYTES", 2**20)
    text = b"arrival_s,prompt_tokens,output_tokens\n" + b"0,5,5\n" * 200_000
    path = file(gzip.compress(text))

    assert path.stat().st_size < 2**14
    assert has_more_than(path, 2**20)
    assert not has_more_than(path, len(text))
    assert is_streamed(SimulateSettings(trace=path))


def test_more_rows_than_are_held_at_once_are_refused(file, monkeypatch):
    monkeypatch.setattr(table, "MOST_REQUESTS", 1000)
    monkeypatch.setattr(requests, "_MOST_CLEAN_BYTES", 1000)
    head = b"arrival_s,prompt_tokens,output_tokens\n"
    most = file(gzip.compress(head + b"0,5,5\n" * 1000), "most")
    more = file(gzip.compress(head + b"0,5,5\n" * 1002), "more")

    assert len(read_trace(most)) == 1000
    with pytest.raises(InputError, match=r"more than 1,000 requests, .* --stream"):
        read_trace(more)


def test_a_line_without_end_is_refused(file, monkeypatch):
    monkeypatch.setattr(table, "_MAX_LINE_BYTES", 2**20)
    text = b"prompt_tokens,output_tokens\n1,1\n1," + b"1" * 2**22

    with pytest.raises(InputError, match=":3: a line of more than 1,048,576 bytes"):
        read_trace(file(gzip.compress(text)))


def test_json_of_more_than_is_held_at_once_is_refused(file, monkeypatch):
    monkeypatch.setattr("capplan.workload.readers.hashed_blocks._MOST_BYTES", 2**20)
    row = b'{"timestamp": 1, "input_length": 5, "output_length": 5, "hash_ids": []}\n'

    with pytest.raises(InputError, match="more than 1 MiB of JSON"):
        read_trace(file(gzip.compress(row * 20_000)))


def test_a_text_without_end_in_sharegpt_is_refused(file, monkeypatch):
    monkeypatch.setattr("capplan.json_array._MOST_TEXT_BYTES", 2**20)
    text = b'[{"conversations": [{"from": "human", "value": "' + b"a" * 2**22

    with pytest.raises(InputError, match="it ends in the middle"):
        read_trace(file(gzip.compress(text)))


@pytest.mark.parametrize(
    "process",
    [
        "gamma:cv=1e9",
        "gamma:cv=1e-9",
        "cox:sigma=1,tau_s=1e-12",
        "cox:sigma=1,tau_s=1e300",
        "cox:sigma=1000,tau_s=10",
    ],
)
def test_an_arrival_process_that_never_ends_is_refused(process):
    with pytest.raises(InputError, match=r"arrivals (gamma|cox): .* expected"):
        with_arrivals(Trace([1] * 9, [1] * 9), 20, process, np.random.default_rng(0))


def test_yaml_of_nested_aliases_is_refused_before_it_is_expanded():
    text = "a: &a [x, x]\n"
    for one, other in pairwise("abcdefghijklmnopqrstuvwxyz"):
        text += f"{other}: &{other} [*{one}, *{one}]\n"

    with pytest.raises(InputError, match=r"s.yaml:2: the alias \*a is not read"):
        parse_yaml("s.yaml", text)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--tp 1 --cold-start 9h", "a cold start takes 9 h, and the requests arrive"),
        (
            "--tp 1 --policies hpa:min=5,max=2",
            "min is 5 and max 2; expected min <= max",
        ),
        ("--tp 1 --policies hpx", "autoscaler 'hpx' is not known; did you mean hpa"),
        ("--tp 1 --outage 99@peak:2s", "99 replicas die of 1; expected no more"),
        ("--tp 1 --outage 1@9h:2s", "begins after the requests"),
        ("--tp 1 --attain-in 10ms", "that a request takes alone"),
        ("--cold-start 1s", "name one with --gpu and --tp"),
        (
            "--tp 1 --outage 1@5s:2s --scheduler orca",
            "--outage with scheduler orca is not",
        ),
        ("--tp 1 --users 5", "--users"),
    ],
)
def test_what_cannot_be_autoscaled_is_refused(flags, message, file, refused):
    rows = "".join(f"{k},50,20\n" for k in range(40))
    path = file("arrival_s,prompt_tokens,output_tokens\n" + rows)
    served = (
        "--llm",
        "Llama-3.1-8B",
        "--gpu",
        "H100-SXM",
        "--slo",
        "ttft=1s,tpot=30ms",
    )
    cold = () if "--cold-start" in flags else ("--cold-start", "2s")

    text = refused("autoscale", "--trace", path, *served, *cold, *flags.split())

    assert message in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema": "capplan.autoscale/0"}', "this release reads"),
        ('{"schema": "capplan.autoscale/1", "settings": 5}', "run capplan autoscale"),
    ],
)
def test_a_file_of_autoscalers_of_another_form_is_refused(text, message, file, refused):
    assert message in refused("verify", file(text, "autoscale.json"))


@pytest.mark.parametrize(
    "given",
    [
        ("--gpu", "H200"),
        ("--profiles", "no-such-folder"),
        ("--data-parallel-size", 2),
        ("--enable-expert-parallel",),
        ("--gpu-memory-utilization", 0.5),
        ("--price", "H100-SXM=1.23"),
        ("--provider", "aws"),
    ],
    ids=str,
)
def test_what_coefficients_without_an_llm_do_not_read_is_refused(given, refused):
    asked = ("--workload", "sharegpt", "--rate", 1, "--slo", "ttft=1s")
    fleet = ("--latency-ms", "9,0,0,0,0", "--kv-blocks", 1000)

    text = refused("simulate", *asked, *fleet, *given)

    assert f"{given[0]} is of an LLM on a GPU; give --llm, or leave it out" in text


def test_an_empty_workload_is_refused(refused):
    fleet = ("--latency-ms", "9,0,0,0,0", "--kv-blocks", 1000)

    text = refused("simulate", "--workload", "", "--rate", 1, *fleet)

    assert "no such file, and no workload of that name" in text
