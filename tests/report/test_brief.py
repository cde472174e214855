"""plan.md: one page with the answer, other ways, what to check and the commands."""

import re
from dataclasses import replace

from capplan.report.pages.plan import plan_page
from capplan.report.render.markdown import brief, markdown
from tests.report.answered import ANSWER, PAGE, crowded

PAGE_LINES = 60
"""Lines of a page of paper."""


def headings(text):
    return re.findall(r"^## (.+)$", text, re.MULTILINE)


def test_it_reads_from_the_title_to_the_commands():
    text = brief(PAGE)

    order = [
        "# Rent 6 B200-SXM GPUs for $29,740 a month.",
        "gpt-oss-120b · 300 requests/s",
        r"- **Buy** 6 × B200-SXM · 6 replicas × 1 GPU, on demand at $6.79",
        "- **Does the peak hold?** holds, 3 % to spare · 99.51 % in time, asked 99 %",
        "- **Do next** test one B200 for an hour · about $7",
        "| instead | GPUs | a month | change | peak |",
        "| 1 GPU fewer | 5 | $24,784 | −$4,957 | misses: tpot 36 ms, not 30 |",
        "≥ at least, not simulated",
        "- ask for a quote for a year",
        "- contexts are long",
        "```sh\ncapplan verify plan.json\n```",
    ]
    places = [text.index(each) for each in order]
    assert places == sorted(places)
    assert headings(text) == ["Before you sign", "Repeat it"]


def test_it_is_one_page_of_a_plan_and_of_a_crowded_page_and_counts_what_is_left(plan):
    for page in (plan_page(plan), crowded()):
        assert len(brief(page).splitlines()) <= PAGE_LINES

    assert "14 more are in report.md." in brief(crowded())


def test_the_report_has_the_same_and_all_sections(plan):
    page = plan_page(plan)

    whole = markdown(page)

    for line in brief(page).splitlines():
        assert line in whole
    assert {"Candidates", "Cost"} <= set(headings(whole))


def test_a_plan_without_an_answer_says_why_each_candidate_fails(infeasible):
    text = brief(plan_page(infeasible))

    assert text.startswith("# No GPU named here holds ttft ≤ 1 s, tpot ≤ 1 ms.")
    assert "TPOT takes 7.03 ms at least, not 1 ms" in text
    assert "capplan verify" not in text


def test_names_and_what_is_said_are_no_markup():
    said = ANSWER.buy._replace(short="<b>|`x`")

    text = brief(replace(PAGE, about="<i>", answer=ANSWER._replace(buy=said)))

    assert "<" not in text.replace("\\<", "")
    assert "\\|" in text
