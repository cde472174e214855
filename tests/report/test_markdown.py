"""Markdown: tables that a reader renders, and no markup from a trace."""

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from capplan.report.columns import column
from capplan.report.page import Page, Section, Table
from capplan.report.pages.plan import plan_page
from capplan.report.render.markdown import markdown


def page_of(text):
    table = Table([column("", text, justify="left", path="0")], [(text,)], text, text)
    section = Section("Part", [("label", text)], [table], notes=[text])
    return Page("own", text, text, [section], dict, lead=text, warnings=(text,))


def test_the_answer_is_the_title_and_tables_have_as_many_cells_in_each_row(plan):
    lines = markdown(plan_page(plan)).splitlines()

    assert lines[0] == "# Rent 3 H100-SXM GPUs for $5,453 a month."
    at = next(k for k, line in enumerate(lines) if line.startswith("| GPU | TP |"))
    cells = [line.count("|") for line in lines[at : at + 4]]
    assert cells == [cells[0]] * 4


def test_the_command_is_a_block_that_its_text_does_not_end(plan, best):
    words = ("vllm", "serve", "a```b")
    launch = replace(best.launch, words=words)

    text = markdown(plan_page(replace(plan, best=replace(best, launch=launch))))

    assert "````sh\nvllm serve 'a```b'\n````\n" in text


@given(st.text("ab|*_<>[]`#\\\n", min_size=1, max_size=12))
def test_text_from_outside_is_no_markup(text):
    plain = re.sub(r"\\.", "", markdown(page_of(f"x{text}y")))

    for line in plain.splitlines():
        assert line.count("|") in (0, 2)
        assert not re.search(r"[`<\[\]]", line)


def test_files_that_hold_the_same_numbers_are_named(plan, classed):
    assert "in plan.json, plan.csv, lengths.csv, " in markdown(plan_page(plan))
    assert "in plan.json, plan.csv, classes.csv, " in markdown(plan_page(classed))
