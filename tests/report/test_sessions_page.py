"""What a plan and a simulation of sessions show."""

from dataclasses import replace

import pytest

from capplan.planning.plan.plan import plan
from capplan.planning.plan.sticky import StickyWorth
from capplan.planning.settings.plan import PlanSettings
from capplan.report.pages.plan import plan_page
from capplan.report.render.html_page import html
from capplan.report.render.markdown import markdown

SETTINGS = {
    "workload": "chat-turns:n=100",
    "llm": "Llama-3.1-8B",
    "gpu": ("H100-SXM",),
    "tp": (1,),
    "latency_ms": "10,0.3,1e-7,0.1,1e-5",
    "kv_blocks": 2001,
    "max_num_seqs": 32,
    "wait_cap": "20s",
    "tune": False,
    "slo": ("turn:ttft=500ms,tpot=40ms",),
    "attainment": 0.95,
}


@pytest.fixture(scope="module")
def found():
    return plan(PlanSettings(**SETTINGS, sessions="200"))


def test_a_fleet_holds_where_sessions_have_no_peak(found):
    page = plan_page(found)

    assert [name for name, _ in page.answer.said][2] == "fleet"
    assert page.answer.instead.shown[-1].heading == "fleet"
    assert "With one replica fewer, the fleet" in page.lead
    assert "% of turns are answered" in page.lead
    assert "<dt>Does the fleet hold?</dt>" in html(page)
    assert "**Does the fleet hold?**" in markdown(page)


def test_sessions_that_do_not_stick_were_simulated(found):
    page = plan_page(replace(found, sticky=StickyWorth("jsq", None, None, 8)))
    rows = [row for row in page.answer.instead.rows if "do not stick" in row[0]]

    assert rows[0][1] == ">8"
    assert "with up to 8 GPUs" in rows[0][4]
    assert not any("not simulated" in mark for mark in page.answer.marks)


def test_turns_are_no_requests_at_a_rate(found):
    given = {each.what: each.value for each in found.assumptions}

    assert given["traffic"].endswith("turns to draw from")
