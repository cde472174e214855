"""Times of requests: one row each, whole or appended as they finish."""

import csv

import numpy as np
import pytest

from capplan.errors import InputError
from capplan.planning.settings.plan import SimulateSettings
from capplan.report.to_files import simulate
from capplan.report.writers.requests import (
    REQUEST_COLUMNS,
    appended_requests,
    appending,
    write_requests,
)
from capplan.simulator.records import RESULT
from capplan.simulator.results.request_times import RequestTimes


@pytest.fixture
def finished():
    """Request 7 of three output tokens, and request 4 of one."""
    rows = np.zeros(2, RESULT)
    rows["row"] = [7, 4]
    rows["prompt_tokens"] = [100, 50]
    rows["output_tokens"] = [3, 1]
    rows["replica"] = [1, 0]
    rows["arrival_s"] = [1.0, 2.0]
    rows["scheduled_s"] = [1.25, 2.0]
    rows["first_token_s"] = [1.5, 2.5]
    rows["finish_s"] = [2.5, 2.5]
    rows["longest_gap_s"] = [0.5, 0.0]
    return rows


def read(path):
    with path.open() as stream:
        return list(csv.DictReader(stream))


def test_latencies_of_a_request_are_differences_of_its_times(finished, tmp_path):
    path = write_requests(RequestTimes.of(finished), tmp_path / "r.csv")

    first = read(path)[0]
    assert list(first) == list(REQUEST_COLUMNS)
    # TTFT 1.5 - 1, TPOT (2.5 - 1.5) / 2, end to end 2.5 - 1, wait 1.25 - 1.
    assert [first[name] for name in ("ttft_s", "tpot_s", "e2e_s", "wait_s")] == [
        *("0.5", "0.5", "1.5", "0.25")
    ]


def test_one_token_has_no_tpot_and_an_empty_cell(finished, tmp_path):
    path = write_requests(RequestTimes.of(finished), tmp_path / "r.csv")

    assert read(path)[1]["tpot_s"] == ""


def test_requests_are_appended_with_their_row_as_they_finish(finished, tmp_path):
    path = tmp_path / "r.csv"

    with appended_requests(path) as append:
        append(finished[:1])
        append(finished[1:])

    rows = read(path)
    assert [row.pop("row") for row in rows] == ["7", "4"]
    assert rows == read(write_requests(RequestTimes.of(finished), tmp_path / "w.csv"))


def test_a_run_that_fails_leaves_no_file(finished, tmp_path):
    def fail():
        with appended_requests(tmp_path / "r.csv") as append:
            append(finished)
            raise InputError("no")

    with pytest.raises(InputError):
        fail()

    assert list(tmp_path.iterdir()) == []


def test_nothing_is_opened_unless_the_run_is_streamed(tmp_path):
    settings = SimulateSettings(per_request=tmp_path / "r.csv", stream=False)

    with appending(settings) as append:
        assert append is None

    assert list(tmp_path.iterdir()) == []


def test_a_streamed_run_writes_the_rows_of_one_that_is_not(small_settings, tmp_path):
    whole, streamed = tmp_path / "whole.csv", tmp_path / "streamed.csv"

    simulate(small_settings.model_copy(update={"per_request": str(whole)}))
    simulate(
        small_settings.model_copy(
            update={"per_request": str(streamed), "stream": True, "slo": ()}
        )
    )

    rows = sorted(read(streamed), key=lambda row: int(row["row"]))
    assert [int(row.pop("row")) for row in rows] == list(range(200))
    assert rows == read(whole)
