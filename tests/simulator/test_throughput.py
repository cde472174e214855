"""Output tokens until a moment: to the last arrival, and to the last token."""

import numpy as np
import pytest
from cases import cases
from hypothesis import given, settings
from worked import THREE, served

import capplan

GIVEN = {
    "latency_ms": "10,1,0,1,0",
    "kv_blocks": 400,
    "async_scheduling": False,
    "tp": 1,
}


def test_tokens_come_evenly_from_the_first_of_a_request_to_its_last():
    # A has tokens at 14, 28 and 42 ms, B at 42 and 55, C at 55, 66, 77 and 88.
    times = served("fastgen", THREE, max_num_batched_tokens=4, max_num_seqs=4)

    by_ms = {
        ms: times.output_tokens_by(ms / 1e3) for ms in (13, 14.001, 28, 42.001, 56)
    }

    assert by_ms[13] == 0
    assert by_ms[14.001] == pytest.approx(1, abs=1e-3)
    assert by_ms[28] == pytest.approx(2)
    assert by_ms[42.001] == pytest.approx(4, abs=1e-3)
    assert by_ms[56] == pytest.approx(3 + 2 + 1 + 1 / 11)
    assert times.output_tokens_by(0.0881) == 3 + 2 + 4


@settings(deadline=None)
@given(case=cases())
def test_tokens_by_a_moment_rise_to_all_of_them(case):
    times = case.simulated("jsq").table
    moments_s = np.linspace(times.arrival_s[0], times.finish_s.max(), 20)

    tokens = [times.output_tokens_by(moment_s) for moment_s in moments_s]

    assert tokens == sorted(tokens)
    assert tokens[-1] == times.output_tokens.sum()
    finished = times.finish_s <= moments_s[10]
    assert tokens[10] >= times.output_tokens[finished].sum()


def simulated(tmp_path, rows):
    path = tmp_path / "trace.csv"
    lines = [",".join(map(str, row)) for row in rows]
    path.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *lines]))
    return capplan.simulate(trace=str(path), replicas=1, **GIVEN)


def test_throughput_stands_by_the_span_of_arrivals_and_to_the_last_token(tmp_path):
    # 10 + 4 ms: the first token; 99 more in 11 ms each. The second arrives at 0.3 s.
    run = simulated(tmp_path, [(0, 4, 100), (0.3, 4, 1)])

    within_s, tokens = (
        0.3,
        1 + (0.3 - 0.014) / (run.simulation.table.finish_s[0] - 0.014) * 99,
    )
    assert run.span_output_tokens_per_s == pytest.approx(tokens / within_s)
    assert run.output_tokens_per_s == pytest.approx(
        101 / run.simulation.totals.makespan_s
    )


def test_requests_at_one_moment_have_no_throughput_in_their_span(tmp_path):
    assert simulated(tmp_path, [(0, 4, 100)]).span_output_tokens_per_s is None


def test_a_backlog_that_empties_later_counts_only_to_the_last_token(tmp_path):
    run = simulated(tmp_path, [(0.01 * k, 40, 400) for k in range(40)])

    assert run.span_output_tokens_per_s < 0.8 * run.output_tokens_per_s
