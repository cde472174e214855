"""A comparison of TP degrees says why, and what could not be compared."""

import csv
import io
import json
import math

import pytest
from rich.console import Console

from capplan.planning.configure.excluded import Excluded
from capplan.planning.size.search import Search, TpRow, TpSearch
from capplan.report.pages.search import search_page, search_values
from capplan.report.render.csv_table import table_csv
from capplan.report.render.json_text import json_text
from capplan.report.render.terminal import print_page

GOOD = TpRow("H100-SXM", 4, 900, 2000.0, 600, 3000.0, 2000.0, 600, 0.05, "KV", 0.4)
CHEAP = TpRow("L4", 2, 90, 300.0, 60, 300.0, 300.0, 60, 0.03, "TPOT", 0.25)
BAD = TpRow(
    "L40S", 1, 0, 0.0, 0, 0.0, 0.0, 0, float("nan"), "", None, "it does not fit"
)


def search(*rows, slo_tpot_s=0.05):
    able = [row for row in rows if row.infeasible_reason is None]
    comparison = TpSearch(
        rows=rows,
        best=able[0] if able else None,
        best_by_usd=able[-1] if able else None,
        best_by_gpu={},
        reason="because",
        context_tokens=500.0,
        slo_tpot_s=slo_tpot_s,
    )
    notes = {"H100-SXM TP 4": "measured"}
    return Search("Llama", "a trace", comparison, (Excluded("A100", 1, "none"),), notes)


def printed(search, width=120):
    out = io.StringIO()
    print_page(search_page(search), Console(file=out, width=width, highlight=False))
    return out.getvalue()


def test_the_choice_stands_first_and_every_reason_is_said():
    text = printed(search(GOOD, BAD))
    lines = [" ".join(line.split()) for line in text.splitlines()]

    assert lines[:2] == ["H100-SXM × TP 4 Llama", "because"]
    assert "L40S × TP 1 it does not fit" in lines
    assert "A100 × TP 1 none" in lines
    assert "latency measured" in lines


def test_a_row_shows_counts_time_throughput_and_price():
    rows = [line.split() for line in printed(search(GOOD)).splitlines()]

    assert [
        "H100-SXM",
        "4",
        "900",
        "600",
        "600",
        "50",
        "ms",
        "2,000",
        "$0.4",
        "KV",
    ] in (rows)


def test_a_row_that_cannot_serve_shows_dashes_and_no_zero():
    text = printed(search(BAD))

    row = next(line for line in text.splitlines() if line.strip().startswith("L40S"))
    assert text.startswith("None can serve Llama")
    assert row.split()[2:] == ["–"] * 7


def test_the_cheapest_is_named_where_it_is_another():
    assert "cheapest" not in printed(search(GOOD))
    text = " ".join(printed(search(GOOD, CHEAP)).split())
    assert "cheapest output tokens L4 × TP 2 at $0.25 per million at full load" in text


@pytest.mark.parametrize(
    ("slo_tpot_s", "expected"),
    [(0.05, "500 tokens and TPOT ≤ 50 ms;"), (math.inf, "and no TPOT limit;")],
)
def test_the_conditions_of_the_comparison_are_said(slo_tpot_s, expected):
    assert expected in printed(search(GOOD, slo_tpot_s=slo_tpot_s))


def test_csv_has_a_row_per_option_and_empty_cells_for_what_is_not_known():
    good, bad = csv.DictReader(
        io.StringIO(table_csv(search_page(search(GOOD, BAD)).csv["search.csv"]))
    )

    assert (good["gpu"], good["tp"], good["iteration_s"]) == ("H100-SXM", "4", "0.05")
    assert good["infeasible_reason"] == ""
    assert (bad["iteration_s"], bad["saturated_usd_per_million_output_tokens"]) == (
        "",
        "",
    )
    assert (bad["batch"], bad["infeasible_reason"]) == ("0", "it does not fit")


def test_json_has_the_choice_the_rows_and_null_for_what_is_not_finite():
    document = json.loads(
        json_text(search_values(search(GOOD, BAD, slo_tpot_s=math.inf)))
    )

    assert document["schema"] == "capplan.search/2"
    assert document["found"]["best"]["gpu"] == "H100-SXM"
    assert document["found"]["rows"][1]["iteration_s"] is None
    assert document["found"]["slo_tpot_s"] is None
    assert document["excluded"] == [{"gpu": "A100", "tp": 1, "reason": "none"}]
