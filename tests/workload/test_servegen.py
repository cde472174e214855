"""A folder of ServeGen's clients is drawn at their rates with their lengths."""

import json
import re

import numpy as np
import pytest

from capplan.errors import InputError
from capplan.workload.catalog import open_workload

SHORT = {"input_tokens": "{100: 0.5, 200: 0.5}", "output_tokens": "{10: 0.5, 20: 0.5}"}
LONG = {"input_tokens": "{4000: 1.0}", "output_tokens": "{0: 0.25, 30: 0.75}"}
WINDOWS = "0,0.5,1.0,Gamma,0.25,8.0\n600,0,0,,0,0\n1200,0.1,2.0,Weibull,0.5,5.0\n"


@pytest.fixture
def folder(tmp_path):
    def write(**clients):
        for name, (windows, lengths) in clients.items():
            chunk = tmp_path / f"chunk-{name[1:]}"
            chunk.with_name(f"{chunk.name}-trace.csv").write_text(windows)
            chunk.with_name(f"{chunk.name}-dataset.json").write_text(
                json.dumps(lengths)
            )
        return tmp_path

    return write


def test_each_window_has_the_requests_of_its_rate(folder):
    path = folder(
        c0=(WINDOWS, {"0": SHORT, "1200": LONG}),
        c12=("0,0,0,,0,0\n600,0.2,1.0,Gamma,1.0,5.0\n1200,0,0,,0,0\n", {"0": LONG}),
    )

    trace = open_workload(path)

    windows = np.bincount((trace.arrival_s // 600).astype(int))
    assert windows.tolist() == [300, 120, 60]
    assert set(trace.prompt_tokens[trace.arrival_s < 600]) == {100, 200}
    assert set(trace.prompt_tokens[trace.arrival_s >= 600]) == {4000}
    assert set(trace.output_tokens[trace.arrival_s >= 600]) == {1, 30}
    assert "2 clients" in trace.notes[0]


def test_a_prompt_and_its_answer_are_the_same_quantile_of_theirs(folder):
    trace = open_workload(folder(c0=(WINDOWS, {"0": SHORT})))

    np.testing.assert_array_equal(trace.prompt_tokens, 10 * trace.output_tokens)


def test_gaps_of_a_gamma_window_vary_as_its_shape_says(folder):
    windows = "0,50,2.0,Gamma,0.25,0.08\n600,0,0,,0,0\n"

    trace = open_workload(folder(c0=(windows, {"0": SHORT})))

    gaps_s = np.diff(trace.arrival_s)
    assert 1.9 < gaps_s.std() / gaps_s.mean() < 2.1  # 1 / sqrt(0.25)


def test_a_span_takes_its_part_of_the_windows(folder):
    path = folder(c0=(WINDOWS, {"0": SHORT, "1200": LONG}))

    trace = open_workload(f"servegen:{path},start=300,end=1500")

    assert (trace.arrival_s < 300).sum() == 150
    assert ((trace.arrival_s >= 900) & (trace.arrival_s < 1200)).sum() == 30
    assert len(trace) == 180


def test_windows_without_lengths_take_those_before(folder):
    path = folder(c0=(WINDOWS, {"0": LONG, "1200": SHORT | {"input_tokens": "{}"}}))

    assert set(open_workload(path).prompt_tokens) == {4000}


@pytest.mark.parametrize(
    ("windows", "lengths", "said"),
    [
        ("0,0.5,1,Pareto,1,1\n", {"0": SHORT}, "not the windows of a client"),
        ("0,0.5,1\n", {"0": SHORT}, "not the windows of a client"),
        ("0,nan,1,Gamma,1,1\n", {"0": SHORT}, "not the windows of a client"),
        ("0,0.5,1,Gamma,-1,1\n", {"0": SHORT}, "not the windows of a client"),
        ("0,0.5,1,Gamma,0,1\n", {"0": SHORT}, "not the windows of a client"),
        ("0,0,0,,0,0\n", {"0": SHORT}, "0 requests; expected 1 to"),
        ("0,1e6,1,Gamma,1,1\n", {"0": SHORT}, "600,000,000 requests; expected 1 to"),
        (
            "0,0.5,1,Gamma,1,1\n",
            {"600": SHORT},
            "chunk-0-dataset.json: lacks lengths of a window",
        ),
        ("0,0.5,1,Gamma,1,1\n", [], "expected input_tokens and output_tokens such as"),
        (
            "0,0.5,1,Gamma,1,1\n",
            {"0": {"text_tokens": "{5: 1.0}", "output_tokens": "{5: 1.0}"}},
            "no images",
        ),
        (
            "0,0.5,1,Gamma,1,1\n",
            {"0": SHORT | {"input_tokens": "{5: -1.0}"}},
            "expected input_tokens and output_tokens such as",
        ),
        (
            "0,0.5,1,Gamma,1,1\n",
            {"0": SHORT | {"input_tokens": "__import__('os')"}},
            "expected input_tokens and output_tokens such as",
        ),
    ],
)
def test_what_is_no_client_is_refused(folder, windows, lengths, said):
    path = folder(c0=(windows, lengths))

    with pytest.raises(InputError, match=re.escape(said)):
        open_workload(path)


def test_a_folder_without_clients_is_refused(tmp_path):
    with pytest.raises(InputError, match="expected ServeGen's clients, as in"):
        open_workload(f"servegen:{tmp_path}")
