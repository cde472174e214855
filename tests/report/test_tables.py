"""Tables as CSV and on the terminal."""

import csv
import gzip
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from capplan.errors import InputError
from capplan.report.tables import csv_text, plain_table, write_csv_file


def test_what_is_not_known_or_not_finite_is_an_empty_cell():
    rows = [[None, float("nan"), np.float64("inf"), 0.0, 0, ""]]

    assert csv_text("abcdef", rows) == "a,b,c,d,e,f\n,,,0.0,0,\n"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)"])
def test_a_formula_is_quoted_for_spreadsheets(text):
    assert csv_text(["a"], [[text]]) == f"a\n'{text}\n"


def test_a_negative_number_is_no_formula():
    assert csv_text(["a"], [[-1.5]]) == "a\n-1.5\n"


@given(st.lists(st.text(st.characters(blacklist_categories=("Cs", "Cc"))), min_size=2))
def test_any_other_text_is_read_back_the_same(texts):
    cells = [f"x{text}" for text in texts]

    (row,) = csv.reader(io.StringIO(csv_text([], [cells])[1:]))

    assert row == cells


def test_a_file_is_the_same_text_and_gz_is_compressed(tmp_path):
    rows = [(1, 2.5), (3, "")]

    plain = write_csv_file(tmp_path / "a.csv", ("x", "y"), rows)
    packed = write_csv_file(tmp_path / "a.csv.gz", ("x", "y"), rows)

    assert plain.read_text() == "x,y\n1,2.5\n3,\n"
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()


def test_rows_that_fail_leave_no_file(tmp_path):
    def rows():
        yield (1,)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_csv_file(tmp_path / "a.csv", ("x",), rows())

    assert list(tmp_path.iterdir()) == []


def test_a_file_in_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"cannot be written"):
        write_csv_file(tmp_path / "no" / "a.csv", ("x",), [])


def test_columns_are_set_flush_as_said_and_without_lines():
    out = io.StringIO()
    table = plain_table([("name", "left"), ("count", "right")])
    table.add_row("a", "7")

    Console(file=out, width=40).print(table)

    assert out.getvalue().rstrip("\n").split("\n") == [" name  count ", " a         7 "]
