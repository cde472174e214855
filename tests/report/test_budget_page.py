"""The page, the tables and the JSON of a budget say the same."""

import csv
import json
import re

import numpy as np
import pytest

from capplan.planning.budget import budget as budget_module
from capplan.planning.budget.settings import BudgetSettings
from capplan.report import to_files
from capplan.report.charts.budget import budget_figures, finding
from capplan.report.pages.budget import budget_page, budget_values
from capplan.report.render.html_page import html
from capplan.report.render.json_text import json_text
from capplan.report.render.markdown import markdown
from capplan.report.render.terminal import print_result
from tests import budgets

ASKED = {
    **budgets.ASKED,
    "growth": "3%/month",
    "owned": "default",
    "contract": "2@1.50:6",
    "spot_share": 0.2,
    "spot_price": 0.9,
}


@pytest.fixture(autouse=True)
def planned(monkeypatch):
    """Plans that are not simulated."""
    budgets.stub_plans(monkeypatch)


@pytest.fixture
def made():
    def make(**more):
        return budget_module.budget(BudgetSettings(**{**ASKED, **more}))

    return make


def test_the_json_has_months_and_commitments(made):
    found = made()

    values = json.loads(json_text(budget_values(found)))

    assert values["schema"] == "capplan.budget/1"
    assert [row["month"] for row in values["months"]] == list(range(1, 37))
    for row in values["months"]:
        parts = row["usd_committed"] + row["usd_on_demand"] + row["usd_spot"]
        assert row["usd"] == pytest.approx(parts + row["usd_to_minimum"])
        assert row["usd_committed"] == pytest.approx(
            sum(row["usd_by_commitment"].values())
        )
    assert values["usd"] == pytest.approx(sum(row["usd"] for row in values["months"]))
    for row in values["commitments"]:
        assert 0 <= row["utilisation"] <= 1
        assert row["usd_unused"] >= 0
    owed = sum(row["usd_owed_after"] for row in values["commitments"])
    assert values["months"][-1]["usd_owed"] == pytest.approx(owed)
    assert BudgetSettings(**values["settings"]).growth == "3%/month"


def test_the_files_hold_the_same_numbers(tmp_path):
    settings = BudgetSettings(**ASKED, horizon_months=12, out=str(tmp_path))

    _, written = to_files.answer("budget", settings)

    names = {path.name for path in written}
    assert {"budget.json", "budget.csv", "commitments.csv", "hours.csv"} <= names
    document = json.loads((tmp_path / "budget.json").read_text())
    with (tmp_path / "budget.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row, value in zip(rows, document["months"], strict=True):
        assert float(row["usd"]) == pytest.approx(value["usd"])
        assert int(row["nodes"]) == value["nodes"]
    with (tmp_path / "hours.csv").open(newline="") as file:
        hours = list(csv.DictReader(file))
    assert len(hours) == 168
    most = max(int(row["nodes_first_month"]) for row in hours)
    assert most == int(rows[0]["nodes"])
    with (tmp_path / "nodes.csv").open(newline="") as file:
        nodes = list(csv.DictReader(file))
    for month, value in enumerate(document["months"], 1):
        by_hour = [int(row[f"month_{month}"]) for row in nodes]
        assert by_hour == value["nodes_by_hour"]
        assert max(by_hour) == value["nodes"]


def test_the_first_line_says_what_the_hours_rest_on(made):
    lead = budget_page(made()).lead

    assert lead.startswith("On a typical week, as azure-week-like, with 100 requests/s")


def test_less_than_a_week_is_said_first(made, tmp_path):
    path = tmp_path / "days.csv"
    lines = [f"{60 * minute},100,20" for minute in range(3 * 1440)]
    path.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *lines]))

    page = budget_page(made(trace=path, workload=None, rate=None, compare_fleets=False))

    assert page.lead.startswith("From 3 days of requests, which are no whole week: ")
    assert any("less than a week" in text for text in page.warnings)


