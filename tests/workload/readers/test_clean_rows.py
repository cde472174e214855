"""Clean files are read without pandas, and to the same requests."""

import subprocess
import sys
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.errors import CapplanError
from capplan.workload.catalog import shipped_workload, shipped_workload_names
from capplan.workload.readers import read_trace, requests

CELLS = {
    "arrival_s": ("0", "0.5", "007.25", "1e3", "99999999.9", "200000000", "-1", ""),
    "prompt_tokens": ("1", "512", "99999999", "1.0", "0", "x", " 7", "123456789"),
    "output_tokens": ("1", "0", "20", "2_0", "nan", "300"),
    "class": ("chat", "code-2", "NA", "7", "", '"a,b"', "é"),
}


def both_ways(read, monkeypatch):
    """Return what is read without pandas where possible, and with it."""
    with monkeypatch.context() as patch:
        quick = _told(read)
        patch.setattr(requests, "_clean", lambda *_: None)
        return quick, _told(read)


def _told(read):
    try:
        trace = read()
    except CapplanError as error:
        return str(error)
    columns = ((field.name, getattr(trace, field.name)) for field in fields(trace))
    return [
        (name, str(x.dtype), x.tolist()) if isinstance(x, np.ndarray) else (name, x)
        for name, x in columns
    ]


@pytest.mark.parametrize("name", shipped_workload_names())
def test_a_shipped_workload_is_the_same_as_pandas_reads_it(name, monkeypatch):
    quick, with_pandas = both_ways(lambda: shipped_workload(name), monkeypatch)

    assert quick == with_pandas


@pytest.mark.filterwarnings("ignore")
@given(data=st.data())
def test_any_rows_are_the_same_requests_or_the_same_refusal(data, tmp_path_factory):
    kinds = data.draw(st.permutations(list(CELLS)))[: data.draw(st.integers(2, 4))]
    dirty = data.draw(st.booleans())
    cells = {kind: CELLS[kind] if dirty else CELLS[kind][:2] for kind in kinds}
    row = st.tuples(*(st.sampled_from(cells[kind]) for kind in kinds)).map(",".join)
    rows = data.draw(st.lists(row, min_size=0, max_size=6))
    ends = data.draw(st.sampled_from(["\n", "\r\n"])), data.draw(st.booleans())
    path = tmp_path_factory.mktemp("rows") / "trace.csv"
    text = ends[0].join([",".join(kinds), *rows]) + ends[0] * ends[1]
    path.write_text(text, newline="")

    with pytest.MonkeyPatch.context() as patch:
        quick, with_pandas = both_ways(
            lambda: read_trace(path, reader_name="csv"), patch
        )

    assert quick == with_pandas


def test_a_clean_file_is_read_without_pandas(tmp_path):
    (tmp_path / "trace.csv").write_text(
        "arrival_s,prompt_tokens,output_tokens,class\n0.5,7,8,chat\n"
    )
    script = (
        "import sys; from capplan.workload.readers import read_trace; "
        "print(len(read_trace(sys.argv[1])), 'pandas' in sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "trace.csv")],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == ["1", "False"]
