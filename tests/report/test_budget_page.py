"""The page, the tables and the JSON of a budget say the same."""

import csv
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from capplan.cli.main import exit_code
from capplan.planning.budget import budget as budget_module
from capplan.planning.budget.fleets import HOURS
from capplan.planning.budget.result import FleetRow
from capplan.planning.budget.settings import BudgetSettings
from capplan.report import to_files
from capplan.report.budget_why import budget_why
from capplan.report.charts.budget import budget_figures, finding
from capplan.report.pages.budget import budget_page, budget_values
from capplan.report.render.html_page import html
from capplan.report.render.json_text import json_text
from capplan.report.render.markdown import markdown
from capplan.report.render.terminal import print_result
from tests import budgets
from tests.report.answered import screen

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


def test_what_the_hours_rest_on_is_said_first(made):
    page = budget_page(made())

    assert page.lead.startswith("Based on a typical week, not on hours of your own: ")
    assert "100 requests/s at the peak of a typical week*" in page.about
    assert "not your hours*" in page.answer.sure.text


def test_less_than_a_week_is_said_first(made, tmp_path):
    lines = [f"{60 * minute},100,20" for minute in range(3 * 1440)]
    path = tmp_path / "days.csv"

    def of(days):
        head = ["arrival_s,prompt_tokens,output_tokens"]
        path.write_text("\n".join([*head, *lines[: days * 1440]]))
        asked = {"trace": path, "workload": None, "rate": None, "contract": ()}
        return budget_page(made(**asked, compare_fleets=False))

    page, day = of(3), of(1)

    assert page.lead.startswith("Based on 3 days of traffic (a week is better): ")
    told = "Based on one day of traffic (a week is better): reserve 1 H100-SXM GPU"
    assert day.lead.startswith(told)
    assert "3 days of traffic, no week" in page.answer.sure.text
    assert any("less than a week" in text for text in page.warnings)


def test_what_is_owed_is_always_said(made):
    owed = budget_page(made(horizon_months=24, charge="horizon"))
    none = budget_page(made(commit="none", contract=()))

    assert re.search(r"\$[\d,]+ owed after month 24\.$", owed.lead)
    assert re.search(r"; \$[\d,]+ owed later$", owed.answer.cost.text)
    assert none.lead.endswith("Nothing owed after month 36.")
    assert ": rent 5 to 36 H100-SXM GPUs by the hour." in none.headline


SCREENS = {
    "as asked": {},
    "a year": {"horizon_months": 12, "contract": (), "owned": None},
    "a month": {"horizon_months": 1, "commit": "none", "contract": ()},
    "all owed": {"horizon_months": 24, "charge": "horizon"},
    "quoted": {"commit": "reserved:12=40%", "growth": "0%/month"},
    "static": {"fleet": "static", "spot_share": 0, "spot_price": None},
    "contract": {"commit": "none", "contract": "2@1.50:6", "spot_share": 0},
    "euros": {"currency": "EUR", "exchange_rate": 1.1},
    "catalog": {"price": {}, "spot_share": 0, "spot_price": None, "contract": ()},
    "parts": {"growth": "users=40%/year,tokens=1%/month", "anchor_months": 1},
    "scenarios": {
        "horizon_months": 12,
        "scenarios": {
            "low": {"growth": "1%/month", "scale": 0.8},
            "expected": {},
            "high": {"growth": "5%/month", "price": 1.1},
        },
    },
    "quotas": {"quota": "committed=2,on-demand=3", "spot_share": 0, "spot_price": None},
}


@pytest.mark.parametrize("name", SCREENS)
def test_a_budget_is_one_screen_with_the_dollars_of_its_json(made, name):
    given = dict(SCREENS[name])
    if given.get("spot_share") == 0:
        given["spot_price"] = None
    found = made(**given)

    page = budget_page(found)

    assert page.headline.startswith(("Budget ", "No budget within these quotas: "))
    for width in (80, 100):
        lines = screen(page, width).splitlines()
        assert len(lines) <= 24
        assert all(len(line) <= width for line in lines)
    values = json.loads(json_text(page.values()))
    if values["status"] == "infeasible":
        return
    euro = 1.1 if name == "euros" else 1
    symbol = "€" if name == "euros" else "$"

    def told(usd):
        return f"{symbol}{usd / euro:,.0f}"

    assert told(values["usd"]) in page.headline
    assert told(values["months"][-1]["usd"]) in page.answer.cost.text
    rows = page.answer.instead.rows
    ways = [values, *values["alternatives"], *values["scenarios"]]
    usd = {told(row["usd"]) for row in ways}
    changes = {told(abs(row["usd"] - values["usd"])) for row in ways}
    assert 1 < len(rows) <= 6
    for row in rows:
        assert row[2].rstrip("*") in usd
        assert row[3].lstrip("+−") in changes or row[-1]


