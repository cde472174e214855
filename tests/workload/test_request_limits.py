"""Limits that requests bring as columns become classes of the trace."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.errors import InputError
from capplan.workload.readers import read_trace
from capplan.workload.readers.chunks import iterate_trace
from capplan.workload.request_limits import limited_classes
from capplan.workload.slo import LIMITS, RequestSlo, Slo, parse_slo

INF, NAN = math.inf, math.nan


def trace_of(tmp_path, columns, *rows):
    path = tmp_path / "trace.csv"
    path.write_text("\n".join([f"prompt_tokens,output_tokens,{columns}", *rows]) + "\n")
    return path


def test_columns_of_limits_by_hand(tmp_path):
    path = trace_of(
        tmp_path,
        "class,slo_ttft_s,slo_tbt_s,slo_jct_s",
        *("5,6,chat,0.5,,", "5,6,code,,0.1,20", "5,6,chat,0.5,,", "5,6,chat,,,"),
    )

    trace = read_trace(path)

    names = [trace.class_names[k] for k in trace.request_class]
    limited = "chat/ttft=0.5s"
    assert names == [limited, "code/tbt=0.1s,e2e=20.0s", limited, "chat"]
    table_s = parse_slo(["ttft=1s", "code:tpot=1s"]).columns(
        trace.request_class, trace.class_names
    )
    assert np.transpose(table_s).tolist() == [
        [0.5, INF, INF, INF],
        [INF, 1.0, 0.1, 20.0],
        [0.5, INF, INF, INF],
        [1.0, INF, INF, INF],
    ]


def test_a_trace_without_classes_has_one_for_each_limit(tmp_path):
    trace = read_trace(trace_of(tmp_path, "slo_e2e_s", "5,6,2", "5,6,", "5,6,1e-5"))

    slo = parse_slo("e2e=1s")

    assert slo.columns(trace.request_class, trace.class_names)[3].tolist() == [
        2.0,
        1.0,
        1e-5,
    ]


@pytest.mark.parametrize("wrong", ["0", "-1", "inf", "soon", "1s"])
def test_a_limit_that_none_can_be_is_refused_with_its_line(tmp_path, wrong):
    path = trace_of(tmp_path, "slo_tbt_s", "5,6,1", f"5,6,{wrong}")

    with pytest.raises(InputError, match=rf":3: slo_tbt_s is {wrong}; expected sec"):
        read_trace(path)


@pytest.mark.parametrize("column", ["slo_ttft_ms", "slo_itl_s", "slo_ttft"])
def test_a_column_that_is_no_limit_is_refused(tmp_path, column):
    with pytest.raises(InputError, match=f"no limit is called {column}; .* slo_tbt_s"):
        read_trace(trace_of(tmp_path, column, "5,6,1"))


def test_end_to_end_and_jct_together_are_refused(tmp_path):
    with pytest.raises(InputError, match="both slo_e2e_s and slo_jct_s"):
        read_trace(trace_of(tmp_path, "slo_e2e_s,slo_jct_s", "5,6,1,1"))


def test_a_trace_with_limits_is_not_read_in_chunks(tmp_path):
    path = trace_of(tmp_path, "slo_tbt_s", "5,6,1")

    with pytest.raises(InputError, match="slo_tbt_s cannot be read in chunks"):
        next(iterate_trace(path))


def test_more_combinations_than_classes_are_refused():
    limits_s = {"ttft": np.arange(1.0, 32_769.0)}

    with pytest.raises(InputError, match=r"32,768 .*combinations.* at most 32,767"):
        limited_classes("t.csv", ("all",), None, limits_s)


own_s = st.one_of(st.just(NAN), st.floats(1e-6, 1e6))


@given(rows=st.lists(st.tuples(st.integers(0, 1), *[own_s] * 4), min_size=1))
def test_every_request_keeps_its_limits_to_the_last_digit(rows):
    request_class, *own = np.array(rows).T
    slo = Slo(RequestSlo(1.0, 2.0, 3.0, 4.0))

    names, classes = limited_classes(
        "t.csv",
        ("a", "b/c"),
        request_class.astype(np.int16),
        dict(zip(LIMITS, own, strict=True)),
    )

    columns_s = slo.columns(classes, names)
    for default_s, given_s, found_s in zip((1, 2, 3, 4), own, columns_s, strict=True):
        np.testing.assert_array_equal(np.nan_to_num(given_s, nan=default_s), found_s)
    for name, index in zip(np.array(names)[classes], request_class, strict=True):
        assert name.startswith(("a", "b/c")[int(index)])
