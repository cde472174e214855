"""The workbook: live formulas that another engine recalculates, and no injection."""

import io
import math
import time
from dataclasses import replace

import openpyxl
import pytest

from capplan.planning.plan.plan import plan as planned
from capplan.planning.plan.result import Assumption
from capplan.planning.settings.plan import PlanSettings
from capplan.report.workbook.plan_book import plan_workbook

YELLOW = "FFFFF2A8"
EVIL = '=HYPERLINK("http://evil","x")'


def opened(content, **how):
    return openpyxl.load_workbook(io.BytesIO(content), **how)


def cells(book):
    return [cell for sheet in book for row in sheet.iter_rows() for cell in row]


def named(book, name):
    sheet, place = book.defined_names[name].attr_text.split("!")
    return book[sheet][place.replace("$", "")]


@pytest.fixture(scope="module")
def content(plan):
    return plan_workbook(plan)


def test_the_sheets_come_in_order(content):
    sheets = opened(content).sheetnames

    assert sheets == ["Summary", "Assumptions", "Candidates", "Evidence"]


def test_every_cost_is_a_formula_whose_cached_value_is_the_plans(content, plan):
    book, values = opened(content), opened(content, data_only=True)
    cost = plan.best.cost

    for name in ("usd_per_h", "usd_per_month", "usd_per_year"):
        assert named(book, name).data_type == "f"
        assert named(values, name).value == getattr(cost, name)
    head, *rows = book["Candidates"].iter_rows()
    first = [cell.value for cell in head].index("usd_per_h")
    for row in rows[:2]:
        assert [cell.data_type for cell in row[first : first + 3]] == ["f"] * 3


def test_yellow_cells_are_the_only_numbers_that_may_be_changed(content):
    book = opened(content)

    yellow = [cell for cell in cells(book) if cell.fill.fgColor.rgb == YELLOW]
    assert {cell.parent.title for cell in yellow} == {"Assumptions"}
    assert all(cell.data_type == "n" for cell in yellow)
    for cell in cells(book):  # no other number leads to a cost but simulated counts
        if cell.data_type == "n" and cell.value is not None and cell not in yellow:
            # Of other counts the nodes are another purchase: its bill is a number.
            is_other_count = (
                cell.parent.title == "Summary" and cell.column_letter in "DE"
            )
            assert cell.parent.title == "Candidates" or is_other_count


def test_each_input_has_a_name_a_unit_a_source_and_how_it_was_had(content):
    rows = list(opened(content)["Assumptions"].iter_rows(values_only=True))

    assert rows[0] == ("name", "value", "unit", "low", "high", "source", "how")
    for name, value, unit, _, _, source, how in rows[1:]:
        assert name
        assert value is not None
        assert source
        assert how in (
            "given",
            "simulated",
            "published",
            "assumed",
            "fitted",
            "measured",
        )
        assert unit or isinstance(value, str)


def test_a_formula_in_a_name_stays_a_text(plan, best):
    rows = (Assumption(EVIL, EVIL, "http://a.b/c", "+1"),)
    spoiled = replace(plan, llm=EVIL, assumptions=rows, warnings=("@SUM(A1)",))

    book = opened(plan_workbook(spoiled))

    found = [cell for cell in cells(book) if EVIL in str(cell.value)]
    assert len(found) >= 3
    assert {cell.data_type for cell in found} == {"s"}
    assert not any(cell.hyperlink for cell in cells(book))
    formulas = [str(cell.value) for cell in cells(book) if cell.data_type == "f"]
    assert not any("evil" in text or "SUM(A1)" in text for text in formulas)


def test_the_same_plan_gives_the_same_bytes_whatever_the_clock_says(plan, monkeypatch):
    first = plan_workbook(plan)
    local = time.localtime
    monkeypatch.setattr(time, "time", lambda: 2_000_000_000.0)
    monkeypatch.setattr(time, "localtime", lambda _=None: local(2_000_000_000))

    assert plan_workbook(plan) == first


