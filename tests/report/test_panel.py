"""The panel of a page: its script bills as the commands do, to the cent."""

import json
import random
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from capplan.currency import Currency
from capplan.fleet.price import Price
from capplan.planning.budget import budget as budget_module
from capplan.planning.budget.settings import BudgetSettings
from capplan.planning.plan.plan import plan as planned
from capplan.planning.settings.plan import PlanSettings
from capplan.planning.what_if.what_if import Cell, WhatIf
from capplan.report import panels
from capplan.report.pages.budget import budget_page
from capplan.report.pages.plan import plan_page
from capplan.report.pages.what_if import what_if_page
from capplan.report.paid import Paid, paid
from capplan.report.panels import budget_panel, plan_panel, what_if_panel
from capplan.report.provenance import note_arguments
from capplan.report.render import html_page
from capplan.report.render.html_page import html
from capplan.units import shown_in
from tests import budgets

SCRIPT = Path(html_page.__file__).with_name("panel.js").read_text()
NODE, CHROMIUM = shutil.which("node"), shutil.which("chromium")
with_node = pytest.mark.skipif(NODE is None, reason="node is not installed")
with_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not here")
CENT = 0.005


def setting(panel, **changed):
    """Return what a reader sets, by default as planned."""
    prices = [value for _, value in panel.prices]
    choices = [0] * len(panel.choices)
    start = {"choices": choices, "prices": prices, "discount": 0, "hours": 24}
    return {**start, **changed}


def billed(panel, *settings):
    """Return what the script of the page makes of each setting."""
    document = json.dumps([panel._asdict(), settings])
    code = (
        f"{SCRIPT}\nconst [panel, sets] = {document};"
        "console.log(JSON.stringify(sets.map((set) => billed(panel, set))));"
    )
    done = subprocess.run([NODE, "-e", code], capture_output=True, check=True)
    return [row["usd"] for row in json.loads(done.stdout)]


@pytest.fixture(name="two")
def two_kinds(monkeypatch, plan):
    """Return a plan on nodes of two sizes, and of two GPU types for two pools."""
    h100 = {"source": "list", "provider": "A"}
    large = Price(2.5, **h100, node="8x", gpus_per_node=8)
    small = Price(3.25, **h100, node="1x", gpus_per_node=1)
    other = Price(1.10, source="list", node="l4", gpus_per_node=4, is_guess=True)
    rows = (
        Paid("H100-SXM", (), large, 3, 8, 0),
        Paid("H100-SXM", (), small, 2, 1, 0),
        Paid("L4", (), other, 5, 4, 1),
    )
    monkeypatch.setattr(panels, "paid", lambda _: rows)
    return plan


@with_node
def test_as_planned_the_panel_is_the_bill_to_the_cent(plan):
    panel = plan_panel(plan)

    (usd,) = billed(panel, setting(panel))

    assert usd == pytest.approx([plan.best.cost.usd_per_month] * 12, abs=CENT)
    assert sum(usd) == pytest.approx(plan.best.cost.usd_per_year, abs=CENT)


@with_node
def test_another_price_is_the_bill_of_a_plan_with_that_price(settings, plan):
    asked = settings | {"gpu": ("H100-SXM",), "price": {"H100-SXM": "3.17/gpu"}}
    dearer = planned(PlanSettings(**asked))
    panel = plan_panel(plan)

    (usd,) = billed(panel, setting(panel, prices=[3.17]))

    assert dearer.best.gpu_count == plan.best.gpu_count
    assert usd[0] == pytest.approx(dearer.best.cost.usd_per_month, abs=CENT)


@with_node
def test_prices_discount_and_hours_multiply_all_nodes_of_the_bill(two):
    panel, rng = plan_panel(two), random.Random(0)
    sets = [
        setting(
            panel,
            prices=[rng.choice([0, round(rng.uniform(0, 9), 2)]) for _ in range(3)],
            discount=rng.choice([0, 100, rng.randint(0, 100)]),
            hours=rng.randint(1, 24),
        )
        for _ in range(200)
    ]

    found = billed(panel, *sets)

    for usd, at in zip(found, sets, strict=True):
        large, small, other = at["prices"]
        hour = 3 * 8 * large + 2 * small + 5 * 4 * other
        month = 730 * hour * (100 - at["discount"]) / 100 * at["hours"] / 24
        assert usd == pytest.approx([month] * 12, abs=CENT)


