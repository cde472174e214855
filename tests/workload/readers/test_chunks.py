"""A streamed trace is the whole trace, in pieces of bounded size."""

import gzip
import re
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capplan.errors import InputError, TraceWarning
from capplan.workload.readers import read_trace
from capplan.workload.readers.chunks import iterate_trace

HEADER = "arrival_s,prompt_tokens,output_tokens,class\n"


def csv_of(n):
    names = ["chat", "code", "summary"]
    return HEADER + "".join(
        f"{i * 0.5!r},{i + 1},{i % 7 + 1},{names[i * 3 // n]}\n" for i in range(n)
    )


@settings(
    deadline=None,
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(n=st.integers(3, 40), chunk=st.integers(1, 50), zipped=st.booleans())
def test_chunks_joined_are_the_whole_trace(tmp_path, n, chunk, zipped):
    text = csv_of(n).encode()
    path = tmp_path / "trace"
    path.write_bytes(gzip.compress(text) if zipped else text)
    whole = read_trace(path)

    chunks = list(iterate_trace(path, chunk))

    assert all(len(part) <= chunk for part in chunks)
    for name in ("arrival_s", "prompt_tokens", "output_tokens"):
        joined = np.concatenate([getattr(part, name) for part in chunks])
        np.testing.assert_array_equal(joined, getattr(whole, name))
    named = [part.class_names[i] for part in chunks for i in part.request_class]
    assert named == [whole.class_names[i] for i in whole.request_class]


def test_a_later_chunk_only_adds_class_names(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "0,1,1,b\n1,1,1,a\n2,1,1,b\n")

    chunks = list(iterate_trace(path, 1))

    assert [part.class_names for part in chunks] == [("b",), ("b", "a"), ("b", "a")]
    assert [part.request_class.tolist() for part in chunks] == [[0], [1], [0]]


def test_sessions_keep_their_numbers_in_later_chunks(tmp_path):
    path = tmp_path / "trace.csv"
    header = "arrival_s,prompt_tokens,output_tokens,session\n"
    path.write_text(header + "0,1,1,b\n1,1,1,a\n2,1,1,\n3,1,1,b\n")

    chunks = list(iterate_trace(path, 1))

    assert [part.session.tolist() for part in chunks] == [[0], [1], [-1], [0]]


def test_a_wrong_value_in_a_later_chunk_is_named_with_its_line(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "0,1,1,a\n1,1,1,a\n2,1,-1,a\n")

    chunks = iterate_trace(path, 2)

    assert len(next(chunks)) == 2
    with pytest.raises(InputError, match=re.escape(f"{path}:4: output_tokens is -1")):
        next(chunks)


def test_an_arrival_before_an_earlier_chunk_is_refused(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "0,1,1,a\n5,1,1,a\n6,1,1,a\n4,1,1,a\n")

    with pytest.raises(InputError, match=r":5: arrival_s is 4; expected at least 5.0"):
        list(iterate_trace(path, 2))


def test_arrivals_that_fall_within_a_chunk_are_sorted(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "1,1,1,a\n0,2,1,a\n2,3,1,a\n")

    with pytest.warns(TraceWarning, match="sorted by arrival"):
        chunks = list(iterate_trace(path, 2))

    assert chunks[0].arrival_s.tolist() == [0, 1]
    assert chunks[0].prompt_tokens.tolist() == [2, 1]


def test_stamps_since_1970_start_at_zero_in_every_chunk(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "1700000000,1,1,a\n1700000003,1,1,a\n1700000004,1,1,a\n")

    chunks = list(iterate_trace(path, 1))

    assert [part.arrival_s.tolist() for part in chunks] == [[0], [3], [4]]


def test_times_in_some_chunks_only_are_refused(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "0,1,1,a\n,1,1,a\n")

    with pytest.raises(InputError, match=":3: arrival_s is empty; expected all"):
        list(iterate_trace(path, 1))


def test_a_file_of_nothing_is_refused(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(HEADER)

    with pytest.raises(InputError, match="no requests under the header"):
        list(iterate_trace(path))


def test_memory_does_not_grow_with_the_trace(tmp_path):
    peaks = []
    for n in (30_000, 90_000):
        path = tmp_path / f"{n}.csv"
        rows = "".join(f"{i},100,10\n" for i in range(n))
        path.write_text("arrival_s,prompt_tokens,output_tokens\n" + rows)
        tracemalloc.start()
        for _ in iterate_trace(path, 2_000):
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    assert peaks[1] < 1.25 * peaks[0]
