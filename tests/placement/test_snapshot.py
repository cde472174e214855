"""Snapshots read back as they were written, and what is wrong with them by line."""

import json

import numpy as np
import pytest

from capplan.errors import InputError
from capplan.placement.problem import COLUMNS
from capplan.placement.replica import affine_replica
from capplan.placement.snapshot import read_snapshot, write_snapshot
from capplan.workload.slo import RequestSlo

TEMPLATE = affine_replica(500, fixed_s=0.01, request_s=0, context_s=1e-5, max_batch=8)
SLO = RequestSlo(ttft_s=1.0, tpot_s=0.05)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("suffix", ["json", "csv"])
def test_a_snapshot_reads_back_as_it_was_written(seed, suffix, tmp_path, small_problem):
    problem = small_problem(seed)
    file = tmp_path / f"snapshot.{suffix}"
    write_snapshot(problem, file)

    knobs = dict(
        gamma=problem.gamma, theta=problem.theta, replica_count=problem.replica_count
    )
    template = None if suffix == "json" else problem.template
    again = read_snapshot(file, template, **knobs)

    assert again.names == problem.names
    for name in COLUMNS:
        assert (getattr(again, name) == getattr(problem, name)).all(), name
    assert (again.template.decode_s == problem.template.decode_s).all()
    assert again.template.kv_capacity_tokens == problem.template.kv_capacity_tokens


def test_columns_left_out_mean_new_requests_under_the_given_slo(tmp_path):
    file = tmp_path / "new.csv"
    file.write_text("prompt_tokens,predicted_output_tokens\n10,20\n30,40\n")

    problem = read_snapshot(file, TEMPLATE, SLO)

    assert problem.generated_tokens.tolist() == [0, 0]
    assert problem.replica.tolist() == [-1, -1]
    assert problem.tpot_slo_s.tolist() == [0.05, 0.05]


HEAD = "prompt_tokens,predicted_output_tokens\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "10,20\n-3,4\n", "s.csv:3: prompt_tokens is -3; expected >= 1"),
        (HEAD + "10,x\n", "s.csv:2: predicted_output_tokens is 'x': .* valid integer"),
        (HEAD + "10.5,4\n", "s.csv:2: prompt_tokens is '10.5': .* valid integer"),
        (HEAD + "10\n", "s.csv:2: key predicted_output_tokens is missing"),
        (HEAD + "1,2,3\n", "s.csv:2: 3 fields; expected 2 as in the header"),
        ("prompt,b\n1,2\n", "s.csv:1: column 'prompt' is not known"),
        ("name," + HEAD + "a,1,2\na,1,2\n", "s.csv:3: the name 'a' is also that of"),
        (HEAD, "s.csv: no rows under the header"),
        (HEAD + "9999,2\n", "request 0: is larger than any replica"),
    ],
)
def test_a_wrong_line_is_named(text, message, tmp_path):
    file = tmp_path / "s.csv"
    file.write_text(text)

    with pytest.raises(InputError, match=message):
        read_snapshot(file, TEMPLATE, SLO)


def snapshot():
    return {
        "schema": "capplan.snapshot/1",
        "replica": {
            "kv_capacity_tokens": 500,
            "fixed_s": 0.01,
            "request_s": 0,
            "context_s": 1e-5,
            "max_batch": 8,
        },
        "slo": {"ttft_s": 1, "tpot_s": 0.05},
        "requests": [{"prompt_tokens": 10, "predicted_output_tokens": 20}],
    }


def test_a_replica_may_be_given_by_its_coefficients(tmp_path):
    file = tmp_path / "s.json"
    file.write_text(json.dumps(snapshot()))

    problem = read_snapshot(file)

    assert problem.template.decode_s == pytest.approx(np.full(9, 0.01))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(schema="other"), "schema is 'other'; expected 'capplan.snapshot/1'"),
        (dict(gama=1), "unknown key gama"),
        (dict(gamma=2), "gamma is 2: input should be less than or equal to 1"),
        (dict(gamma="x"), "gamma is 'x': input should be a valid number"),
        (dict(gamma=True), "gamma is True: expected a number"),
        (dict(requests=[1]), r"requests.0 is 1: input should be a valid dict"),
        (dict(requests=3), "requests is 3: input should be a valid list"),
        (dict(replica={}), "replica: key kv_capacity_tokens is missing"),
        (
            dict(replica=snapshot()["replica"] | dict(kv=1)),
            "replica: unknown key kv",
        ),
        (dict(slo=dict(tpot=1)), "slo.tpot.* input should be 'ttft_s' or 'tpot_s'"),
    ],
)
def test_a_wrong_field_is_named(change, message, tmp_path):
    file = tmp_path / "s.json"
    file.write_text(json.dumps(snapshot() | change))

    with pytest.raises(InputError, match=message):
        read_snapshot(file)


def test_a_file_that_is_not_json_names_the_line(tmp_path):
    file = tmp_path / "s.json"
    file.write_text("{\n oops")

    with pytest.raises(InputError, match=r"s.json:2: not JSON"):
        read_snapshot(file)


def test_a_csv_without_replica_says_what_to_give(tmp_path):
    file = tmp_path / "s.csv"
    file.write_text(HEAD + "1,2\n")

    with pytest.raises(InputError, match="no replica; give --llm"):
        read_snapshot(file, None, SLO)