def test_each_price_says_of_which_nodes_it_is_and_whether_it_is_assumed(two):
    assert [label for label, _ in plan_panel(two).prices] == [
        "Price of a GPU-hour of H100-SXM, 8x, $",
        "Price of a GPU-hour of H100-SXM, 1x, $",
        "Price of a GPU-hour of L4, l4, $*, assumed",
    ]


@with_node
def test_hours_a_day_cost_nothing_less_where_nodes_are_kept(monkeypatch, plan):
    (row,) = paid(plan.best)
    kinds = {"kind": "reserved, 12 months"}, {"note": "rented for 3 months at least"}
    for changed in kinds:
        kept = replace(row, price=replace(row.price, **changed))
        monkeypatch.setattr(panels, "paid", lambda _, kept=kept: (kept,))
        panel = plan_panel(plan)

        (usd,) = billed(panel, setting(panel, hours=1))

        assert usd[0] == pytest.approx(plan.best.cost.usd_per_month, abs=CENT)
        assert 'name="hours"' not in html(plan_page(plan))


def test_what_would_need_a_simulation_stands_with_its_command(plan):
    page = html(plan_page(plan))
    note_arguments(["plan"])
    try:
        of_command = html(plan_page(plan), "my plans")
    finally:
        note_arguments([])

    assert "capplan budget plan.json --growth 3%/month" in page
    assert "capplan what-if plan.json --attainment 0.95,0.99,0.999" in page
    assert "capplan budget &#39;my plans/plan.json&#39; --growth" in of_command


def test_users_grow_by_their_number(plan):
    asked = replace(plan, asked_by="40 users", settings={"users": 40})

    commands = [command for _, _, command in plan_panel(asked).fixed]

    assert "capplan what-if PLAN.json --vary users=40,80" in commands


def test_without_a_price_or_an_answer_there_is_no_panel(plan, infeasible):
    unpriced = replace(plan, best=replace(plan.best, cost=None))

    for each in (unpriced, infeasible):
        assert plan_panel(each) is None
        assert "<script" not in html(plan_page(each))


def test_without_a_script_the_page_shows_the_bill_and_hides_what_sets_it(plan):
    page = html(plan_page(plan))

    assert '<div class="set" hidden>' in page
    figures = re.findall(r"<b>(\$[\d,]+)</b>", page)
    usd = plan.best.cost.usd_per_month
    assert figures == [f"${usd:,.0f}", f"${12 * usd:,.0f}"]


@with_node
def test_another_currency_is_billed_by_its_own_prices(plan):
    with shown_in(Currency("EUR", 1.1)):
        panel = plan_panel(plan)

    planned_usd, other = billed(panel, setting(panel), setting(panel, prices=[2.0]))

    gpus = sum(row.gpus_paid for row in paid(plan.best))
    assert panel.symbol == "€"
    assert planned_usd[0] == pytest.approx(plan.best.cost.usd_per_month / 1.1, abs=CENT)
    assert other[0] == pytest.approx(730 * gpus * 2.0, abs=CENT)


@pytest.fixture(name="budgeted")
def budget_of(monkeypatch):
    budgets.stub_plans(monkeypatch)

    def make(**more):
        asked = {**budgets.ASKED, "growth": "3%/month", "horizon_months": 18, **more}
        return budget_module.budget(BudgetSettings(**asked))

    return make


def monthly(budget):
    return [month.bill.usd for month in budget.months]


