"""Plans side by side: the table, the JSON, the charts, in words and by hand."""

import csv
import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from capplan.planning.settings.plan import PlanSettings
from capplan.planning.what_if.what_if import Cell, WhatIf
from capplan.report.pages.what_if import what_if_page, what_if_values
from capplan.report.render.csv_table import table_csv
from capplan.report.render.html_page import html
from capplan.report.render.json_text import json_text
from capplan.report.render.markdown import markdown
from capplan.report.render.terminal import print_page
from tests.deployments import changed
from tests.report.answered import screen

SETTINGS = PlanSettings(llm="Llama-3.1-70B", rate=10, slo="ttft=1s", seed=3)


@pytest.fixture(name="cell")
def cell_of(plan, best):
    """Return a function from values and a count to a cell; without one infeasible."""

    def make(count, rate_per_s, **values):
        values = {name.replace("_", "-"): text for name, text in values.items()}
        if count is None:
            asked = replace(plan, best=None, rate_per_s=rate_per_s)
            why = "TPOT is missed"
            return Cell(values, "infeasible", SETTINGS, asked, why)
        run = changed(best.run, count)
        usd = replace(best.cost, usd_per_h=2.0 * count, usd_per_month=1460.0 * count)
        row = replace(best, run=run, cost=usd)
        asked = replace(plan, best=row, rate_per_s=rate_per_s)
        return Cell(values, "feasible", SETTINGS, asked)

    return make


@pytest.fixture(name="grid")
def grid_of(cell):
    return WhatIf(
        (
            cell(2, 5.0, rate="x0.5", slo_scale="1"),
            cell(1, 5.0, rate="x0.5", slo_scale="1.25"),
            cell(4, 10.0, rate="x1", slo_scale="1"),
            cell(None, 10.0, rate="x1", slo_scale="1.25"),
        ),
        {"rate": ("x0.5", "x1"), "slo-scale": ("1", "1.25")},
        "sharegpt",
        3,
        ("careful",),
    )


def printed(result, width=200):
    out = io.StringIO()
    print_page(what_if_page(result), Console(file=out, width=width, highlight=False))
    return [" ".join(line.split()) for line in out.getvalue().splitlines() if line]


def test_the_answer_names_the_plans_that_cost_least_and_most(grid):
    page = what_if_page(grid)

    gpus = grid.cells[1].best.gpu_count
    assert page.headline == (
        "$1,460 a month at 0.5 × the traffic, limits × 1.25, $5,840 a month at 1 × the "
        "traffic, limits × 1."
    )
    answer = page.answer
    assert page.lead == "3 of 4 plans hold; the dearest costs 4 times the cheapest."
    assert answer.buy.short == f"{gpus} to {4 * gpus} GPUs"
    assert answer.peak == (
        "misses in 1 of 4",
        "1 × the traffic, limits × 1.25: TPOT is missed",
    )
    assert [row[:4] for row in answer.instead.rows] == [
        ("x0.5, 1", f"{2 * gpus}", "$2,920", "−$2,920"),
        ("x0.5, 1.25", f"{gpus}", "$1,460", "−$4,380"),
        ("x1, 1", f"{4 * gpus}", "$5,840", "–"),
        ("x1, 1.25", "", "", ""),
    ]


@pytest.mark.parametrize("width", [80, 100])
def test_the_first_screen_has_at_most_24_lines_within_the_terminal(cell, width):
    llms = [f"an LLM of a long name {k}" for k in range(9)]
    cells = [cell(k + 1, 5.0, llm=name) for k, name in enumerate(llms)]
    many = WhatIf(tuple(cells), {"llm": tuple(llms)}, "sharegpt", 0, ("text " * 99,))
    page = what_if_page(many)

    lines = [line.rstrip() for line in screen(page, width).splitlines()]

    assert len(lines) <= (22 if width == 80 else 23)
    assert max(map(len, lines)) <= width
    assert len(page.answer.instead.rows) == 6


