"""The table of printed figures: each row is one that the loader understands."""

from types import SimpleNamespace

import pytest

from capplan.report.columns import CSV, JSON, record
from capplan.report.fields import Declared, declared, fields
from capplan.report.page import Table
from capplan.report.render.csv_table import table_csv

ROWS = [row for rows in declared().values() for row in rows]
WORDS = {"left", "wide", "json", "csv", "range", "ends", "null", "cents"}
OF_WORDS = {"leaves", "star", "after", "as"}


def made(monkeypatch, *rows):
    """Return a table of these rows: name, path, heading, form and layout."""
    tables = {"mine": [Declared("mine", *row) for row in rows]}
    monkeypatch.setattr(
        "capplan.report.fields.declared", lambda: {**declared(), **tables}
    )
    return lambda **functions: fields("mine", **functions)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.table}-{row.name}")
def test_every_word_of_a_layout_is_one_that_is_read(row):
    words = {word.partition("=")[0] for word in row.layout.split() if "=" in word}
    alone = {word for word in row.layout.split() if "=" not in word}

    assert words <= OF_WORDS
    assert alone <= WORDS


@pytest.mark.parametrize("table", declared())
def test_a_table_has_a_key_once_and_nothing_in_vain(table):
    rows = [row for row in declared()[table] if not row.name.startswith("*")]
    names = [row.name for row in rows if row.name and "ends" not in row.layout.split()]
    twice = {name for name in names if names.count(name) > 1}

    assert twice <= {"doubts"}  # a list in the JSON, a text in the CSV
    assert all(row.name or row.heading for row in rows)
    assert all(not row.form or row.heading for row in rows)


def test_an_interval_is_one_key_of_the_json_and_two_columns_of_the_csv(monkeypatch):
    columns = made(monkeypatch, ("usd_range", "", "", "", "range"))()
    row = {"usd_range": (1.0, 2.5)}

    assert record(columns, row) == {"usd_range": (1.0, 2.5)}
    assert table_csv(Table(columns, [row])) == "usd_low,usd_high\n1.0,2.5\n"
    assert [column.only for column in columns] == [JSON, CSV, CSV]


def test_a_table_may_have_another_order_than_the_json(monkeypatch):
    columns = made(
        monkeypatch, ("gpus", "", "", "", "after=tp"), ("tp", "", "", "", "")
    )()

    assert list(record(columns, {"gpus": 8, "tp": 4})) == ["gpus", "tp"]
    assert table_csv(Table(columns, [{"gpus": 8, "tp": 4}])) == "tp,gpus\n4,8\n"


def test_a_part_is_told_by_the_rows_of_its_own_table(monkeypatch):
    columns = made(monkeypatch, ("old", "", "", "", "as=diff_cause"))()
    part = SimpleNamespace(what="llm", old="A", new="B", else_="left out")

    told = {"what": "llm", "old": "A", "new": "B"}
    for old, expected in ((part, told), ([part], [told]), (None, None)):
        assert record(columns, {"old": old}) == {"old": expected}


def test_a_function_of_the_page_gives_a_value_or_what_people_read(monkeypatch):
    columns = made(
        monkeypatch, ("gpus", "=", "GPUs", "count", ""), ("tp", "", "TP", "", "")
    )(gpus=lambda row: 1000 * row["tp"], tp=lambda row: f"TP {row['tp']}")

    assert record(columns, {"tp": 2}) == {"gpus": 2000, "tp": 2}
    assert [column.text({"tp": 2}) for column in columns] == ["2,000", "TP 2"]


def test_a_star_stands_where_its_flag_is_true(monkeypatch):
    (column,) = made(monkeypatch, ("usd", "", "$", "usd", "star=is_old"))()

    assert column.text({"usd": 5, "is_old": True}) == "$5.00*"
    assert column.text({"usd": 5, "is_old": False}) == "$5.00"