@with_node
def test_months_of_each_scenario_are_those_of_a_budget_to_the_cent(budgeted):
    named = {"high": {"growth": "5%/month"}, "dear": {"price": 1.25}}
    panel = budget_panel(budgeted(scenarios=named))
    judge = [monthly(budgeted()), monthly(budgeted(growth="5%/month"))]
    sets = [setting(panel, choices=[k, year]) for k in (0, 1) for year in (0, 1)]
    dearer = setting(panel, choices=[0, 0], prices=[1.25])

    *found, times, scenario = billed(
        panel, *sets, dearer, setting(panel, choices=[2, 0])
    )

    years = [usd[first : first + 12] for usd in judge for first in (0, 12)]
    for usd, expected in zip(found, years, strict=True):
        assert usd == pytest.approx(expected, abs=CENT)
    assert times == pytest.approx(scenario, abs=CENT)


def test_contracts_keep_the_prices_of_a_budget_as_they_are(budgeted):
    panel = budget_panel(budgeted(contract="2@1.50:6"))

    assert panel.prices == []
    assert "--scenarios dear:price=1.1" in panel.fixed[-1][2]


@pytest.fixture(name="grid")
def grid_of(plan, infeasible):
    """Return plans of two rates by two targets; the last is infeasible."""
    asked = PlanSettings(llm="Llama-3.1-8B", rate=10, slo="ttft=1s")
    cells = []
    for k, (rate, share) in enumerate([("5", ".9"), ("5", ".99"), ("9", ".9")]):
        cost = replace(plan.best.cost, usd_per_month=1000.25 * (k + 1))
        one = replace(plan, best=replace(plan.best, cost=cost))
        values = {"rate": rate, "attainment": share}
        cells.append(Cell(values, "feasible", asked, one))
    last = {"rate": "9", "attainment": ".99"}
    cells.append(Cell(last, "infeasible", asked, infeasible, "<b>missed</b>"))
    vary = {"rate": ("5", "9"), "attainment": (".9", ".99")}
    return WhatIf(tuple(cells), vary, "sharegpt", 0)


@with_node
def test_selects_of_a_what_if_choose_its_cells(grid):
    panel = what_if_panel(grid, {})
    chosen = [(0, 0), (0, 1), (1, 0), (1, 1)]

    found = billed(panel, *(setting(panel, choices=[*at]) for at in chosen))

    for usd, cell in zip(found[:3], grid.cells[:3], strict=True):
        assert usd == pytest.approx([cell.best.cost.usd_per_month] * 12, abs=CENT)
    assert found[3] == []


def test_texts_of_a_panel_are_escaped(grid, budgeted):
    page = html(what_if_page(grid))
    named = html(budget_page(budgeted(scenarios={"</script><b>": {"scale": 2}})))

    assert "<b>missed" not in page
    assert "</script><b>" not in named


def test_plans_without_prices_have_no_panel(grid):
    best = replace(grid.cells[0].best, cost=None)
    cells = [replace(c, plan=replace(c.plan, best=best)) for c in grid.cells[:3]]

    assert what_if_panel(replace(grid, cells=tuple(cells)), {}) is None


def in_browser(page, tmp_path, code):
    """Return the page's text after code has run in it."""
    file = tmp_path / "page.html"
    file.write_text(page.replace("</main>", f"</main><script>{code}</script>"))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    folder = f"--user-data-dir={tmp_path / 'user'}"
    command = [CHROMIUM, *options, folder, file.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120).stdout


@with_chromium
def test_in_a_browser_the_bill_follows_and_as_planned_resets(plan, tmp_path):
    page = html(plan_page(plan))
    move = (
        "const root = document.querySelector('.panel'), bill = () =>"
        " root.querySelector('.bill b').textContent;"
        "const set = (name, value) => { const input ="
        " root.querySelector(`[name=${name}]`); input.value = value;"
        " input.dispatchEvent(new Event('input')); };"
        "const seen = [bill()]; set('price', 3); set('discount', 10); set('hours', 12);"
        "seen.push(bill()); root.querySelector('button').click(); seen.push(bill());"
        "document.title = seen.join(' ');"
    )

    shown = in_browser(page, tmp_path, move)

    usd, count = plan.best.cost.usd_per_month, plan.best.gpu_count
    cheap = 730 * 3 * count * 0.9 / 2
    assert f"<title>${usd:,.0f} ${cheap:,.0f} ${usd:,.0f}</title>" in shown
    assert '<div class="set">' in shown