def test_a_long_reason_stays_within_the_terminal_and_one_plan_is_named(cell):
    why = (
        "H100-SXM × TP 1: TPOT takes 6.52 ms at least, not 1.5 ms; with each alone " * 3
    )
    cells = (
        replace(cell(None, 5.0, slo_scale="0.05"), reason=why),
        cell(2, 5.0, slo_scale="1"),
    )
    page = what_if_page(WhatIf(cells, {"slo-scale": ("0.05", "1")}, "sharegpt", 0))

    lines = screen(page, 80).splitlines()

    assert page.headline == "$2,920 a month at limits × 1."
    assert max(len(line.rstrip()) for line in lines) <= 80
    told = page.answer.instead.rows[0][4]
    assert told == "misses: TPOT takes 6.52 ms at least, not 1.5 ms"


def test_what_was_asked_first_is_what_others_are_told_against(cell):
    cells = [cell(k + 1, 5.0, rate=rate) for k, rate in enumerate(("5", "10", "20"))]
    result = WhatIf(tuple(cells), {"rate": ("5", "10", "20")}, "sharegpt", 0)

    asked = replace(result, settings={"rate": 10})
    chosen = [row[0] for row in what_if_page(asked).answer.instead.rows if row[-1]]
    assert chosen == ["10"]
    chosen = [row[0] for row in what_if_page(result).answer.instead.rows if row[-1]]
    assert chosen == ["5"]


def test_a_choice_that_costs_less_is_what_to_do_next(cell):
    cells = (cell(3, 5.0, provider="A"), cell(2, 5.0, provider="B"))
    result = WhatIf(cells, {"provider": ("A", "B")}, "sharegpt", 0)

    page = what_if_page(result)

    assert page.answer.next == ("take provider B", "saves $1,460 a month")
    told = [("1", page.answer.next.text)]
    assert [x.facts for x in page.sections if x.topic == "next"] == [told]


def test_plans_that_take_the_same_are_told_once(cell):
    same = (cell(2, 5.0, llm="A"), cell(2, 5.0, llm="B"))
    page = what_if_page(WhatIf(same, {"llm": ("A", "B")}, "sharegpt", 0))

    assert page.headline == "$2,920 a month in each of 2 plans."


def test_each_plan_is_a_row_and_an_infeasible_one_says_why(grid):
    lines = printed(grid)

    rows = [line for line in lines if line.startswith(("x0.5", "x1"))]
    assert [row.split()[:3] for row in rows] == [
        ["x0.5", "1", "5"],
        ["x0.5", "1.25", "5"],
        ["x1", "1", "10"],
        ["x1", "1.25", "10"],
    ]
    assert "$2,920" in rows[0]
    assert rows[3].split()[3:] == ["–"] * (len(rows[3].split()) - 3)
    assert "rate x1, slo-scale 1.25 TPOT is missed" in lines


def test_json_has_what_is_varied_and_what_it_takes(grid):
    document = json.loads(json_text(what_if_values(grid)))

    first, *_, last = document["cells"]
    assert document["vary"] == {"rate": ["x0.5", "x1"], "slo_scale": ["1", "1.25"]}
    assert (first["rate"], first["slo_scale"], first["rate_per_s"]) == (
        "x0.5",
        1,
        5,
    )
    assert first["usd_per_month"] == 2920
    assert first["gpu_count"] == grid.cells[0].best.gpu_count
    assert first["slo_attainment"] == grid.cells[0].best.run.judgement.attainment.share
    assert first["settings"] == {
        "llm": "Llama-3.1-70B",
        "rate": 10.0,
        "slo": ["ttft=1s"],
        "seed": 3,
    }
    assert (last["status"], last["gpu_count"]) == ("infeasible", None)
    assert last["reason"] == "TPOT is missed"


def test_csv_has_each_name_once_and_the_figures_of_the_json(grid):
    text = table_csv(what_if_page(grid).csv["whatif.csv"])

    names, first, *rest = csv.reader(io.StringIO(text))
    row = dict(zip(names, first, strict=True))
    assert len(names) == len(set(names))
    assert (row["rate"], row["slo_scale"], row["usd_per_month"]) == (
        "x0.5",
        "1.0",
        "2920.0",
    )
    assert len(rest) == 3


def test_a_varied_gpu_is_not_hidden_by_that_of_the_best(cell):
    cells = (cell(1, 5.0, gpu="H100"), cell(None, 5.0, gpu="L4"))
    result = WhatIf(cells, {"gpu": ("H100", "L4")}, "sharegpt", 0)

    document = json.loads(json_text(what_if_values(result)))

    assert [row["gpu"] for row in document["cells"]] == ["H100", "L4"]
    heading = table_csv(what_if_page(result).csv["whatif.csv"]).splitlines()[0]
    assert heading.split(",").count("gpu") == 1


