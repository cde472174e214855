"""report.html: one page, nothing fetched, nothing run, every text escaped."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.metadata import version
from types import SimpleNamespace

import numpy as np
import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from capplan.planning.evaluate.judgement import LEVELS
from capplan.planning.plan.result import Assumption
from capplan.report.columns import column
from capplan.report.page import OPEN_ROWS, Figure, Page, Section, Table
from capplan.report.pages.candidates import COLUMNS
from capplan.report.pages.plan import plan_page
from capplan.report.pages.run import run_page
from capplan.report.provenance import note_arguments
from capplan.report.render.html_page import _breaking, html
from capplan.today import current_day

VOID = {"meta", "link", "br", "img", "hr", "input", "wbr"}


class Outline(HTMLParser):
    """Check that tags close in order, and keep the tags and the text."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def plan_html(plan):
    return html(plan_page(plan))


def outline(page):
    parser = Outline()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


def test_the_answer_stands_before_everything_else(plan):
    page = plan_html(plan)

    title = "<h1>Rent 3 H100-SXM GPUs for $5,453 a month.</h1>"
    assert page.index(title) < page.index("<h2>")


def test_the_page_fetches_nothing_and_runs_its_panel_alone(plan):
    parsed = outline(plan_html(plan))

    assert not {tag for tag, _ in parsed.tags} & {"link", "img", "iframe", "form"}
    scripts = [attributes for tag, attributes in parsed.tags if tag == "script"]
    assert scripts == [{"type": "application/json"}, {}]
    for _, attributes in parsed.tags:
        assert not set(attributes) & {"src", "onload", "onclick"}
        assert attributes.get("href", "#").startswith("#")


def test_the_command_to_copy_is_a_block_of_one_line(plan):
    page = plan_html(plan)

    blocks = re.findall(r'<pre class="command"[^>]*>(.*?)</pre>', page, re.DOTALL)
    assert blocks == ["capplan verify plan.json", plan.best.launch.line]


def test_classes_stand_in_the_page_with_their_own_targets(classed):
    page = plan_html(classed)

    assert "<small>each of 2 classes in time" in page
    assert ">Classes</h2>" in page
    for cell in ("asked", "in time", "95 % interval", "p99 TTFT", "limits"):
        assert page.count(f'data-label="{cell}"') >= 2
    assert "</i>asked 99 %</li>" not in page  # no rule for all in any chart
    assert "</i>chat, asked 99 %</li>" in page
    assert "</i>code, asked 95 %</li>" in page


def test_a_page_is_far_below_six_megabytes(plan):
    assert len(plan_html(plan).encode()) < 1_000_000


@pytest.mark.parametrize("field", ["trace_source", "llm", "slo_text"])
def test_text_from_outside_is_escaped(plan, field):
    page = plan_html(replace(plan, **{field: "<script>alert(1)</script>"}))

    assert "<script>alert" not in page
    assert "&lt;script&gt;" in page


def test_text_in_charts_assumptions_and_warnings_is_escaped(plan, best):
    evil = '"><svg onload=alert(1)>'
    spoiled = replace(best, gpu=evil, probes=best.probes)
    page = plan_html(
        replace(
            plan,
            best=spoiled,
            candidates=(spoiled, *plan.candidates[1:]),
            warnings=(evil,),
            assumptions=(Assumption(evil, evil, evil, "assumed"),),
        )
    )

    for tag, attributes in outline(page).tags:
        assert "onload" not in attributes, tag


def test_every_number_of_the_candidates_table_is_on_the_page(plan):
    page = " ".join(outline(plan_html(plan)).text)

    for candidate in plan.candidates:
        if candidate.run is None:
            assert str(candidate) in page
            continue
        for each in COLUMNS:
            assert not each.heading or each.text(candidate) in page


def test_long_words_break_behind_commas_and_no_number_before_its_percent_sign():
    text = "sglang:mixed=0,clip=4096; 1,024 <a>, 99 %"

    shown = str(_breaking(text))

    assert shown == "sglang:mixed=0,<wbr>clip=4096; 1,024 &lt;a&gt;, 99\u00a0%"


def test_an_infeasible_plan_has_a_page_with_its_reasons(infeasible):
    page = plan_html(infeasible)

    outline(page)
    assert "<h1>No GPU named here holds ttft ≤ 1 s, tpot ≤ 1 ms.</h1>" in page
    assert "TPOT takes 7.03 ms at least, not 1 ms" in page


def test_headings_are_linked_from_the_top(plan):
    page = html(plan_page(plan))

    links = re.findall(r'<a href="#(s\d+)">([^<]*)</a>', page)
    headings = re.findall(r'<h2 id="(s\d+)">([^<]*)</h2>', page)
    assert len(links) > 3
    assert links == headings


def test_details_are_folded_and_the_version_and_day_are_told(run):
    own = run_page(run)
    page = html(replace(own, sections=[replace(own.sections[0], is_folded=True)]))

    folded = page[page.index("<details>") : page.index("</details>")]

    assert "<dl" in folded
    assert f"capplan {version('capplan')} · {current_day().isoformat()}" in page


def test_the_command_line_is_told_where_there_is_one(plan):
    note_arguments(["plan", "--slo", "ttft=1s, <b>"])
    try:
        page = html(plan_page(plan))
    finally:
        note_arguments([])

    assert "capplan plan --slo &#39;ttft=1s, &lt;b&gt;&#39;" in page


def test_a_template_that_names_what_a_page_lacks_is_an_error(plan):
    page = SimpleNamespace(
        name="own", sections=(), to_check=(), answer=None, is_failure=True, panel=None
    )

    with pytest.raises(UndefinedError, match="headline"):
        html(page)


def test_charts_have_no_coordinate_that_is_not_a_number(plan, best):
    run = best.run
    (pool,) = run.simulation.pools
    kv_share = np.full(len(pool.series.kv_share), np.nan)
    pool = replace(pool, series=replace(pool.series, kv_share=kv_share))
    quantiles_s = run.judgement.quantiles_s | {"ttft_s": np.full(len(LEVELS), np.inf)}
    spoiled = replace(
        best,
        run=replace(
            run,
            simulation=replace(run.simulation, pools=(pool,)),
            judgement=replace(run.judgement, quantiles_s=quantiles_s),
        ),
    )

    page = plan_html(replace(plan, best=spoiled, candidates=(spoiled,)))

    drawn = re.findall(r' d="([^"]*)"', page)
    assert drawn
    for coordinates in drawn:
        assert "nan" not in coordinates
        assert "inf" not in coordinates


def test_a_page_has_its_chart_and_its_panel_before_its_sections(plan):
    chart = Figure("3 GPUs carry the day", Markup("<svg></svg>"), caption="of a week")

    page = html(replace(plan_page(plan), chart=chart))

    outline(page)
    order = [
        "<h2>3 GPUs carry the day</h2>",
        "<svg></svg>",
        "of a week",
        'class="panel"',
    ]
    places = [page.index(each) for each in [*order, '<h2 id="s1">']]
    assert places == sorted(places)


def test_a_long_table_is_folded_where_all_else_stands_open():
    rows = [(k,) for k in range(OPEN_ROWS + 1)]
    name = column("", "row", path="0")
    long, short = (Section("Part", tables=[Table([name], x)]) for x in (rows, rows[1:]))

    assert "<details>" in html(Page("own", "It is so", "", [long], dict))
    assert "<details>" not in html(Page("own", "It is so", "", [short], dict))
