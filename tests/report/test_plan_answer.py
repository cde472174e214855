"""The first screen of a plan: short, in dollars, equal to the figures of the JSON."""

import re
from dataclasses import replace

import pytest

from capplan.planning.load.worst_windows import TimeWindow
from capplan.report.page import LABELS
from capplan.report.pages.plan import plan_page
from capplan.report.plan_answer import (
    _candidate_row,
    _other_gpus,
    next_steps,
    plan_title,
)
from tests.deployments import changed
from tests.report.answered import screen

PLANS = ("plan", "classed", "doubted", "infeasible")


def lines_of(plan, width):
    return screen(plan_page(plan), width).splitlines()


def without_price(plan):
    run = changed(plan.best.run, price=None)
    best = replace(plan.best, run=run, cost=None)
    return replace(plan, best=best, candidates=(best, *plan.candidates[1:]))


@pytest.fixture(name="any_plan", params=[*PLANS, "unpriced", "estimated", "crowded"])
def any_plan_of(request, plan, doubted):
    if request.param == "unpriced":
        return without_price(plan)
    if request.param == "estimated":
        return replace(doubted, best=doubted.best_estimated)
    if request.param == "crowded":
        return replace(plan, warnings=("a warning " * 40,) * 9)
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("width", [80, 100])
def test_the_first_screen_has_at_most_24_lines_within_the_terminal(any_plan, width):
    lines = lines_of(any_plan, width)

    # The line of the files written comes behind it, and at 80 columns the prompt.
    assert len(lines) <= (22 if width == 80 else 23)
    assert max(map(len, (line.rstrip() for line in lines))) <= width


def test_no_row_of_other_ways_is_dashes(any_plan):
    answer = plan_page(any_plan).answer

    assert 1 <= len(answer.instead.rows) <= 6
    for row in answer.instead.rows:
        assert row[4]
        assert "–" not in (row[1], row[2])


def test_labels_stand_in_their_order_and_the_first_line_is_the_title(plan):
    lines = lines_of(plan, 100)

    assert lines[0] == plan_title(plan) == "Rent 3 H100-SXM GPUs for $5,453 a month."
    found = [line.split()[0] for line in lines if line[:2] == "  " and line[2:3] != " "]
    assert [name for name in found if name in LABELS] == list(LABELS)


def test_changes_are_against_the_chosen_row(plan):
    chosen, *others = plan_page(plan).answer.instead.rows

    def usd(text):
        text = text.lstrip("≥").rstrip("*").replace("−", "-").replace("+", "")
        return float(text.replace("$", "").replace(",", ""))

    assert chosen[3] == "–"
    for row in others:
        if row[2]:
            assert usd(row[3]) == pytest.approx(usd(row[2]) - usd(chosen[2]), abs=1)


def test_another_gpu_pays_only_below_the_price_at_which_its_bound_costs_as_much(plan):
    rows = [row for row in plan_page(plan).answer.instead.rows if "pays only" in row[4]]

    assert rows
    for row in rows:
        gpus = int(row[1].lstrip("≥"))
        limit = float(row[4].removeprefix("pays only below $").split(" ")[0])
        assert limit * gpus == pytest.approx(plan.best.cost.usd_per_h, rel=0.01)


def test_without_a_price_the_screen_says_how_to_give_one(plan):
    answer = plan_page(without_price(plan)).answer

    assert answer.cost.short == "unknown: --price H100-SXM=USD_PER_H"
    assert plan_title(without_price(plan)) == (
        "Rent 3 H100-SXM GPUs; their price is not known."
    )


def test_the_first_step_is_on_the_screen_and_all_are_explained(plan):
    steps = list(next_steps(plan))

    page = plan_page(plan)
    (section,) = [part for part in page.sections if part.topic == "next"]
    assert page.answer.next == steps[0]
    assert [text for _, text in section.known_facts] == [step.text for step in steps]


def test_an_estimate_says_the_bill_of_a_slow_engine_in_its_title(doubted):
    plan = replace(doubted, best=doubted.best_estimated)

    usd = plan.best.cautious_usd_per_month
    assert f", up to ${usd:,.0f} if the engine is slow." in plan_title(plan)
    names = [row[0] for row in plan_page(plan).answer.instead.rows]
    assert "with a slow engine" in names


def test_a_gpu_in_doubt_that_is_not_simulated_is_no_way_to_save(plan):
    (row,) = [row for row in plan.candidates if row.gpu == "A100-80GB-SXM"]
    dear = replace(plan.best.cost, usd_per_month=1e6)

    assert "pays only below" in _candidate_row(plan.best, row).told
    assert _candidate_row(replace(plan.best, cost=dear), row) is None
    other = replace(row, status="infeasible", infeasible_reason="not modelled")
    best, alone = replace(plan.best, cost=dear), replace(plan, candidates=(other,))
    (way,) = _other_gpus(alone, best)
    assert way.told == "not modelled"
    assert [*_other_gpus(replace(plan, candidates=(other, row)), best)] == []


def test_one_fewer_that_misses_in_a_window_leaves_room_for_its_bill(plan):
    when = "2026-11-24T14:00", "2026-11-24T14:05"
    low = TimeWindow(300.0, 0.0, 300.0, 75.0, 0.9725, 0.99, (), False, is_judged=True)
    low = replace(low, starts_at=when[0], ends_at=when[1])
    probes = [
        replace(row, windows=(low,), meets=False) if row.replica_count == 2 else row
        for row in plan.best.probes
    ]
    best = replace(plan.best, probes=tuple(probes))
    plan = replace(plan, best=best, candidates=(best, *plan.candidates[1:]))

    shown = "\n".join(lines_of(plan, 100))

    told = "misses: 97.25 % in the worst 5 min"
    assert re.search(rf"1 GPU fewer +2 +\$\S+ +−\$\S+ +{told}", shown)


def test_the_note_of_a_single_candidate_does_not_name_it(plan):
    text = "Llama-3.1-8B on H100-SXM, TP 1: your longest request is beyond"
    others = "no price is known for a GPU", text
    several = replace(plan, warnings=others)
    single = replace(several, candidates=(plan.best,))

    assert plan_page(several).to_check == [text, others[0]]  # of the best first
    assert plan_page(single).to_check == ["your longest request is beyond", others[0]]
    assert single.warnings == others  # plan.json has them whole