def test_amounts_are_drawn_as_lines_and_names_as_bars(grid, cell):
    llms = (cell(1, 5.0, llm="<A>"), cell(2, 5.0, llm="B"))
    names = WhatIf(llms, {"llm": ("<A>", "B")}, "sharegpt", 0)

    lines, bars = (html(what_if_page(result)) for result in (grid, names))

    assert "GPUs against requests/s" in lines
    assert (
        "From $1,460 a month (rate x0.5, slo-scale 1.25) to $5,840 (rate x1, "
        "slo-scale 1)" in lines
    )
    assert "against requests/s" not in bars
    assert lines.count('<path class="line"') == 2 * 2  # a line for each slo-scale
    assert "1 infeasible plan not drawn." in lines
    assert '<path class="line"' not in bars
    assert bars.count('height="15" fill=') == 2 * 2
    assert "&lt;A&gt;" in bars
    assert "<A>" not in bars


def test_nothing_feasible_says_why(cell):
    cells = (cell(None, 5.0, rate="x1"), cell(None, 9.0, rate="x2"))
    page = what_if_page(WhatIf(cells, {"rate": ("x1", "x2")}, "sharegpt", 0))

    assert page.is_failure
    assert page.headline == "None of 2 plans holds."
    assert [row[4] for row in page.answer.instead.rows] == [
        "misses: TPOT is missed"
    ] * 2
    assert "None of 2 plans holds." in html(page)
    assert "None of 2 plans holds." in markdown(page)


def test_markdown_has_the_table(grid):
    text = markdown(what_if_page(grid))

    assert "| rate | limits × |" in text
    assert "| x0.5 | 1 |" in text


def why(result):
    part = next(
        x for x in what_if_page(result).sections if x.heading == "Why this bill"
    )
    assert part.topic == "count"
    return dict(part.known_facts)


def bound_by(cell, binding):
    best = replace(cell.plan.best, binding=binding)
    return replace(cell, plan=replace(cell.plan, best=best))


def test_each_step_of_a_lever_is_priced_the_one_that_moves_most_first(grid, best):
    gpus = best.configuration.gpus

    facts = why(grid)

    assert facts["moves the answer most"] == "rate, by $2,920 a month"
    assert facts["rate"] == f"x0.5 → x1: +$2,920 a month (+{2 * gpus} GPUs)"
    assert facts["slo-scale"] == "1.25: misses"
    assert [*facts][:3] == ["moves the answer most", "rate", "slo-scale"]
    assert "moves nothing" not in facts


def test_a_lever_that_moves_no_bill_is_named_and_what_limits_the_plans(cell):
    cells = [
        cell(count, rate, rate=f"{rate:g}", router=router)
        for rate, count in ((5.0, 2), (9.0, 1))
        for router in ("least-kv", "round-robin")
    ]
    bound = [bound_by(x, "KV" if x is cells[0] else "TPOT") for x in cells]
    vary = {"rate": ("5", "9"), "router": ("least-kv", "round-robin")}

    facts = why(WhatIf(tuple(bound), vary, "sharegpt", 3))

    assert facts["moves nothing"] == "router"
    assert facts["rate"].startswith("5 → 9: −$1,460 a month (−")
    assert facts["limited by"] == (
        "KV memory: it is full while requests wait (1 plan); "
        "TPOT, the limit missed most often (3 plans)"
    )


def test_without_a_price_the_steps_are_gpus_and_without_an_answer_there_are_none(cell):
    cells = [cell(2, 5.0, rate="5"), cell(3, 9.0, rate="9")]
    free = [
        replace(x, plan=replace(x.plan, best=replace(x.plan.best, cost=None)))
        for x in cells
    ]
    none = WhatIf((cell(None, 5.0, rate="5"),), {"rate": ("5",)}, "sharegpt", 3)

    facts = why(WhatIf(tuple(free), {"rate": ("5", "9")}, "sharegpt", 3))

    gpus = cells[0].best.configuration.gpus
    assert facts["rate"] == f"5 → 9: +{gpus} GPU{'s' * (gpus > 1)}"
    assert "moves the answer most" not in facts
    assert why(none) == {}
