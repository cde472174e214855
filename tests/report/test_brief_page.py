"""plan.md: one page with the answer, its cost, its command, and what was assumed."""

import re
from dataclasses import replace

from capplan.report.pages.brief import MOST_ROWS, brief_page
from capplan.report.pages.plan import plan_page
from capplan.report.render.markdown import markdown


def headings(text):
    return re.findall(r"^## (.+)$", text, re.MULTILINE)


def test_it_reads_from_the_answer_to_the_candidates(plan):
    text = markdown(brief_page(plan))

    assert text.startswith("# Rent 3 H100-SXM GPUs for $5,453 a month.")
    assert headings(text) == [
        "Cost",
        "Nodes, months and commitments",
        "Why this many GPUs",
        "Start each replica with",
        "What was assumed",
        "Candidates",
    ]
    assert "| per month | 730 h | × $7.47 per hour | = $5,453 |" in text
    assert "| per year | 8,760 h | × $7.47 per hour | = $65,437 |" in text
    assert "vllm serve" in text


def test_it_is_shorter_than_the_report_and_keeps_its_warnings(plan):
    brief, whole = (markdown(page(plan)) for page in (brief_page, plan_page))

    assert len(brief) < len(whole)
    for warning in plan.warnings:
        assert warning.split(" ")[0] in brief
    assert brief_page(plan).warnings == plan.warnings


def test_a_plan_without_an_answer_says_why_each_candidate_fails(infeasible):
    text = markdown(brief_page(infeasible))

    assert text.startswith("# No GPU named here holds ttft ≤ 1 s, tpot ≤ 1 ms.")
    assert "TPOT takes 7.03 ms at least, not 1 ms" in text
    assert "Cost" not in headings(text)


def test_many_candidates_and_assumptions_are_cut_and_counted(plan):
    many = replace(
        plan, candidates=plan.candidates * 30, assumptions=plan.assumptions * 30
    )

    text = markdown(brief_page(many))

    assert f"{len(many.candidates) - MOST_ROWS} more are in plan.csv." in text
    assert text.count("\n| H100-SXM |") <= MOST_ROWS
    assert len(text) < 30_000


def test_a_name_is_no_markup(plan):
    text = markdown(brief_page(replace(plan, llm="<b>|`x`")))

    assert "<b>" not in text.replace("\\<b\\>", "")
    assert "\\|" in text
