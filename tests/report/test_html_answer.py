"""report.html of a page with a first screen: what stands, what folds, what prints."""

import re
from dataclasses import replace

import pytest

from capplan.report.provenance import note_arguments
from capplan.report.render.html_page import html
from tests.report.answered import ANSWER, PAGE, crowded


def body(page, folder="out"):
    text = html(page, folder)
    return text[text.index("<main") :]


@pytest.fixture
def called():
    note_arguments(["plan", "--rate", "300", "--out", "out"])
    yield
    note_arguments([])


def test_it_reads_from_the_title_to_the_commands_and_the_rest_folds(called):
    text = body(PAGE)

    order = [
        "prices of 7 October 2026",
        "<h1>Rent 6 B200-SXM GPUs for $29,740 a month.</h1>",
        "gpt-oss-120b · 300 requests/s",
        "They serve the daily peak.",
        *("Buy", "Cost", "Does the peak hold?", "How sure?", "Do next"),
        "<h2>6 GPUs carry the day</h2>",
        "<h2>Other ways</h2>",
        '<section class="second">',
        "<h2>Your price, your growth</h2>",
        "<h2>Why 6 and not 5</h2>",
        "<h2>Before you sign</h2>",
        *("ask for a quote for a year", "contexts are long"),
        "<h2>Repeat it</h2>",
        "capplan plan --rate 300 --out out\ncapplan verify out/plan.json</pre>",
        '<details class="rest"><summary>Everything else',
        "vllm serve x",
        "</details>",
    ]
    places = [text.index(each) for each in order]
    assert places == sorted(places)
    assert text.count("<details") == 1


def test_tiles_say_the_short_text_large_and_the_rest_small_by_their_state():
    text = body(PAGE)

    assert (
        '<div class="tile peak good"><dt>Does the peak hold?</dt><dd>holds, 3\xa0% to '
        "spare<small>99.51\xa0% in time, asked 99\xa0%</small></dd></div>" in text
    )
    assert '<div class="tile sure warn">' in text
    assert text.count('<div class="tile') == 5


def test_the_chosen_way_stands_out_and_each_verdict_has_its_state():
    text = body(PAGE)

    rows = re.findall(r'<tr class="(\w*)">(.*?)</tr>', text)
    assert [kind for kind, _ in rows[:3]] == ["best", "", "fail"]
    assert 'good" data-label="peak">holds' in rows[0][1]
    assert 'warn" data-label="peak">misses' in rows[1][1]
    assert "≥ at least, not simulated" in text
    assert "* assumed" not in text  # no sign of it is in use


def test_the_rest_has_its_contents_by_topic_in_the_order_of_topics():
    rest = body(PAGE).partition('<details class="rest">')[2]

    links = re.findall(r'<a href="#(s\d+)">([^<]*)</a>', rest)
    headings = re.findall(r'<h2 id="(s\d+)">([^<]*)</h2>', rest)
    assert links == headings
    assert [text for _, text in links] == [
        *("Why 6 and not 5", "Start it with", "Assumed", "Odds")
    ]
    assert "why this many GPUs, and not one fewer" in rest


def test_what_two_sheets_do_not_hold_is_in_the_rest_whole():
    first, _, rest = body(crowded()).partition('<details class="rest">')

    assert 0 < first.count("<dt>fact ") < 7
    checked = first.partition("<h2>Before you sign</h2>")[2]
    assert 1 < checked.count("<li>") < 7
    assert rest.count("<dt>fact ") == 30
    assert rest.count("<li>") >= 20


def test_from_python_the_file_beside_the_page_is_verified_and_alone_nothing():
    assert ">capplan verify plan.json</pre>" in body(PAGE)
    assert "Repeat it" not in body(replace(PAGE, is_alone=True))
    assert "Repeat it" not in body(replace(PAGE, name="capacity"))


def test_a_page_without_other_ways_chart_and_panel_has_no_empty_part():
    bare = ANSWER._replace(instead=None)

    text = body(replace(PAGE, answer=bare, chart=None, panel=None, sections=()))

    assert "Other ways" not in text
    assert "finding" not in text
    assert "Why" not in text
