"""report.html: one page, nothing fetched, nothing run, every text escaped."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from capplan.planning.result import Assumption
from capplan.report.columns import SHOWN
from capplan.report.write_html import plan_html
from tests.deployments import changed

VOID = {"meta", "link", "br", "img", "hr", "input"}


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


def outline(page):
    parser = Outline()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


def test_the_answer_stands_before_everything_else(plan):
    page = plan_html(plan)

    assert page.index("<h1>40 GPUs = 5 replicas × 8 (TP 8)</h1>") < page.index("<h2>")


def test_the_page_fetches_nothing_and_runs_nothing(plan):
    parsed = outline(plan_html(plan))

    assert not {tag for tag, _ in parsed.tags} & {"script", "link", "img", "iframe"}
    for _, attributes in parsed.tags:
        assert not set(attributes) & {"src", "href", "onload", "onclick"}


def test_the_command_to_copy_is_a_block_of_one_line(plan):
    page = plan_html(plan)

    (block,) = re.findall(r'<pre class="command"[^>]*>(.*?)</pre>', page, re.DOTALL)
    assert block == plan.best.launch_line


@pytest.mark.parametrize(
    ("unused", "caching", "text"),
    [
        (True, False, "on; no request shares a prefix, so simulated without"),
        (False, True, "on"),
        (False, False, "off"),
    ],
)
def test_one_report_says_one_thing_of_prefix_caching(plan, unused, caching, text):
    best = plan.best
    engine = replace(best.engine, prefix_caching=caching)
    run = changed(best.run, caching_unused=unused)
    page = plan_html(replace(plan, best=replace(best, engine=engine, run=run)))

    assert f"<dt>prefix_caching</dt><dd>{text}</dd>" in page


def test_classes_stand_in_the_page_with_their_own_targets(classed):
    page = plan_html(classed)

    assert "<dd>each of 2 classes<small>asked 99 % of chat, 95 % of code" in page
    assert "<h2>Classes</h2>" in page
    for cell in ("asked", "attained", "95 % interval", "p99 TTFT", "limits"):
        assert page.count(f'data-label="{cell}"') >= 2
    assert ">asked 99 %<" not in page  # no rule for all in any chart
    assert "</i>chat, asked 99 %</li>" in page
    assert "</i>code, asked 95 %</li>" in page


def test_an_uncertain_candidate_stands_beside_the_headline_with_its_range(doubted):
    doubts = "real engines carry 0.25 to 1.00 of what is assumed (2 to 8 replicas)"

    page = plan_html(doubted)
    alone = plan_html(replace(doubted, best=doubted.best_estimated))

    assert f"per hour: {doubts}.</p>" in page
    assert f"<dt>MI300X TP 8</dt><dd>uncertain: {doubts}</dd>" in page
    assert '<p class="bad">' not in page
    assert f'<p class="bad">Uncertain: {doubts}.</p>' in alone


def test_a_page_is_far_below_six_megabytes(plan):
    assert len(plan_html(plan).encode()) < 1_000_000


@pytest.mark.parametrize("field", ["trace_source", "llm", "slo_text"])
def test_text_from_outside_is_escaped(plan, field):
    page = plan_html(replace(plan, **{field: "<script>alert(1)</script>"}))

    assert "<script" not in page
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
        for column in SHOWN:
            assert column.text(candidate) in page


def test_assumptions_are_kept_apart_by_how_they_are_known(plan):
    headings = re.findall(r"<h3 style[^>]*>([^<]*)</h3>", plan_html(plan))

    assert headings == [
        "Fitted to measurements",
        "Published",
        "Assumed",
        "Given by you",
    ]


def test_an_infeasible_plan_has_a_page_with_its_reason(infeasible):
    page = plan_html(infeasible)

    outline(page)
    assert "<h1>Infeasible</h1>" in page
    assert "tpot=7ms would do" in page


def test_a_plan_with_nothing_known_but_the_count_has_a_page(plan, best):
    bare = replace(best, price=None, cost=None, engine=None, probes=(), bound=None)

    page = plan_html(replace(plan, best=bare, candidates=(bare,), best_by_gpus=bare))

    outline(page)
    assert "No price is known for H100-SXM" in page


def test_charts_have_no_coordinate_that_is_not_a_number(plan, best):
    run = best.run
    series = replace(run.simulation.series, kv_share=np.full(120, np.nan))
    quantiles_s = run.judgement.quantiles_s | {"ttft_s": np.full(103, np.inf)}
    spoiled = replace(
        best,
        run=replace(
            run,
            simulation=replace(run.simulation, series=series),
            judgement=replace(run.judgement, quantiles_s=quantiles_s),
        ),
    )

    page = plan_html(replace(plan, best=spoiled, candidates=(spoiled,)))

    drawn = re.findall(r' d="([^"]*)"', page)
    assert drawn
    for coordinates in drawn:
        assert "nan" not in coordinates
        assert "inf" not in coordinates