def test_the_title_alone_is_line_1(capsys):
    given = {**budgets.ASKED, "months": 12, "commit": "none"}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]

    code = exit_code(["budget", *flags, "--format", "title"])

    line = "Budget $162,659 for 12 months: rent 5 to 13 H100-SXM GPUs by the hour.\n"
    assert code == 0
    assert capsys.readouterr().out == line


@pytest.mark.parametrize("topic", ["count", "price", "sure", "assumptions", "next"])
def test_a_topic_of_a_budget_is_explained(made, topic, capsys):
    print_result(budget_page(made()), (), topic)

    shown = capsys.readouterr().out
    assert shown.startswith("Budget $")
    assert "Nothing is told" not in shown


def test_the_hours_of_the_last_node_reserved_and_the_break_even_are_the_why(made):
    given = {"contract": (), "spot_share": 0, "spot_price": None}
    found, grown = made(**given, growth="0%/month"), made(**given)

    facts = dict(budget_why(found))

    use, month = found.commitments[0], found.months[0]
    node, of = month.bill.committed_nodes, month.hours
    used, more = (of.hours[of.nodes >= count].sum() for count in (node, node + 1))
    assert used > 730 * use.break_even > more
    assert facts["reserved"] == (
        f"node {node} is used {used:.0f} h, node {node + 1} would be used {more:.0f} h "
        f"a month; {use.held.name} pays from {730 * use.break_even:.0f} of 730 h on"
    )
    # 8 requests/s a replica: 100 x 1.03^35 take 36; month 24 was simulated too.
    assert dict(budget_why(grown))["peak of month 36"] == (
        "281 requests/s in its busiest minute take 36 replicas, as simulated; 25 are "
        "enough for 197 requests/s"
    )
    assert "<h2>Why this many nodes</h2>" in html(budget_page(found))


def test_terms_longer_than_a_budget_are_the_why_of_none(made):
    short = dict(budget_why(made(horizon_months=2, contract=(), fleet="static")))
    hourly = dict(budget_why(made(commit="none")))

    assert short["reserved"] == "none: no term pays within the 2 months of the budget"
    assert not hourly["reserved"]
    assert hourly["at that peak"].startswith("36 nodes for ")


def test_scenarios_and_owned_nodes_stand_before_other_ways(made):
    asked = {"horizon_months": 12, "contract": (), **SCREENS["scenarios"]}

    names = [row[0] for row in budget_page(made(**asked)).answer.instead.rows]

    assert names == [
        "by traffic, base reserved, some spot",
        "scenario low",
        "scenario high",
        "peak at all hours, owned",
        "by traffic, base reserved",
    ]


def test_an_assumed_price_is_the_next_thing_to_ask_for(made):
    assumed = budget_page(made(commit="reserved:12")).answer
    quoted = budget_page(made(commit="reserved:12=40%", contract=())).answer
    typical = "give a week of your own hours · --trace log.csv"

    assert "no quote for 12 months (35 % off assumed)" in assumed.sure.text
    assert assumed.next.text.endswith("--commit reserved:12=USD")
    assert quoted.next.text == typical


def test_hours_that_miss_on_the_trace_are_not_said_to_hold(made):
    of_hours = FleetRow(HOURS, "", 0.995, 0.987, False, 4, 2.4, 18218.0, 3, 22980.0)
    found = replace(made(), fleets=(of_hours,))

    by_minute, by_ten = (
        budget_page(replace(found, curve=replace(found.curve, window_s=window_s)))
        for window_s in (60.0, 600.0)
    )

    peak = by_ten.answer.peak
    assert peak.short == "misses on your trace"
    assert peak.more == "98.7 % in time in its worst hour, asked 99 %"
    assert by_ten.answer.next.more == "--window 1m"
    assert by_minute.answer.next.more == "--fleet static"


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
    line = "No budget within these quotas: month 1 needs 13 nodes at its peak.\n"
    assert capsys.readouterr().out.startswith(line)
    assert "<svg" not in html(page)


def test_months_are_stacked_one_on_another(made):
    found = made()

    dollars, (hours,) = finding(found), budget_figures(found)

    assert dollars.svg.count("fill-opacity") == len(dollars.legend)
    assert {label for label, _ in dollars.legend} >= {"contract", "on demand", "spot"}
    assert any("committed, month 36" in label for label, _ in hours.legend)
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
