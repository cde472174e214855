"""Tables as CSV: one row per candidate or class, safe in a spreadsheet."""

import csv
import gzip
import io
import re
from dataclasses import replace
from importlib.metadata import version

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.errors import InputError
from capplan.report.pages.plan import plan_page
from capplan.report.render.csv_table import csv_text, table_csv, write_csv_file


def test_what_is_not_known_or_not_finite_is_an_empty_cell():
    rows = [[None, float("nan"), np.float64("inf"), 0.0, 0, ""]]

    assert csv_text("abcdef", rows) == "a,b,c,d,e,f\n,,,0.0,0,\n"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "＝1", "＠SUM(A1)"])
def test_a_formula_is_quoted_for_spreadsheets(text):
    assert csv_text(["a"], [[text]]) == f"a\n'{text}\n"


@pytest.mark.parametrize(
    "text", ["x;=1+1", ";@SUM(A1)", "\t=1", "a\r=1", " =1", "x; -1"]
)
def test_no_cell_begins_a_formula_where_semicolons_or_tabs_separate(text):
    line = csv_text(["a"], [[text]]).splitlines()[1]

    for cell in re.split(r"[;\t]", line):
        assert cell.strip()[:1] not in ("=", "+", "-", "@")


@given(st.text(max_size=8))
def test_every_text_is_one_cell_on_one_line(text):
    (row,) = csv.reader(io.StringIO(csv_text([], [["a", text, "b"]])[1:]))

    assert (row[0], row[2]) == ("a", "b")
    assert len(row[1].splitlines()) <= 1


def test_a_cell_holds_words_and_rounded_numbers_and_nothing_of_python():
    shares = {"all": 0.9957216460011604, "code": np.float64(1.0)}
    rows = [[True, np.bool_(False), (), (3, 5), shares, 93206.40000000001, 1e-7 / 3]]

    text = csv_text("abcdefg", rows)

    assert text.splitlines()[1] == (
        "true,false,,3; 5,all=0.995722; code=1.0,93206.4,3.33333e-08"
    )


@given(st.floats(-1e9, 1e9))
def test_a_number_is_rounded_to_six_digits_and_to_the_cent(value):
    (cell,) = csv_text("a", [[value]]).splitlines()[1:]

    assert abs(float(cell) - value) <= 5.0001e-6 * abs(value)
    assert abs(float(cell) - value) <= 0.005001


def test_a_negative_number_is_no_formula():
    assert csv_text(["a"], [[-1.5]]) == "a\n-1.5\n"


@given(st.lists(st.text(st.characters(blacklist_categories=("Cs", "Cc"))), min_size=2))
def test_any_other_text_is_read_back_the_same(texts):
    cells = [f"x{text.replace(';', ',')}" for text in texts]  # a semicolon: above

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


def rows(plan, name="plan.csv"):
    return list(csv.DictReader(io.StringIO(table_csv(plan_page(plan).csv[name]))))


def test_every_candidate_is_a_row_best_first(plan):
    table = rows(plan)

    assert [row["status"] for row in table] == [
        "feasible",
        "feasible",
        "pruned",
        "infeasible",
    ]
    assert table[0]["gpu_count"] == "3"
    assert float(table[0]["usd_per_month"]) == pytest.approx(730 * 7.47)


def test_every_row_says_what_was_asked_of_which_trace_by_which_version(plan):
    for row in rows(plan):
        assert row["llm"] == "Llama-3.1-8B"
        assert row["slo_text"] == "ttft ≤ 1 s, tpot ≤ 20 ms"
        assert row["attainment_text"] == "99 %"
        assert row["trace_source"].endswith("own.csv")
        assert len(row["trace_sha256"]) == 64
        assert row["capplan_version"] == version("capplan")


@pytest.mark.parametrize("name", ["plan", "classed", "doubted", "infeasible"])
def test_no_cell_of_a_plan_is_python(request, name):
    plan = request.getfixturevalue(name)

    for file in ("plan.csv", "classes.csv"):
        for row in rows(plan, file):
            for cell in row.values():
                assert cell not in ("True", "False", "None", "nan")
                assert not re.search(r"[{}]|\(\)|\('|\['|\d\.\d{13}", cell)


def test_what_is_not_known_is_an_empty_cell(plan):
    table = rows(plan)

    assert table[2]["usd_per_h"] == ""
    assert table[3]["slo_attainment"] == ""


def test_a_text_that_a_spreadsheet_would_run_is_kept_text(plan, best):
    spoiled = replace(best, pruned_reason="=HYPERLINK(1)")

    table = rows(replace(plan, candidates=(spoiled,)))

    assert table[0]["pruned_reason"] == "'=HYPERLINK(1)"


def test_the_classes_of_each_candidate_are_rows_of_a_file_of_their_own(classed):
    table = rows(classed, "classes.csv")

    assert [row["class_name"] for row in table] == ["chat", "code"] * 2
    assert [row["gpu"] for row in table] == ["H100-SXM"] * 2 + ["H200-SXM"] * 2
    assert [float(row["attainment"]) for row in table[:2]] == [0.99, 0.95]
    code = classed.best.run.judgement.classes[1]
    low = float(table[1]["slo_attainment_low"])
    assert low == pytest.approx(code.slo_attainment_interval[0], rel=1e-5)
    assert table[0]["attainment_of"] == "chat"


def test_one_class_has_no_file_of_classes(plan):
    assert table_csv(plan_page(plan).csv["classes.csv"]) == ""
