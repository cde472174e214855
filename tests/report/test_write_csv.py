"""plan.csv: one row per candidate, safe in a spreadsheet."""

import csv
import io
from dataclasses import replace

from capplan.report.columns import COLUMNS
from capplan.report.write_csv import plan_classes_csv, plan_csv


def rows(plan):
    return list(csv.DictReader(io.StringIO(plan_csv(plan))))


def test_every_candidate_is_a_row_best_first(plan):
    table = rows(plan)

    assert [row["status"] for row in table] == [
        "feasible",
        "feasible",
        "pruned",
        "infeasible",
    ]
    assert table[0]["gpu_count"] == "40"
    assert float(table[0]["usd_per_month"]) == 730 * 99.6


def test_what_is_not_known_is_an_empty_cell(plan):
    table = rows(plan)

    assert table[1]["usd_per_h"] == ""
    assert table[3]["slo_attainment"] == ""


def test_a_text_that_a_spreadsheet_would_run_is_kept_text(plan, best):
    spoiled = replace(best, profile_note="=HYPERLINK(1)")

    table = rows(replace(plan, candidates=(spoiled,)))

    assert table[0]["profile_note"] == "'=HYPERLINK(1)"


def test_the_classes_of_each_candidate_are_rows_of_a_file_of_their_own(classed):
    table = list(csv.DictReader(io.StringIO(plan_classes_csv(classed))))

    assert [row["class_name"] for row in table] == ["chat", "code"]
    assert {row["gpu"] for row in table} == {"H100-SXM"}
    assert [float(row["attainment"]) for row in table] == [0.99, 0.95]
    assert [float(row["slo_attainment"]) for row in table] == [0.995, 0.96]
    assert float(table[1]["slo_attainment_low"]) == 0.96 - 0.004
    assert table[0]["attainment_of"] == "chat"


def test_one_class_has_no_file_of_classes(plan):
    assert plan_classes_csv(plan) == ""


def test_no_two_columns_share_a_name():
    names = [column.name for column in COLUMNS]

    assert len(set(names)) == len(names)
