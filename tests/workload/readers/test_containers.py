"""The same requests are the same trace, whatever file holds them."""

import gzip
import json
import subprocess
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capplan.errors import InputError, TraceWarning
from capplan.workload.readers import read_trace
from capplan.workload.readers.chunks import iterate_trace

UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
EPOCH_US = 1_789_372_800_000_000


def quietly(path, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        return read_trace(path, **options)


def nested(rows):
    return [
        {
            arrival: row[arrival],
            "response": {"usage": {k: v for k, v in row.items() if k != arrival}},
        }
        for row in rows
        for arrival in [next(iter(row))]
    ]


def lines(rows):
    return "\n".join(map(json.dumps, rows)) + "\n"


def csv_of(rows, separator=","):
    table = [[str(value) for value in row.values()] for row in rows]
    return "".join(separator.join(row) + "\n" for row in [list(rows[0]), *table])


def parquet_of(rows, path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(rows), path)


CONTAINERS = {
    "csv": csv_of,
    "semicolons": lambda rows: csv_of(rows, ";"),
    "tabs": lambda rows: csv_of(rows, "\t"),
    "lines": lines,
    "array": json.dumps,
    "indented": lambda rows: json.dumps({"data": rows}, indent=1),
    "nested": lambda rows: lines(nested(rows)),
}

ROWS = st.lists(
    st.tuples(st.integers(0, 10**9), st.integers(1, 10**5), st.integers(1, 10**4)),
    min_size=1,
    max_size=8,
).map(sorted)


@settings(
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(rows=ROWS, unit=st.sampled_from(list(UNITS)), since_1970=st.booleans())
def test_every_container_and_unit_is_the_same_trace(tmp_path, rows, unit, since_1970):
    rows = [(k // 1000 * 1000, *more) for k, *more in rows]  # whole milliseconds
    begin = EPOCH_US if since_1970 else 0
    named = [
        {
            f"arrival_{unit}": (begin + at) * UNITS[unit] // 10**6
            if unit != "s"
            else (begin + at) / 10**6,
            "prompt_tokens": prompt,
            "completion_tokens": output,
        }
        for at, prompt, output in rows
    ]
    at_us = np.array([at for at, *_ in rows])
    expected_s = (at_us - (at_us.min() if since_1970 else 0)) / 1e6

    for container, written in CONTAINERS.items():
        path = tmp_path / container
        path.write_text(written(named))
        trace = quietly(path)

        np.testing.assert_allclose(trace.arrival_s, expected_s, rtol=0, atol=1e-6)
        assert trace.prompt_tokens.tolist() == [row[1] for row in rows]
        assert trace.output_tokens.tolist() == [row[2] for row in rows]


def test_parquet_is_the_same_trace_as_json_lines(tmp_path):
    rows = [
        {"created_at": "2026-09-14T08:00:00.195Z", "usage": usage, "user": "a"}
        for usage in (
            {"prompt_tokens": 5, "completion_tokens": 6},
            {"prompt_tokens": 7, "completion_tokens": 8},
        )
    ]
    (tmp_path / "rows.jsonl").write_text(lines(rows))
    parquet_of(rows, tmp_path / "rows.parquet")

    trace, other = quietly(tmp_path / "rows.parquet"), quietly(tmp_path / "rows.jsonl")

    assert trace.arrival_s.tolist() == other.arrival_s.tolist() == [0, 0]
    assert trace.prompt_tokens.tolist() == other.prompt_tokens.tolist() == [5, 7]
    assert trace.unread_columns == other.unread_columns == ("user",)


@pytest.mark.parametrize("unit", UNITS)
def test_stamps_without_a_unit_are_told_by_their_size(tmp_path, unit):
    rows = [
        {"ts": (EPOCH_US + k * 10**6) * UNITS[unit] // 10**6, "prompt_tokens": 5}
        for k in (0, 3)
    ]
    path = tmp_path / "log"
    path.write_text(lines([{**row, "output_tokens": 6} for row in rows]))

    assert quietly(path).arrival_s.tolist() == [0, 3]


def test_stamps_of_json_that_count_from_an_unknown_begin_are_asked_about(tmp_path):
    path = tmp_path / "log.jsonl"
    rows = [{"ts": 195 + k, "prompt_tokens": 5, "output_tokens": 6} for k in range(2)]
    path.write_text(lines(rows))

    with pytest.raises(
        InputError, match=r"ts counts from no known begin: .* --columns"
    ):
        quietly(path)

    read_ms = quietly(path, columns={"arrival_ms": "ts"})
    assert read_ms.arrival_s.tolist() == [0.195, 0.196]


def test_json_lines_are_read_in_chunks_too(tmp_path):
    path = tmp_path / "log.jsonl.gz"
    rows = [{"arrival_s": k, "prompt_tokens": 5, "output_tokens": k} for k in range(7)]
    path.write_bytes(gzip.compress(lines(rows).encode()))

    with pytest.warns(TraceWarning, match="1 of 7 rows left out"):
        chunks = list(iterate_trace(path, 3))

    assert [chunk.arrival_s.tolist() for chunk in chunks] == [[1, 2], [3, 4, 5], [6]]


@pytest.mark.parametrize("separator", [";", "\t", ","])
@pytest.mark.parametrize(
    ("rows", "read"),
    [
        (
            [("0,5", "1,317", "6"), ("1,317", "742", "7,0")],
            [(0.5, 1317, 6), (1.317, 742, 7)],
        ),
        ([("1,000,000", "5", "6"), ("2,000,000", "1,001", "1,002")], None),
        ([("1,317", "5", "6"), ("2,000", "5", "6")], "arrival_s is 1,317; expected"),
        ([("0,5", "1,000", "6"), ("0,7", "2,000", "6")], "prompt_tokens is 1,000; exp"),
        (
            [("0,5", "1,000", "6"), ("0,7", "742", "6")],
            [(0.5, 1000, 6), (0.7, 742, 6)],
        ),
        (
            [("0,5", "1.317", "6"), ("0,7", "742", "6")],
            "without points between thousands",
        ),
        ([("0,5", "1,5", "6")], "prompt_tokens is 1,5; expected"),
    ],
)
def test_commas_are_read_where_they_are_sure_and_else_refused_with_a_command(
    tmp_path, rows, read, separator
):
    path = tmp_path / "from a sheet.csv"
    text = separator.join(("arrival_s", "prompt_tokens", "output_tokens")) + "\n"
    cells = (separator.join(f'"{cell}"' for cell in row) for row in rows)
    path.write_text(text + "\n".join(cells) + "\n")

    if isinstance(read, str):
        with pytest.raises(InputError, match=read) as caught:
            read_trace(path)
        command = str(caught.value).partition("the decimal one ")[2]
        assert bool(command) == (separator != "," and read.startswith("arrival"))
        if command:
            subprocess.run(command, shell=True, cwd=tmp_path, check=True)
            assert read_trace(tmp_path / "new.csv").arrival_s.tolist() == [1.317, 2]
        return
    trace = read_trace(path)
    found = zip(trace.arrival_s, trace.prompt_tokens, trace.output_tokens, strict=True)
    assert list(found) == (read or [(1e6, 5, 6), (2e6, 1001, 1002)])


def english(number):
    return f"{number:,}"


def with_comma(number):
    return str(number).replace(".", ",")


@settings(
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 10**8).map(lambda at: at / 1000),
            st.integers(1, 10**4),
            st.sampled_from([1, 999, 1000, 2000, 12_345, 1_000_000]),
        ),
        min_size=1,
        max_size=4,
    ).map(sorted),
    written=st.sampled_from([english, with_comma]),
    separator=st.sampled_from(",;\t"),
)
def test_a_table_with_commas_in_numbers_is_never_read_as_another(
    tmp_path, rows, written, separator
):
    path = tmp_path / "log.csv"
    text = separator.join(("arrival_s", "prompt_tokens", "output_tokens")) + "\n"
    for row in rows:
        text += separator.join(f'"{written(cell)}"' for cell in row) + "\n"
    path.write_text(text)

    try:
        trace = quietly(path)
    except InputError:  # a column of nothing but 1,000 or 1,317 is not sure
        return
    read = zip(trace.arrival_s, trace.prompt_tokens, trace.output_tokens, strict=True)
    assert list(read) == rows


def test_a_research_trace_is_not_read_in_chunks(tmp_path):
    path = tmp_path / "mooncake.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 5, "output_length": 6}\n')

    with pytest.raises(InputError, match="are read whole: leave --stream out"):
        list(iterate_trace(path))


def test_a_gateways_log_is_streamed_by_the_columns_of_its_format(tmp_path):
    row = {"call_type": "acompletion", "startTime": "2026-09-14T08:00:01Z"}
    row |= {"prompt_tokens": 9, "completion_tokens": 5}
    path = tmp_path / "spend.jsonl"
    path.write_text(lines([row, {**row, "startTime": "2026-09-14T08:00:03Z"}]))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        chunks = list(iterate_trace(path, 1))

    assert [chunk.arrival_s.tolist() for chunk in chunks] == [[0], [2]]