def test_a_plan_without_an_answer_says_so_and_has_no_inputs(infeasible):
    book = opened(plan_workbook(infeasible))

    assert any("No cost" in str(cell.value) for cell in cells(book))
    assert not [cell for cell in cells(book) if cell.data_type == "f"]
    assert "SHA-256 of the trace" in [row[0].value for row in book["Evidence"]]


def test_what_a_cell_cannot_hold_is_cut_or_left_empty(plan):
    long = replace(plan, llm="\x00\ud800" + "x" * 40_000, rate_per_s=math.nan)

    texts = [cell.value for cell in cells(opened(plan_workbook(long)))]

    assert max(len(text) for text in texts if isinstance(text, str)) <= 32_767


def recalculated(content, tmp_path, **changed):
    """Return the names of the workbook, calculated by another engine.

    ``changed`` inputs are written first; cached values are lost by that.
    """
    import formulas

    path = tmp_path / "plan.xlsx"
    book = opened(content)
    for name, value in changed.items():
        named(book, name).value = value
    book.save(path)
    solution = formulas.ExcelModel().loads(str(path)).finish().calculate()
    found = {}
    for name in book.defined_names:
        sheet, place = book.defined_names[name].attr_text.split("!")
        cell = f"'[plan.xlsx]{sheet.upper()}'!{place.replace('$', '')}"
        found[name] = float(solution[cell].value[0, 0])
    rows = {}
    for row in range(2, book["Candidates"].max_row + 1):
        cell = solution.get(f"'[plan.xlsx]CANDIDATES'!Q{row}")
        if cell is not None and book["Candidates"][f"Q{row}"].value is not None:
            rows[row - 2] = float(cell.value[0, 0])
    return found, rows


def month_range(book):
    row = named(book, "usd_per_month").row
    return tuple(book["Summary"].cell(row, column).value for column in (4, 5))


def test_the_range_of_the_month_is_that_of_engines(settings):
    asked = settings | {"price": {}, "gpu": ("H100-SXM",), "tp": (1, 4)}
    plan = planned(PlanSettings(**asked))

    low, high = month_range(opened(plan_workbook(plan), data_only=True))

    assert low <= plan.best.cost.usd_per_month < high
    assert (low, high) == pytest.approx(plan.best.usd_per_month_range, abs=0.005)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["plan", "doubted", "classed"])
def test_another_engine_recalculates_it_to_the_cent(request, name, tmp_path):
    plan = request.getfixturevalue(name)

    found, rows = recalculated(plan_workbook(plan), tmp_path)

    for each in ("usd_per_h", "usd_per_month", "usd_per_year"):
        assert round(found[each], 2) == round(getattr(plan.best.cost, each), 2)
    months = {
        index: round(row.cost.usd_per_month, 2)
        for index, row in enumerate(plan.candidates)
        if row.cost is not None
    }
    assert {index: round(usd, 2) for index, usd in rows.items()} == months


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
def test_a_changed_input_changes_the_cost(content, plan, tmp_path):
    changed = {"replicas": 11, "gpus_per_node": 4, "gpus_per_replica": 3}
    changed |= {"usd_per_node_h": 7.5, "hours_per_month": 744}

    found, rows = recalculated(content, tmp_path, **changed)

    # One replica of 3 GPUs fits on a node of 4: 11 nodes × $7.50.
    assert found["nodes"] == 11
    assert found["usd_per_h"] == 82.5
    assert found["usd_per_month"] == 82.5 * 744
    assert rows[0] == 82.5 * 744


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
def test_two_pools_are_summed(settings, tmp_path):
    apart = planned(
        PlanSettings(**settings | {"disaggregated": True, "gpu": "H100-SXM"})
    )
    best = apart.best_disaggregated

    found, _ = recalculated(plan_workbook(replace(apart, best=best)), tmp_path)

    assert found["nodes"] == sum(row.gpus_paid for row in best.cost.nodes)
    assert round(found["usd_per_h"], 2) == round(best.cost.usd_per_h, 2)