def test_what_is_owed_is_always_said(made):
    owed = budget_page(made(horizon_months=24, charge="horizon")).lead
    none = budget_page(made(commit="none", contract=())).lead

    assert re.search(r"\$[\d,]+ is owed after month 24\.$", owed)
    assert none.endswith("Nothing is owed after month 36.")
    assert "Commit nothing: " in none


def test_assumed_dollars_are_starred_and_given_ones_are_not(made):
    assumed = made()
    given = made(commit="reserved:12=40%", contract=(), growth="0%/month")

    assert "*" in budget_page(assumed).headline
    assert "*" not in budget_page(given).headline
    ways = {row.name: row.is_estimated for row in assumed.alternatives}
    assert ways["static, committed"]
    assert not ways["static, on demand"]
    rented = [row for row in given.alternatives if row.name != "static, owned"]
    assert not any(row.is_estimated for row in rented)
    starred = [row for row in assumed.assumptions if row.how == "assumed"]
    text = markdown(budget_page(assumed))
    for row in starred:
        assert f"{row.value}*" in text.replace("\\*", "*")


def test_too_small_quotas_are_told_with_the_month(made, capsys):
    found = made(quota="committed=2,on-demand=3", spot_share=0, spot_price=None)

    page = budget_page(found)
    print_result(page, ())

    assert page.is_failure
    assert "month 1 needs 13 nodes at its peak" in page.lead
    assert json.loads(json_text(page.values()))["status"] == "infeasible"
    assert capsys.readouterr().out.startswith("Infeasible")
    assert "<svg" not in html(page)


def test_months_are_stacked_one_on_another(made):
    found = made()

    dollars, (hours, ways) = finding(found), budget_figures(found)

    assert dollars.svg.count("fill-opacity") == len(dollars.legend)
    assert {label for label, _ in dollars.legend} >= {"contract", "on demand", "spot"}
    assert "committed, month 36" in hours.svg
    assert ways.legend[0][0] == "on demand"
    assert "NaN" not in html(budget_page(found))


def test_a_month_alone_is_drawn(made):
    found = made(horizon_months=1, commit="none", contract=())

    drawn = [finding(found), *budget_figures(found)]
    assert all("<svg" in figure.svg for figure in drawn)
    usd = found.months[0].bill.usd
    assert drawn[0].title == f"${usd:,.0f} in month 1"


def test_the_bills_follow_from_the_nodes_of_the_hours_and_the_commitments(made):
    found = made(spot_share=0, spot_price=None, horizon_months=30)
    values = json.loads(json_text(budget_values(found)))

    # A slow judge: every half minute of the week, who is paid for what.
    step_s = 30
    at = np.arange(0, 168 * 3600, step_s)
    for month in values["months"]:
        nodes = np.array(month["nodes_by_hour"])
        ahead = np.arange(-30, 360 + 1, step_s)
        paid = nodes[(at[:, None] + ahead) // 3600 % 168].max(axis=1)
        held = [
            row
            for row in values["commitments"]
            if row["first_month"] <= month["month"] <= row["last_month"]
        ]
        committed = sum(row["nodes"] for row in held)
        usd = sum(730 * row["nodes"] * row["usd_per_node_h"] for row in held)
        on_demand = np.maximum(paid - committed, 0).mean() * 730 * 2
        assert month["committed_nodes"] == committed
        assert month["usd_committed"] == pytest.approx(usd)
        # Half a step at both ends of a start.
        assert month["usd_on_demand"] == pytest.approx(on_demand, rel=0.02, abs=1)


def test_extrapolated_replicas_are_starred(made):
    page = budget_page(made(horizon_months=3, anchor_months=1))

    rows = page.csv["budget.csv"]
    replicas = next(each for each in rows.columns if each.name == "replicas")
    texts = [replicas.text(row) for row in rows.rows]
    assert not texts[0].endswith("*")
    assert texts[2].endswith("*")


def test_the_same_budget_gives_the_same_bytes(made):
    first, second = (json_text(budget_values(made())) for _ in range(2))

    assert first == second
